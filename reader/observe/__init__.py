"""What a loader and its machine look like from outside: findings about what makes it slow or fail.

This package runs in the trainer, or in a program of its own (`python -m reader`). It may import
what the engine may, the engine, `reader.images` and the public face; nothing that makes batches
imports it. It changes nothing of what it looks at, and keeps no state.
"""
