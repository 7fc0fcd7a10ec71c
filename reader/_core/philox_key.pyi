# Types of reader._core.philox_key, which is built from cython_ext/reader/_core/philox_key.pyx.
# Holds no code.

import numpy as np
import numpy.typing as npt

def philox_key(purpose: int, seed: int, epoch: int, position: int) -> npt.NDArray[np.uint64]: ...
