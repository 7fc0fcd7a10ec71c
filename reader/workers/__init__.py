"""What runs in a worker, and the pool that starts, watches and replaces workers.

This package may import errors, config, `reader._core` and `reader.data`. A worker's state belongs
to its process, a pool's to the trainer.
"""
