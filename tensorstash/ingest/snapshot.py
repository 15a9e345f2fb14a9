"""The source of a request at one time: which files, what is in them, and whether they have changed since."""

from functools import cached_property
from typing import TYPE_CHECKING

from tensorstash.errors import SourceError
from tensorstash.ingest.request import Request
from tensorstash.ingest.segment_key import contents
from tensorstash.sources.file import File, stamps
from tensorstash.sources.locate import find, with_paths

if TYPE_CHECKING:
    from tensorstash.ingest.choice import Choice


class Snapshot:
    """The files of a source with their stamps, and its choice, which the first call that needs it makes."""

    def __init__(self, request: Request, progress: bool | None) -> None:
        self.request, self._progress = request, progress
        self._files = self._find()
        self.stamps = stamps(self._files or [])

    def _find(self) -> list[File] | None:
        files = find(self.request.source, self.request.filesystem)
        names = self.request.named if files is None else self.request.sought
        return with_paths(files, names, self.request.wanted.mentions, self.request.source)

    @cached_property
    def table(self) -> "Choice | None":
        """What is in the table of static columns: its rows are named and loaded by one survey."""
        if self.request.table is None:
            return None
        from tensorstash.ingest.survey import choose

        return choose(self.request.table, None, None, progress=False)

    @cached_property
    def choice(self) -> "Choice":
        """What is in the source, and what a load of it will hold."""
        from tensorstash.ingest.survey import choose  # a process that attaches does without it

        return choose(self.request, self._files, self.table, self._progress)

    def rows(self, version: str | None) -> object:
        """What names the rows in the key of a segment: stamps of files, a version, or a hash of what is in memory."""
        if version is not None:
            return {"stamps": self.stamps, "version": version}
        rows = contents(self.choice.source, self.choice.read) if self._files is None else self.stamps
        return rows if self.table is None else [rows, contents(self.table.source, self.table.read)]

    def again(self, progress: bool | None) -> "Snapshot":
        """The same source at a later time, for a load of what was surveyed; other files are an error.

        Streams were copied when they were read. Arrays and frames may have changed in place, so they are surveyed
        again, or a filter would keep the rows of the old values.
        """
        self.check_unchanged("between a plan and its load", "Make the plan again.")
        if self._files is not None or self.choice.source.copied:
            return self
        return Snapshot(self.request, progress)

    def check_unchanged(self, when: str = "while it is loaded", remedy: str = "Load it again.") -> None:
        """Refuse files that have changed since they were found: some values would be old and some new."""
        try:
            now = stamps(self._find() or [])
        except OSError:
            now = []
        if changed := set(self.stamps).symmetric_difference(now):
            name = min(str(stamp[0]) for stamp in changed)
            raise SourceError(f"A source must not change {when}; {name} did. {remedy}")
