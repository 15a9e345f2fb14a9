"""What a case has shown: a digest for each batch, state or error, or with `detail` the values themselves."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import torch

import tensorstash
from tests.differential import words
from tests.differential.library import WORDS, kind_of

LIBRARY = str(Path(tensorstash.__file__).parent)
_SHOWN = 400  # numbers of a tensor in details

Leaf = tuple[str, str, bytes]  # where it is, what it is, its bytes


def leaves(value: Any, path: str = "", *, computed: bool = False) -> Iterator[Leaf]:
    """All tensors and plain values inside a value; keys of mappings in ascending order.

    `computed`: torch has computed with the values. The bits of NaN in half types then depend on where they lie.
    """
    if isinstance(value, Mapping):
        yield path, f"{len(value)} entries", b""
        for key in sorted(value, key=repr):
            yield from leaves(value[key], f"{path}/{key}", computed=computed)
    elif isinstance(value, (list, tuple)):
        yield path, f"{len(value)} items", b""
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}/{number}", computed=computed)
    elif isinstance(value, torch.Tensor):
        yield path, f"{value.device.type} {value.dtype} {tuple(value.shape)}", _bytes(value, computed)
    elif isinstance(value, np.ndarray):
        yield path, f"numpy {value.dtype} {value.shape}", np.ascontiguousarray(value).tobytes()
    elif isinstance(value, pl.DataFrame):
        yield from leaves(value.to_arrow(), path)
    elif isinstance(value, pa.Table):
        columns = zip(value.schema.names, value.schema.types, value.columns)
        yield from leaves({name: [str(kind), repr(column.to_pylist())] for name, kind, column in columns}, path)
    else:
        yield path, type(value).__name__, repr(value).encode()


def _bytes(tensor: torch.Tensor, computed: bool) -> bytes:
    if not tensor.is_cpu and not hasattr(tensor, "own"):
        return b""  # `python_device` loses the values of a view in another dtype
    flat = tensor.cpu().detach().reshape(-1).clone(memory_format=torch.contiguous_format)
    if computed and flat.dtype in (torch.float16, torch.bfloat16):
        flat[flat.isnan()] = torch.nan
    return flat.view(torch.uint8).numpy().tobytes()


def digest(value: Any, *, computed: bool = False) -> str:
    """A hash of names, types, shapes and bytes."""
    total = blake2b(digest_size=10)
    for path, kind, data in leaves(value, computed=computed):
        total.update(f"{path}\0{kind}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()


def detailed(value: Any, *, computed: bool = False) -> list[str]:
    """The same as lines to be compared by eye: of each tensor its values, and a hash of its bytes."""
    return [f"{path or '.'}: {kind} {_shown(kind, data)}" for path, kind, data in leaves(value, computed=computed)]


def _shown(kind: str, data: bytes) -> str:
    if "torch" not in kind and "numpy" not in kind:
        return data.decode()
    name = kind.split()[1].removeprefix("torch.")
    text = blake2b(data, digest_size=4).hexdigest()
    if name == "object":
        return f"#{text}"
    of_torch = torch.frombuffer(bytearray(data), dtype=torch.bfloat16) if name == "bfloat16" and data else None
    values = np.frombuffer(data, name).tolist() if of_torch is None else of_torch.tolist()
    return f"#{text} {values[:_SHOWN]}{' ...' if len(values) > _SHOWN else ''}"


class Record:
    """What one case has shown so far: labels and digests, in the order in which they came."""

    def __init__(self, *, detail: bool = False) -> None:
        self.about: list[str] = []  # what the case has, chosen by its number alone
        self.parts: list[tuple[str, str]] = []
        self.texts: list[tuple[str, list[str]]] = []
        self.computed = False  # whether a transform computes with values from now on
        self._labels: Counter[str] = Counter()
        self._detail = detail

    def has(self, *features: object) -> None:
        """Note what the case has, such as "gaps=mask", which differences that are wanted are told by."""
        self.about += map(str, features)

    def add(self, label: str, value: Any) -> None:
        """Record tensors or plain values."""
        self._labels[label] += 1
        label = label if self._labels[label] == 1 else f"{label} #{self._labels[label]}"
        self.parts.append((label, digest(value, computed=self.computed)))
        if self._detail:
            self.texts.append((label, detailed(value, computed=self.computed)))

    def batch(self, label: str, batch: Any) -> None:
        """Record a batch, whatever a transform has made of it."""
        self.add(label, {WORDS.entry(name): value for name, value in batch.items()})

    def given(self, label: str, given: Any) -> None:
        """Record what an iterator gives: a batch, the ids of a sampler, or nothing more."""
        if isinstance(given, Mapping):
            self.batch(label, given)
        else:
            self.add(label, given)

    def state(self, label: str, state: Mapping[str, Any]) -> None:
        """Record a state or a fingerprint, as JSON."""
        self.add(label, json.loads(json.dumps(WORDS.fields(state), sort_keys=True)))

    @contextmanager
    def trying(self, label: str) -> Iterator[None]:
        """Record the type of an error of the library, and go on."""
        try:
            yield
        except Exception as error:
            if is_own(error):
                raise
            self.refused(label, error)

    def shows(self, label: str, *things: Any) -> None:
        """Record that objects have a text and a picture, which may be worded anew."""
        with self.trying(label):
            self.add(
                label, [bool(repr(thing)) and bool(getattr(thing, "_repr_html_", thing.__repr__)()) for thing in things]
            )

    def refused(self, label: str, error: Exception) -> None:
        """Record the type of an error."""
        self.add(f"{label} refused", kind_of(error))

    def warned(self, categories: Sequence[type[Warning]]) -> None:
        """Record how many warnings of each kind there were."""
        self.add("warnings", dict(Counter(kind.__name__ for kind in categories)))


def is_own(error: Exception) -> bool:
    """Whether the script itself has failed, rather than the library."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    if files and files[-1] == words.__file__ and isinstance(error, TypeError):
        return False  # the library was called with arguments that it does not take
    return not any(file.startswith(LIBRARY) for file in files)
