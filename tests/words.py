"""The words that arguments of the package take, as types for the parameters of tests."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Gaps = Literal["split", "mask", "ignore"]
Tail = Literal["keep", "pad", "drop"]
Side = Literal["left", "right"]
By = Literal["entity"]
Unknown = Literal["error", "pooled"]
ScalerKind = Literal["standard", "minmax", "robust", "maxabs"]
NormKind = Literal["standard", "last", "mean"]

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
