# Types of reader._core.random.philox_key. Holds no code.

import numpy as np
import numpy.typing as npt

def philox_key(purpose: int, seed: int, epoch: int, position: int) -> npt.NDArray[np.uint64]: ...
