"""What always holds, over every way to run a loader."""
