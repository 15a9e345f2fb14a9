"""The manifest: what a directory of shards holds, and how it was made. It is written last, when all else is there."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tensorstash.errors import SegmentError

VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """One file of a directory of shards."""

    file: str
    """Its name in the directory."""
    rows: int
    entities: int
    bytes: int
    """The size of the file."""
    checksum: str
    """BLAKE2b of the file, 32 bytes, in hex."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a directory of shards holds: the record of each file, and what was decided once for all of them.

    Example:
        >>> import tensorstash as ts
        >>> manifest = ts.cluster.Manifest(
        ...     version=1, hash="tensorstash shard 1", arguments={"time": "'hour'"},
        ...     shards=(ts.cluster.ShardRecord("shard-00000.safetensors", 4, 2, 8192, "0f"),),
        ...     index=ts.cluster.ShardRecord("index.safetensors", 2, 2, 8192, "1f"),
        ...     frequency="1h", vocabularies={"sky": ("clear", "rain")}, types={"temp": "float32"},
        ... )
        >>> ts.cluster.Manifest.from_json(manifest.to_json()) == manifest
        True
    """

    version: int
    """Of the manifest's format."""
    hash: str
    """The name of the function that gives each entity its shard: `ts.cluster.shard_of`."""
    arguments: Mapping[str, str]
    """What the shards were made of: the source and the arguments of `ts.cluster.shard`, as texts."""
    shards: tuple[ShardRecord, ...]
    """The stash of each shard, by its number."""
    index: ShardRecord
    """A stash with a row for each entity of all shards, in their order, and its number of rows in its shard."""
    frequency: str | int | None
    """The time step that is most common over all shards; `None` without times, or where no entity has two rows."""
    vocabularies: Mapping[str, tuple[Any, ...]]
    """The vocabulary of each text column."""
    types: Mapping[str, str]
    """The type of each column: a torch dtype, and the length of a pack."""

    @property
    def rows(self) -> int:
        """The rows of all shards."""
        return sum(shard.rows for shard in self.shards)

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: str, where: str = "the manifest") -> "Manifest":
        """The manifest in a text; `where` names it in messages.

        Raises:
            SegmentError: it is damaged, or of another version.
        """
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                raise SegmentError(
                    f"A manifest has version {VERSION} of its format; {where} has {found['version']!r}. Make the "
                    "shards again, or read them with the release that made them."
                )
            shards = tuple(ShardRecord(**record) for record in found.pop("shards"))
            index = ShardRecord(**found.pop("index"))
            words = {name: tuple(values) for name, values in found.pop("vocabularies").items()}
            return Manifest(**found, shards=shards, index=index, vocabularies=words)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SegmentError(
                f"{where} is not a whole manifest ({type(error).__name__}: {error}). Make the shards again."
            ) from error
