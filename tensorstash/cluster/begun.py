"""What is there of shards that somebody has begun to make: a run goes on with what is right, or says what differs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tensorstash.cluster.manifest import NAME, Manifest, ShardRecord
from tensorstash.cluster.steps import Steps
from tensorstash.cluster.store import Store, checksum
from tensorstash.cluster.write import Done
from tensorstash.common.threads import each, threads
from tensorstash.errors import SegmentError

_PARTIAL = "partial.json"
_EACH = 64  # up to so many shards each is noted at once; a killed run loses at most this part of the others
_SHOWN = 100  # characters of an argument in a message


@dataclass
class Begun:
    """The shards that are there and right, while the others are made."""

    store: Store
    arguments: Mapping[str, str]
    done: dict[int, Done] = field(default_factory=dict)
    manifest: Manifest | None = None  # if all of them were there before
    noted: int = 0  # how many of them a run that goes on will find

    def add(self, number: int, done: Done) -> None:
        """Note a shard that has been written; of many shards, several together, because all are written again."""
        self.done[number] = done
        if (len(self.done) - self.noted) * _EACH < len(self.done):
            return
        shards = {str(number): asdict(one) for number, one in sorted(self.done.items())}
        self.store.write(_PARTIAL, json.dumps({"arguments": dict(self.arguments), "shards": shards}))
        self.noted = len(self.done)

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest: from now on the shards are there."""
        self.store.write(NAME, manifest.to_json())
        self.store.remove(_PARTIAL)


def begun(store: Store, arguments: Mapping[str, str], progress: bool | None) -> Begun:
    """What is there of the shards that these arguments make.

    Raises:
        SegmentError: there are shards that other arguments have made.
    """
    text = store.read(NAME)
    manifest = None if text is None else Manifest.from_json(text, store.join(NAME))
    if manifest is None:
        before, done = _partial(store)
    else:
        before = manifest.arguments
        done = {number: Done(record, None) for number, record in enumerate(manifest.shards)}
    if before is not None:
        _check_same(before, arguments, store)
    numbers = [*done]
    right = each(lambda number: is_right(store, done[number].record), numbers, threads(), "checksums", progress)
    found = Begun(store, arguments, {number: done[number] for number, ok in zip(numbers, right) if ok})
    if manifest is not None and all(right) and is_right(store, manifest.index):
        found.manifest = manifest
    elif manifest is not None:
        store.remove(NAME)
        found.done = {}  # the steps of time of the others are not known any more
    return found


def is_right(store: Store, record: ShardRecord) -> bool:
    """Whether a file is there with the bytes that its record says."""
    return store.size(record.file) == record.bytes and checksum(store.chunks(record.file)) == record.checksum


def _partial(store: Store) -> tuple[Mapping[str, str] | None, dict[int, Done]]:
    """The arguments and the finished shards of a run that was ended; nothing where there was none."""
    try:
        found = json.loads(store.read(_PARTIAL) or "{}")
        shards = found.get("shards", {})
        return found.get("arguments"), {int(number): _done(about) for number, about in shards.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SegmentError(
            f"{store.join(_PARTIAL)} cannot be read ({type(error).__name__}: {error}). Remove it: all shards are made "
            "again."
        ) from error


def _done(about: dict[str, Any]) -> Done:
    steps = None
    if about["steps"] is not None:
        counts = {int(step): count for step, count in about["steps"]["counts"].items()}  # the keys of JSON are texts
        steps = Steps(**{**about["steps"], "counts": counts})
    return Done(ShardRecord(**about["record"]), steps, tuple(about["warnings"]))


def _check_same(before: Mapping[str, str], arguments: Mapping[str, str], store: Store) -> None:
    for name in sorted({*before, *arguments}):
        then, now = before.get(name), arguments.get(name)
        if then != now:
            what = f"with {name}={_short(then)}, and now it is {_short(now)}"
            if name in ("source", "release"):
                what = f"from another {name}: {_short(then)}, and now it is {_short(now)}"
            raise SegmentError(
                f"Shards are gone on with only from the same source and arguments; those in {store.shown} were made "
                f"{what}. Give the same, or another directory as to=."
            )


def _short(text: str | None) -> str:
    text = str(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
