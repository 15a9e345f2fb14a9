"""From a request to a stash: a private one, or one of which a machine or a directory keeps a single copy."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tensorstash.common.checks import amount, flag, path_of
from tensorstash.ingest.request import Request
from tensorstash.ingest.segment_key import argument_keys, check_share, check_version, key_of, share_of
from tensorstash.ingest.snapshot import Snapshot
from tensorstash.segments.directory import Name
from tensorstash.segments.limits import memory_limits
from tensorstash.segments.on_disk import FileTarget, obtain_file
from tensorstash.segments.publish import Build, UnpublishedFile, obtain
from tensorstash.segments.segment import Segment
from tensorstash.sources.locate import is_reordered
from tensorstash.stash.stash import Stash

_REORDERED = (
    "Files come in natural order of their paths; the list has them in another order, and without time= nothing else "
    "orders the rows. Name the time column, sort the list, or load a LazyFrame in your order: "
    "pl.concat([pl.scan_parquet(path) for path in paths])."
)

# Functions import the engines that they need: a process that only attaches a stash starts most of a second earlier.


@dataclass(frozen=True, slots=True)
class Target:
    """Where the one copy of a stash is kept: under a label in shared memory, or in a file."""

    label: str | None
    path: str | None
    version: str | None  # names the rows of the source, which then need not be read
    overwrite: bool
    timeout: float | None

    def get(self, key: str, build: Build) -> Segment:
        """The segment with this key, attached or built."""
        if self.path is not None:
            return obtain_file(FileTarget(self.path, key, self.overwrite), build, self.timeout)
        return obtain(Name(str(self.label), key[:16]), build, self.timeout)


def target_of(  # noqa: PLR0917  the arguments of `ts.load`
    request: Request, share: object, file: Any, version: Any, overwrite: bool, timeout: Any
) -> Target | None:
    """Check that these arguments agree; `None` for a private stash."""
    share, overwrite = share_of(share), flag(overwrite, "overwrite")
    if file is None and overwrite:
        raise ValueError("overwrite= replaces the file of file=, so it needs file=. Leave it out.")
    if file is not None and share is not None:
        raise ValueError("A stash is shared memory or a file; got share= and file=. Leave one out.")
    if file is None and share is None and timeout is not None:
        raise ValueError("timeout= needs share= or file=: it limits the wait for another process. Leave it out.")
    amount(timeout, "seconds", "timeout")
    path = None if file is None else os.path.realpath(path_of(file, "file"))
    label = None if share is None else check_share(share, request.source)
    check_version(version, request, kept=path is not None or label is not None)
    return None if path is None and label is None else Target(label, path, version, overwrite, timeout)


def obtain_stash(snapshot: Snapshot, target: Target | None, progress: bool | None) -> tuple[Stash, list[str]]:
    """The stash of a request, loaded or attached, and the texts of the warnings."""
    stash, noted = _load_private(snapshot, progress) if target is None else _load_once(snapshot, target, progress)
    is_unordered = snapshot.request.time is None and is_reordered(snapshot.request.source)
    return stash, [*([_REORDERED] if is_unordered else []), *_warnings_of(stash), *noted]


def _load_private(snapshot: Snapshot, progress: bool | None) -> tuple[Stash, tuple[str, ...]]:
    from tensorstash.ingest.write import write_load

    draft, noted = write_load(snapshot.choice, None, memory_limits(), progress=progress)
    snapshot.check_unchanged()
    stash = Stash(Segment(os.dup(draft.fd)))
    stash.segment.populate()
    return stash, noted


def _load_once(snapshot: Snapshot, target: Target, progress: bool | None) -> tuple[Stash, tuple[str, ...]]:
    """Attach or build the stash; warnings come only from a build."""
    if target.path is not None and any(stamp[0] == target.path for stamp in snapshot.stamps):
        raise ValueError(
            f"file= is written with the stash; {target.path!r} is a file of the source. Choose another path."
        )
    key, noted = key_of(snapshot.rows(target.version), argument_keys(snapshot.request)), list[str]()

    def build(draft: UnpublishedFile) -> None:
        from tensorstash.ingest.write import write_load

        limits, on_disk = draft.limits(), draft.directory.chosen
        _, texts = write_load(snapshot.choice, draft.fd, limits, on_disk=on_disk, key=key, progress=progress)
        noted.extend(texts)
        snapshot.check_unchanged()

    return Stash(target.get(key, build)), tuple(noted)


def _warnings_of(stash: Stash) -> Iterator[str]:
    columns = [(stash.about(name), len(tensor)) for name, tensor in (*stash.items(), *stash.static.items())]
    if names := [repr(info.name) for info, rows in columns if info.unknown and info.unknown + info.missing == rows]:
        yield (
            f"No value of {' and '.join(names)} is in the given vocabulary: all have the code of unknown values. "
            "Compare the spelling with the source."
        )
