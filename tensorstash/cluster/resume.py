"""A list of the finished shards in a file, from which another call resumes a killed run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tensorstash.cluster.manifest import INDEX, NAME, Manifest, ShardRecord, from_json, key_of, seal, to_json, unseal
from tensorstash.cluster.shard_file import ShardReport, read_shard
from tensorstash.cluster.store import Store
from tensorstash.common.text import cut
from tensorstash.common.threads import map_in_threads, threads
from tensorstash.common.warn import warn
from tensorstash.errors import SegmentError

_PARTIAL = "partial.json"
_LONGEST = 100  # the most characters of an argument in a message
_EACH = 64  # with more shards, several are noted at once, because a note lists all of them


@dataclass
class ShardingRun:
    """The shards that are finished, while the others are made."""

    store: Store
    arguments: Mapping[str, str]
    reports: dict[int, ShardReport]

    def add(self, number: int, report: ShardReport) -> None:
        """Note a finished shard."""
        self.reports[number] = report
        if len(self.reports) % (1 + len(self.reports) // _EACH) == 0:
            self.note()

    def note(self) -> None:
        """Write down which shards are finished."""
        shards = {str(number): asdict(report.record) for number, report in sorted(self.reports.items())}
        self.store.write(_PARTIAL, seal({"arguments": dict(self.arguments), "shards": shards}))

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, which completes the shards; raises `SegmentError` if another call made shards here."""
        if _read_partial(self.store)[0] != self.arguments or self.store.size(NAME) is not None:
            raise SegmentError(
                f"Only one call at a time may make shards in a place; another has written {self.store.join(NAME)}. "
                "Call it again, or give another to=."
            )
        self.store.write(NAME, to_json(manifest))
        self.store.remove(_PARTIAL)


def resume(store: Store, arguments: Mapping[str, str], progress: bool | None) -> ShardingRun | Manifest:
    """The run that makes the shards, or their manifest if none is missing.

    A `SegmentError` if shards of another source or of other arguments are there.
    """
    manifest = _read_manifest(store)
    before, records = _read_partial(store)
    if manifest is not None:
        before, records = manifest.arguments, dict(enumerate(manifest.shards))
    for name in sorted({*before, *arguments}) if records else ():
        then, now = (cut(str(texts.get(name)), _LONGEST) for texts in (before, arguments))
        if before.get(name) != arguments.get(name):
            what = "from another source: " if name == "source" else f"with {name}="
            raise SegmentError(
                f"Sharding resumes only with the same source and arguments; the shards of {store.join(NAME)} were made "
                f"{what}{then}, and now it is {now}. Give the same, or another directory as to=."
            )
    checked = map_in_threads(
        lambda k: read_shard(store, records[k], key_of(arguments, k)), [*records], threads(), "checksums", progress
    )
    reports = {number: report for number, report in zip(records, checked) if report is not None}
    is_whole = manifest is not None and len(reports) == len(records)
    if manifest is not None and is_whole and read_shard(store, manifest.index, key_of(arguments, INDEX)):
        return manifest
    run = ShardingRun(store, arguments, reports)
    run.note()
    store.remove(NAME)
    return run


def _read_manifest(store: Store) -> Manifest | None:
    text = store.read(NAME)
    try:
        return None if text is None else from_json(text, store.join(NAME))
    except SegmentError as error:
        warn(f"{error} All of them are made again now.")
        return None


def _read_partial(store: Store) -> tuple[Mapping[str, str], dict[int, ShardRecord]]:
    """The arguments and the finished shards of a run; both are empty if there is none, or its file is damaged."""
    try:
        fields = unseal(store.read(_PARTIAL) or "")
    except ValueError:
        return {}, {}
    return fields["arguments"], {int(number): ShardRecord(**record) for number, record in fields["shards"].items()}
