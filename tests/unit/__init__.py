"""One module or class at a time."""
