"""The way between workers and trainer: rings, results, records, the queue and both ends of them."""
