"""Worker processes: how the trainer starts, watches and ends them."""
