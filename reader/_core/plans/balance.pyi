# Types of reader._core.plans.balance. Holds no code.

import numpy as np
import numpy.typing as npt

def deal(
    costs: npt.NDArray[np.float64],
    limit: float,
    batch_of: npt.NDArray[np.int32],
    totals: npt.NDArray[np.float64],
) -> bool: ...
def cut(
    lengths: npt.NDArray[np.float64],
    limit: float,
    ends: npt.NDArray[np.int64],
    totals: npt.NDArray[np.float64],
) -> int: ...
