"""The manifest: what a directory of shards holds, and how it was made. It is written last, when all else is there."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from tensorstash.columns.sharding import HASH, MOST
from tensorstash.common.checks import is_integer
from tensorstash.common.clock import Clock
from tensorstash.common.frequency import frequency
from tensorstash.errors import SegmentError

VERSION = 2
NAME = "manifest.json"
INDEX = "index.safetensors"


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """One file of a directory of shards."""

    file: str  #: its name in the directory
    rows: int
    entities: int
    bytes: int  #: the size of the file
    checksum: str  #: BLAKE2b of the file, 32 bytes, in hex


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a directory of shards holds: the record of each file, and what was decided once for all of them."""

    version: int  #: of the manifest's format
    hash: str  #: the name of the function that gives each entity its shard: `ts.cluster.shard_of`
    arguments: Mapping[str, str]  #: what decides every byte of the shards: the source and the arguments, as texts
    shards: tuple[ShardRecord, ...]  #: the stash of each shard, by its number
    index: ShardRecord  #: a stash with a row for each entity of all shards: its shard, and its rows there
    frequency: str | int | None  #: the time step that most pairs of rows of all shards follow, if there is one
    vocabularies: Mapping[str, tuple[Any, ...]]  #: of each text column
    types: Mapping[str, str]  #: the type of each column: a torch dtype, and the length of a pack

    @property
    def rows(self) -> int:
        """The rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "the manifest") -> "Manifest":
        """The manifest in a text, every field checked; otherwise a `SegmentError` that says `where` it is."""
        try:
            fields = _checked(json.loads(text), _MANIFEST, "It")
            shards = tuple(record_of(record, file_of(number)) for number, record in enumerate(fields["shards"]))
            index, entities = record_of(fields["index"], INDEX), sum(shard.entities for shard in shards)
            if (index.rows, index.entities) != (entities, entities):
                raise ValueError(f"Its index has {index.entities:,} entities, and its shards {entities:,}.")
        except (ValueError, RecursionError) as error:
            raise SegmentError(
                f"{where} is not a whole manifest: {str(error).rstrip('.')}. Make the shards again: "
                "ts.cluster.shard(...)."
            ) from error
        words = {name: tuple(values) for name, values in fields["vocabularies"].items()}
        return Manifest(**fields | {"shards": shards, "index": index, "vocabularies": words})


def file_of(number: int) -> str:
    """The name of a shard's file."""
    return f"shard-{number:05}.safetensors"


def key_of(arguments: Mapping[str, str], part: int | str) -> str:
    """The key in the header of a file: of what it was made, and which part it is, a shard's number or the index."""
    return sha256(json.dumps([part, dict(arguments)], sort_keys=True).encode()).hexdigest()


def record_of(fields: object, file: str) -> ShardRecord:
    """The record of a file of that name, its fields checked; a `ValueError` says which is wrong."""
    record = ShardRecord(**_checked(fields, _RECORD, f"The record of {file}"))
    if record.file != file:
        raise ValueError(f"The record of {file} names another file, {record.file!r}.")
    if record.entities > record.rows:
        raise ValueError(f"The record of {file} has {record.entities:,} entities in {record.rows:,} rows.")
    return record


def short(value: object) -> str:
    """A value for messages."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _is_frequency(value: Any) -> bool:
    if not isinstance(value, str):
        return value is None or (is_integer(value) and 0 < value < 1 << 63)
    try:
        return bool(frequency(value, Clock("ns", None), None))
    except ValueError:
        return False


def _is_vocabulary(value: Any) -> bool:
    kinds = {type(word) for word in value} if isinstance(value, list) else {None}
    return kinds in (set(), {str}, {int}) and len({*value}) == len(value)


_Rule = tuple[Callable[[Any], bool], str]
_TEXT: _Rule = (lambda value: isinstance(value, str), "a text")
_TEXTS: _Rule = (
    lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
    "a mapping of texts",
)
_COUNT: _Rule = (lambda value: is_integer(value) and 0 <= value < 1 << 63, "an integer of at least 0")
_RECORD: dict[str, _Rule] = {
    "file": _TEXT,
    "rows": _COUNT,
    "entities": _COUNT,
    "bytes": _COUNT,
    "checksum": (lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)), "64 hex digits"),
}
_MANIFEST: dict[str, _Rule] = {
    "version": (lambda value: value == VERSION, f"{VERSION}, as this release writes it"),
    "hash": (lambda value: value == HASH, f"{HASH!r}, which gives entities to shards"),
    "arguments": _TEXTS,
    "shards": (lambda value: isinstance(value, list) and 1 <= len(value) <= MOST, f"a list of 1 to {MOST:,} records"),
    "index": (lambda value: isinstance(value, dict), "a record"),
    "frequency": (_is_frequency, 'a duration such as "1h", an integer above 0, or null'),
    "vocabularies": (
        lambda value: isinstance(value, dict) and all(map(_is_vocabulary, value.values())),
        "a mapping of lists of distinct texts, or integers",
    ),
    "types": _TEXTS,
}


def _checked(fields: object, rules: Mapping[str, _Rule], what: str) -> dict[str, Any]:
    for name, (is_right, rule) in rules.items():
        if isinstance(fields, dict) and name in fields and not is_right(fields[name]):
            raise ValueError(f"{what} has as {name} {rule}; got {short(repr(fields[name]))}.")
    if not isinstance(fields, dict) or fields.keys() != rules.keys():
        raise ValueError(f"{what} has the fields {', '.join(rules)}; got {short(fields)}.")
    return fields
