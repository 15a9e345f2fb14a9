"""Types of numbers: the table between torch, numpy and safetensors, and the array types of signatures."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
# torch dtype -> (safetensors code, numpy name); numpy has no bfloat16, whose bits are stored as uint16.
DTYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.bool: ("BOOL", "bool"),
    torch.int8: ("I8", "int8"),
    torch.uint8: ("U8", "uint8"),
    torch.int16: ("I16", "int16"),
    torch.uint16: ("U16", "uint16"),
    torch.int32: ("I32", "int32"),
    torch.uint32: ("U32", "uint32"),
    torch.int64: ("I64", "int64"),
    torch.uint64: ("U64", "uint64"),
    torch.float16: ("F16", "float16"),
    torch.bfloat16: ("BF16", "uint16"),
    torch.float32: ("F32", "float32"),
    torch.float64: ("F64", "float64"),
}
CODES = {code: dtype for dtype, (code, _) in DTYPES.items()}
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def from_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The values of the bits of bfloat16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers of the same item size."""
    integers = INTEGERS[tensor.itemsize]
    return tensor if tensor.dtype == integers else tensor.view(integers)  # not every device can view another type


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """The same memory as a numpy array; bfloat16 comes as int16 bits."""
    return (as_integers(tensor) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def one_nan(tensor: torch.Tensor) -> torch.Tensor:
    """Give every NaN of a half type the same bits, in place: torch's arithmetic gives it other ones by its place."""
    if tensor.itemsize == 2 and tensor.is_floating_point():
        tensor.masked_fill_(tensor.isnan(), math.nan)
    return tensor
