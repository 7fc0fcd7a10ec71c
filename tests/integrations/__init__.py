"""What other programs show of a loader, each beside the real library."""
