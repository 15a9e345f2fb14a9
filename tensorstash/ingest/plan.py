"""A plan: what a load will hold and what it will cost, shown before it is loaded."""

import os
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any

from tensorstash.columns.column import Column
from tensorstash.common.checks import flag
from tensorstash.common.keywords import made_by, suggests_keywords
from tensorstash.common.public import members
from tensorstash.common.text import aligned
from tensorstash.common.warn import warn
from tensorstash.errors import TensorstashError
from tensorstash.ingest.build import obtain_stash, target_of
from tensorstash.ingest.memory import memory_told
from tensorstash.ingest.plan_text import CUTTABLE, HEAD, NUMBERS, cells, facts
from tensorstash.ingest.request import Request
from tensorstash.ingest.snapshot import Snapshot
from tensorstash.segments.limits import memory_limits
from tensorstash.stash.stash import Stash

if TYPE_CHECKING:
    from tensorstash.ingest.choice import Choice


@made_by("ts.plan(source)", Request)
class Plan:
    """What a load will hold, and what it will cost: `print` it, and `load` it. `ts.plan` makes one.

    A plan looks at its source once, when it is printed, one of its properties is read, or a load needs it. Then schemas
    and footers are read, and no values. The exceptions are one column of Arrow files, because only their batches have
    the number of rows; the first batch of lists, for their length; times in INT96, for their unit; CSV files and
    streams; the columns of a filter; and with `shard=` the entity columns. A stream that can be read only once is then
    loaded with `plan.load()`.

    When printed, a plan shows the type of each column in the source, the number of row groups that remain after a
    filter, and notes: differences between the files.

    Example:
        >>> import tensorstash as ts
        >>> plan = ts.plan({"day": [1, 2, 3], "sold": [5.0, 6.0, 7.0], "note": ["", "", "late"]}, ["sold"], time="day")
        >>> plan.rows, plan.skipped, [column.name for column in plan.columns]
        (3, ('note',), ['sold'])
        >>> plan.load()["sold"]
        tensor([5., 6., 7.], dtype=torch.float64)
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.snapshot: Snapshot | None = None  # `None` until the source was looked at

    @cached_property
    def choice(self) -> "Choice":
        """What was found in the source, and what a load makes of it. A wrong column is an error here."""
        with memory_told():
            snapshot = Snapshot(self.request, None)
            choice = snapshot.choice
        self.snapshot = snapshot
        return choice

    @property
    def source(self) -> str:
        """What the rows come from."""
        return self.choice.source.label

    @property
    def rows(self) -> int:
        """Rows of the stash."""
        return self.choice.rows

    @property
    def nbytes(self) -> int:
        """Bytes of the stash, without static columns: only a load counts the entities."""
        return self.choice.nbytes

    @cached_property
    def free(self) -> int:
        """Bytes of memory that were free when this was first looked at."""
        return min(memory_limits()).free

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with a value per row, described as `stash.about(name)` describes those of a stash."""
        return self.choice.columns

    @property
    def skipped(self) -> tuple[str, ...]:
        """Source columns that are never decoded."""
        return self.choice.skipped

    @property
    def notes(self) -> tuple[str, ...]:
        """Differences between files that were unified."""
        return self.choice.source.notes

    @suggests_keywords
    def load(
        self,
        *,
        share: str | bool | None = None,
        file: str | os.PathLike[str] | None = None,
        version: str | None = None,
        overwrite: bool = False,
        timeout: float | None = None,
        progress: bool | None = None,
    ) -> Stash:
        """Load what was planned, or attach it, with the errors and warnings of `ts.load`.

        Args:
            share: a label for a copy that all processes of this user attach; `True` makes one of the source's name. By
                default the memory is private to this process.
            file: a path for a stash on disk, which is mapped. By default the columns are loaded into memory.
            version: with `share=` or `file=`, a text that names the rows of a source that is not files. Without it such
                rows are read and hashed.
            overwrite: with `file=`, replace a file that another load or program made, which is else an error.
            timeout: with `share=` or `file=`, seconds to wait for another process that loads; `None` waits until it is
                done.
            progress: show a bar, in rows and MB/s; `None` shows it when the output is a terminal or a notebook.

        Raises:
            SourceError: a file has changed since the plan looked at it. Others: `ts.load`.

        Example:
            >>> import tensorstash as ts
            >>> plan = ts.plan({"y": [1.0, 2.0]}, ["y"])
            >>> plan.nbytes, plan.load()["y"].tolist()
            (4096, [1.0, 2.0])
        """
        progress = None if progress is None else flag(progress, "progress", "None shows it on a terminal.")
        target = target_of(self.request, share, file, version, overwrite, timeout)
        try:
            with memory_told():
                snapshot = Snapshot(self.request, progress) if self.snapshot is None else self.snapshot.again(progress)
                stash, notes = obtain_stash(snapshot, target, progress)
        except TensorstashError as error:
            # our frames, most of them of threads, say nothing that its message and its cause do not
            raise error.with_traceback(None)  # noqa: B904  the cause that it has stays
        for note in notes:
            warn(note)
        return stash

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What is said of each column, as `plan_text.facts` says it: those of the stash, the entity and the times."""
        choice, types, keys = self.choice, self.choice.types, self.choice.source.keys
        # a key of the paths is the same in all rows of a file
        roles = {column.name: "partition key" for column in choice.columns if keys.issuperset(column.members)}
        found = [
            facts(c.name, c.members, types, roles.get(c.name, ""), column=c, rows=choice.rows) for c in choice.columns
        ]
        found += [facts(c.name, c.members, types, "static", column=c, rows=choice.rows) for c in choice.static]
        if (table := choice.table) is not None:
            found += [facts(c.name, c.members, table.types, "static", column=c, rows=table.rows) for c in table.columns]
        found += [facts(column.name, ("like=",), {}, "static") for column in choice.carried]
        found += [facts(name, (name,), types, "entity") for name in (choice.entity.members if choice.entity else ())]
        names = (choice.time.members[0] if choice.time else "", str(self.request.known_name))
        found += [
            facts(name, key.members, types, role, column=key, rows=choice.rows)
            for key, name, role in zip(choice.times, names, ("time", "known"))
        ]
        return found

    __dir__ = members

    def __repr__(self) -> str:
        choice, request, described = self.choice, self.request, self.facts
        least, most = choice.shown_bytes, sum(told["bytes"] or 0 for told in described)
        table = [*map(cells, described)]
        size = f"{least / 1e6:,.1f}" + (f" to {most / 1e6:,.1f}" if most > least else "")
        lines = [
            f"{self.source}: {self.rows:,} rows, {size} MB of {self.free / 1e6:,.0f} MB free",
            indent(aligned([(name, *others) for name, _, *others in (HEAD, *table)], NUMBERS, CUTTABLE), "  "),
        ]
        if others := [f"{name} = {source}" for name, source, *_ in table if source]:
            lines.append(f"from: {'; '.join(others)}")
        if choice.static or choice.joined:
            lines.append("static: one value per entity; only a load counts the entities")
        kept, pieces = len(choice.source.units), choice.source.pieces
        if kept != pieces:
            by = [name for name in ("filter", "shard") if getattr(request, name) is not None]
            by += ["unknown='drop'"] if choice.strangers else []
            lines.append(f"{' and '.join(by)}: keeps rows of {kept:,} of {pieces:,} row groups")
        if self.skipped:
            lines.append(f"skipped: {', '.join(self.skipped)}")
        notes = (*self.notes, *([choice.strangers] if choice.strangers else []))
        return "\n".join([*lines, *(f"note: {note}" for note in notes)])
