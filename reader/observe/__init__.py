"""Look at a loader and its machine from outside: find what makes it slow or fail.

This package runs in the trainer, or in a program of its own (`python -m reader`). It may import the
engine and the rooms below it, `reader.images` and the public face; nothing that makes batches
imports it. It changes nothing that it looks at, and keeps no state.
"""
