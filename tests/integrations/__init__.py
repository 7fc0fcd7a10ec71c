"""Views of a loader in other programs, each beside the real library."""
