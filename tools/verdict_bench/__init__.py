"""Programs with different bottlenecks, and whether a profile names these."""
