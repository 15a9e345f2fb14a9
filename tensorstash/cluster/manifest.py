"""The manifest: what a directory of shards holds, and how it was made. It is written after all shards."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from tensorstash.columns.sharding import HASH
from tensorstash.common.text import counted, cut
from tensorstash.errors import SegmentError

VERSION = 2
NAME = "manifest.json"
INDEX = "index.safetensors"
_LONGEST = 100  # the most characters of the columns that are printed


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """One file of a directory of shards, as `manifest.shards` lists it.

    Attributes:
        file: its name in the directory.
        rows: its number of rows.
        entities: its number of entities.
        bytes: the size of the file.
        checksum: BLAKE2b of the file, 32 bytes, in hex.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"shop": ["A", "A", "B"], "sold": [5.0, 6.0, 7.0]}
        >>> manifest = ts.cluster.shard(data, ["sold"], entity="shop", shards=1, to=tempfile.mkdtemp())
        >>> record = manifest.shards[0]
        >>> record.file, record.rows, record.entities, len(record.checksum)
        ('shard-00000.safetensors', 3, 2, 64)
    """

    file: str
    rows: int
    entities: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, repr=False)
class Manifest:
    """What a directory of shards holds: the record of each file, and what was decided once for all of them.

    `ts.cluster.shard` returns one, and `ts.cluster.open(path).manifest` is one.

    Attributes:
        version: the version of the manifest's format.
        hash: the name of the function that gives each entity its shard, `ts.cluster.shard_of`.
        arguments: what decides every byte of the shards: the source and the arguments, as texts.
        shards: the `ShardRecord` of each shard, by its number.
        index: that of a stash with a row for each entity of all shards: its shard, and its rows there.
        frequency: the step of time that most pairs of rows of all shards follow; `None` if there is none.
        vocabularies: the vocabulary of each text column.
        types: the type of each column as text: a torch dtype, and the length of a pack.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"shop": ["A", "A", "B"], "day": [1, 2, 1], "sold": [5.0, 6.0, 7.0], "sky": ["sun", "rain", "sun"]}
        >>> where = tempfile.mkdtemp()
        >>> manifest = ts.cluster.shard(data, ["sold", "sky"], entity="shop", time="day", shards=2, to=where)
        >>> manifest.rows, len(manifest.shards), manifest.frequency, manifest.vocabularies
        (3, 2, 1, {'sky': ('rain', 'sun')})
    """

    version: int
    hash: str
    arguments: Mapping[str, str]
    shards: tuple[ShardRecord, ...]
    index: ShardRecord
    frequency: str | int | None
    vocabularies: Mapping[str, tuple[Any, ...]]
    types: Mapping[str, str]

    @property
    def rows(self) -> int:
        """The rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def __repr__(self) -> str:
        columns = cut(", ".join(f"{name} {kind}" for name, kind in self.types.items()), _LONGEST)
        filled = sum(shard.rows > 0 for shard in self.shards)
        return (
            f"Manifest: {counted(self.rows, 'row')} of {counted(self.index.rows, 'entity')} in "
            f"{counted(len(self.shards), 'shard')}, for up to {counted(filled, 'node')}\n  {columns}"
        )


def to_json(manifest: Manifest) -> str:
    """The text of `manifest.json`."""
    return seal(asdict(manifest))


def from_json(text: str, where: str) -> Manifest:
    """The manifest in a text; raises `SegmentError`, which names `where` it is, if there is none."""
    try:
        fields = unseal(text)
        if (fields["version"], fields["hash"]) != (VERSION, HASH):
            raise ValueError(f"it has version {fields['version']}, and this release reads version {VERSION}")
        shards = tuple(ShardRecord(**record) for record in fields["shards"])
        words = {name: tuple(values) for name, values in fields["vocabularies"].items()}
        changes = {"shards": shards, "index": ShardRecord(**fields["index"]), "vocabularies": words}
        return Manifest(**fields | changes)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SegmentError(
            f"{where} is not a whole manifest: {error}. Make the shards again: ts.cluster.shard(...)."
        ) from error


def seal(fields: Mapping[str, Any]) -> str:
    """JSON with a checksum of itself."""
    return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1) + "\n"


def unseal(text: str) -> dict[str, Any]:
    """The fields of a text that `seal` made; raises `ValueError` if the text was changed."""
    try:
        fields = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(fields, dict) or fields.pop("checksum", None) != _checksum(fields):
        raise ValueError("its checksum is wrong: it was changed, or another release wrote it")
    return fields


def _checksum(fields: Mapping[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def key_of(arguments: Mapping[str, str], part: int | str) -> str:
    """The key in the header of a file: a hash of the arguments and of the part, a shard's number or the index."""
    return _checksum({"part": part, "arguments": dict(arguments)})
