"""Scalars of a loader in VisualDL: the same logger as for TensorBoard, under its own name.

Imports that logger and no library. Paddle's `Model` has a callback in
`reader.integrations.paddle`.
"""

from reader.integrations.tensorboard import ScalarLogger

__all__ = ["ScalarLogger"]
