# Types of reader._core.plans.windows. Holds no code.

import numpy as np
import numpy.typing as npt

def group_shards(
    starts: npt.NDArray[np.int64],
    shards: npt.NDArray[np.int64],
    window: int,
    firsts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    cuts: npt.NDArray[np.int64],
) -> int: ...
