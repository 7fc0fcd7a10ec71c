"""What runs in the trainer: dispatch, the iterator, and who owns a pool between epochs.

This room may import errors, config, `reader._core`, `reader.data`, `reader.workers` and
`reader.frameworks`.
"""
