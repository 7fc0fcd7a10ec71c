"""Memory: the arena that trainer and workers map, its heaps, waiting on words, copying."""
