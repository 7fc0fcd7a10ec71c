"""Who makes the batches: worker processes, worker threads, or the thread that iterates.

One protocol, `Backend`, with its implementations beside it. This room imports `reader._core` and
workers, and nothing else of the engine.
"""
