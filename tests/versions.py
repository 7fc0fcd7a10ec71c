"""Features of the installed versions of libraries, by which a test says where it holds.

Imports NumPy.
"""

from __future__ import annotations

import numpy as np

NUMPY = tuple(int(part) for part in np.__version__.split(".")[:2])
IS_NUMPY_2 = NUMPY >= (2, 0)
MOST_DIMENSIONS = 64 if IS_NUMPY_2 else 32  # of an array
