"""The steps of a loop: what is in flight, whose turn it is, and how a batch is handed over."""
