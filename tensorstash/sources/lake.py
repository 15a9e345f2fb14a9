"""Tables of Delta, Hudi, Iceberg and Lance: directories with a log that says which rows of their files count."""

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePosixPath

from tensorstash.errors import SourceError

# the directory that holds the log, the format, and the line that reads a table
_FORMATS = (
    ("_delta_log", "Delta", "ts.load(pl.scan_delta({!r}))"),
    (".hoodie", "Hudi", "ts.load(pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri({!r}).build().read()))"),
    ("_versions", "Lance", "ts.load(lance.dataset({!r}))"),
    ("metadata", "Iceberg", "ts.load(pl.scan_iceberg({!r}))"),
)
LOGS = tuple(log for log, *_ in _FORMATS)
_METADATA = re.compile(r"\D*(\d*).*\.metadata\.json")  # of an Iceberg table, with its version

# a directory -> the names in it; `None` if there is no such directory
NamesIn = Callable[[str], Collection[str] | None]


def refuse_tables(directories: Iterable[str], names_in: NamesIn, shown: Callable[[str], str]) -> None:
    """Raise if one of the directories is such a table or is in one; its files hold deleted and replaced rows too.

    `shown` gives the path of a directory as users would write it.
    """
    for root in sorted(with_parents(directories), key=len):
        for log, name, line in _FORMATS:
            within = _read_within(name, root, names_in(f"{root}/{log}"))
            if within is not None:
                raise SourceError(
                    f"A directory or glob is a source if all rows of its files count; {shown(root)!r} is a table of "
                    f"{name}, and its log says which rows are in it: {line.format(shown(root) + within)}."
                )


def with_parents(directories: Iterable[str]) -> set[str]:
    """The directories and all directories that they are in."""
    paths = map(PurePosixPath, directories)
    return {str(path) for lowest in paths for path in (lowest, *lowest.parents)} - {"/", "."}


def _read_within(name: str, root: str, names: Collection[str] | None) -> str | None:
    """What the reader of a format takes within a directory, by the names in its log; `None` if this is no table."""
    if name == "Iceberg":
        versions = [match for match in map(_METADATA.fullmatch, names or ()) if match]
        newest = max(versions, key=lambda match: (int(match[1] or 0), match[0]), default=None)
        return None if newest is None else f"/metadata/{newest[0]}"
    is_table = names is not None and (name != "Lance" or root.endswith(".lance"))
    return "" if is_table else None
