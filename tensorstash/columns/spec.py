"""The columns that callers ask for: `ts.column`, `ts.is_valid`, `ts.hashed`, and lists and mappings of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import torch

from tensorstash.columns.codec import PLAIN, Codec, Given, Hashed, Validity
from tensorstash.columns.column import Fill
from tensorstash.columns.expression import Formula, alias_of, members_of
from tensorstash.common.checks import at_least, is_listed, shown
from tensorstash.common.text import type_text
from tensorstash.errors import SchemaError

if TYPE_CHECKING:
    import polars as pl

Source = Union[str, "pl.Expr"]
# a value is a source, several in a list, or a `ColumnSpec`; mypy takes a dict of them, held in a variable, for objects
Columns = Sequence["Source | ColumnSpec"] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A source column, or several packed into one, and how to store it."""

    members: tuple[str | Formula, ...]
    packed: bool = False  # whether it was asked for as a list, perhaps of one member
    dtype: torch.dtype | None = None
    fill: Fill | None = None
    codec: Codec = PLAIN  # with `Plain`, the source's type decides
    empty: Fill | None = None
    calendar: tuple[tuple[str, str], ...] = ()  # the field and form of each member that `ts.calendar` made


def column(
    source: "Source | Sequence[Source]",
    *,
    dtype: torch.dtype | None = None,
    fill: Fill | None = None,
    vocabulary: Iterable[str] | Iterable[int] | None = None,
    empty: Fill | None = None,
) -> ColumnSpec:
    """Choose how one column of a stash is stored.

    Args:
        source: the name of a source column, a polars expression, or several of them, which are packed
            into one column of shape `(rows, len(source))`.
        dtype: the type to store. Floating types are rounded to it; any other cast must keep every value. `None`: the
            type of the source, or the `dtype=` of `ts.load`.
        fill: stored where the source has a missing value (a null, or NaN in a floating column). It then counts as
            data, unless the stash also has `ts.is_valid` of the column. Without `fill`, floating columns hold NaN and
            codes are -1 there, and missing integers and booleans are an error.
        vocabulary: the known values of a text or integer column, which is then stored as int32 codes. Value k has code
            k, every unknown value has code `len(vocabulary)`, and a null has code -1 or that of `fill`, which must be
            in the vocabulary. An embedding needs `len(vocabulary) + 1` rows. Without a vocabulary, the values of a text
            column are numbered in ascending order.
        empty: the value of window slots without a row (see `ts.Windows`). By default it is `fill`, or NaN or code -1
            without `fill`.

    Returns:
        A value of `columns=` or `static=` of `ts.load`.

    Raises:
        TypeError: an argument of another type. ValueError: an empty vocabulary, a value in it twice, or, from
        `ts.load`, a `fill` that is not in it. SchemaError, from `ts.load`: the source has a type that cannot be stored
        so. DataError, from `ts.load`: a value that `dtype` cannot hold, or a missing one without `fill`.

    Example:
        >>> import torch, tensorstash as ts
        >>> stash = ts.load({"a": [1, None, 3]}, columns={"x": ts.column("a", dtype=torch.float16, fill=0)})
        >>> stash["x"]
        tensor([1., 0., 3.], dtype=torch.float16)
        >>> country = ts.column("country", vocabulary=["SE", "NO"])
        >>> ts.load({"country": ["NO", "PE", "SE", None]}, [country])["country"]
        tensor([ 1,  2,  0, -1], dtype=torch.int32)
    """
    check_dtype(dtype)
    codec = PLAIN if vocabulary is None else Given(_vocabulary_of(vocabulary))
    return ColumnSpec(*members_of(source), dtype, _fill_of(fill, "fill"), codec, _fill_of(empty, "empty"))


def _fill_of(value: object, argument: str) -> Fill | None:
    """The value of `fill=` or `empty=` as a Python number, boolean or text."""
    plain = _python_value(value, argument)
    if value is None:
        return None
    if isinstance(plain, (float, int, str)):  # numpy turns NaT into None
        return plain
    raise TypeError(
        f"{argument}= must be one number, boolean or text, got {shown(value)}. For times, give the integer that the "
        "tensor stores."
    )


def _python_value(value: object, argument: str) -> object:
    """Convert a value of numpy or torch. Raises for a text with a lone surrogate, which UTF-8 cannot encode."""
    if isinstance(value, torch.Tensor) and value.is_meta:
        raise TypeError(f"{argument}= must have values, got a tensor on the meta device, which has none.")
    if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError(f"{argument}= must be valid Unicode; {value!r} has a lone surrogate. Correct the text.")
    return value


def check_dtype(dtype: object) -> None:
    """Raise if `dtype` is not a `torch.dtype`."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return
    raise TypeError(f"dtype= must be a torch.dtype, such as torch.float32, got {shown(dtype)}.")


def is_valid(source: "Source | Sequence[Source]") -> ColumnSpec:
    """A bool column that is true where the source has a value: neither a null nor, in a floating column, NaN.

    Where it is false, `require=`, `latest(of=)`, `Scaler.fit` and `describe` treat the `fill=` value of a column of the
    same source as missing, and so does `ts.InstanceNorm` in batches that have both. It is false in empty slots.

    Args:
        source: the name of a source column, a polars expression, or several of them, which are packed
            into one column of shape `(rows, len(source))`. The column itself need not be loaded.

    Returns:
        A value of `columns=` or `static=` of `ts.load`.

    Example:
        >>> import tensorstash as ts
        >>> columns = {"temp": ts.column("temp", fill=0.0), "temp_ok": ts.is_valid("temp")}
        >>> stash = ts.load({"temp": [1.5, None, 0.0]}, columns)
        >>> stash["temp"].tolist(), stash["temp_ok"].tolist()
        ([1.5, 0.0, 0.0], [True, False, True])
    """
    return ColumnSpec(*members_of(source), codec=Validity())


def named(columns: Columns, argument: str) -> list[tuple[str, ColumnSpec]]:
    """The names and specs of `columns=` in any of its forms."""
    if isinstance(columns, str) or not isinstance(columns, (Mapping, Sequence)):
        of_file = ", or give the frame of a file, such as pl.scan_parquet(path)" if argument == "static" else ""
        what = f"the text {columns!r}. Write [{columns!r}]{of_file}" if isinstance(columns, str) else type_text(columns)
        raise TypeError(f"{argument}= must be a list of names or a mapping, got {what}.")
    if isinstance(columns, Mapping):
        if wrong := [name for name in columns if not isinstance(name, str)]:
            raise TypeError(f"Names of columns must be texts, got {wrong[0]!r}. Write {str(wrong[0])!r}.")
        return [(name, _spec(choice)) for name, choice in columns.items()]
    specs = [*map(_spec, columns)]
    for spec in specs:
        if isinstance(spec.codec, Validity) or spec.packed:
            raise ValueError(
                f"A pack or a mask in a list needs a name, got {list(spec.members)}. Write {{'name': [...]}}, or "
                "{'name': ts.is_valid(...)}."
            )
    names = [alias_of(spec.members[0]) for spec in specs]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        given = ", ".join(map(repr, twice))
        raise SchemaError(f"Column names must be unique, got {given} more than once. Use a mapping of names.")
    return [*zip(names, specs)]


def _spec(choice: object) -> ColumnSpec:
    return choice if isinstance(choice, ColumnSpec) else ColumnSpec(*members_of(choice))


def hashed(source: "Source", buckets: int) -> ColumnSpec:
    """A text or integer column as int32 codes in `[0, buckets)`, the buckets of the values' hashes.

    Equal values have equal codes in all sources, on all machines and in all releases; different values may share a
    bucket. The code is the 8-byte BLAKE2b digest (RFC 7693) of the UTF-8 text, or of the decimal digits of an integer,
    read as a little-endian unsigned integer, modulo `buckets`. A null has code -1. There is no vocabulary.

    Args:
        source: the name of a source column, or a polars expression.
        buckets: the number of buckets, 1 to 2**31; an embedding needs as many rows.

    Returns:
        A value of `columns=` or `static=` of `ts.load`.

    Raises:
        TypeError: several columns. ValueError: `buckets` is out of range. SchemaError, from `ts.load`: the column holds
        neither text nor integers.

    Example:
        >>> import tensorstash as ts
        >>> users = {"user": ["ada", "bob", None, "ada"], "id": [17, 18, 19, 17]}
        >>> stash = ts.load(users, {"user": ts.hashed("user", 2**18), "id": ts.hashed("id", 1000)})
        >>> stash["user"].tolist(), stash["id"].tolist()
        ([176149, 258932, -1, 176149], [256, 432, 568, 256])
        >>> from hashlib import blake2b
        >>> int.from_bytes(blake2b("ada".encode(), digest_size=8).digest(), "little") % 2**18
        176149
    """
    members, packed = members_of(source)
    if packed:
        raise TypeError(f"ts.hashed takes one column, a name or a polars expression, got {shown(source)}.")
    if at_least(1, buckets, "buckets") > 2**31:
        raise ValueError(f"buckets must be at most 2**31, because codes are int32, got {buckets}.")
    return ColumnSpec(members, packed, codec=Hashed(int(buckets)))


def _vocabulary_of(vocabulary: Iterable[object]) -> tuple[str, ...] | tuple[int, ...]:
    """Check a vocabulary and convert its values to Python texts or integers."""
    if not is_listed(vocabulary) or isinstance(vocabulary, (set, frozenset, Mapping)):
        raise TypeError(
            f"vocabulary= must be a list of texts or integers in the order of the codes, got {shown(vocabulary)}. "
            "Write a list: [...] of one value, sorted(...) of a set, list(...) of the values of a mapping or of a "
            "column of a frame."
        )
    values: list[Any] = [_python_value(value, "vocabulary") for value in vocabulary]
    if not values:
        raise ValueError("vocabulary= must have at least one value, got none.")
    kind = str if isinstance(values[0], str) else int
    if wrong := [value for value in values if not isinstance(value, kind) or isinstance(value, bool)]:
        raise TypeError(f"vocabulary= must hold texts or integers, got {wrong[0]!r} among {len(values):,} values.")
    if kind is int:
        low, high = min(values), max(values)
        if low < -(1 << 63) or high >= 1 << (63 if low < 0 else 64):
            raise ValueError(f"vocabulary= must hold integers of 64 bits, got {low} to {high}.")
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ValueError(f"vocabulary= must hold each value once, got {twice[0]!r} twice. Leave one out.")
    return tuple(values)
