"""Tables of Delta, Hudi, Iceberg and Lance: directories with a log that says which rows of their files count."""

import re
from collections.abc import Callable, Collection, Iterable

from tensorstash.errors import SourceError

LOGS = ("_delta_log", ".hoodie", "_versions", "metadata")  # the directories that hold the logs
_METADATA = re.compile(r"\D*(\d*).*\.metadata\.json")  # of an Iceberg table, with its version

# a directory -> the names in it; `None` if there is no such directory
NamesIn = Callable[[str], Collection[str] | None]


def refuse_tables(directories: Iterable[str], names_in: NamesIn, shown: Callable[[str], str]) -> None:
    """Raise if one of the directories is such a table or is in one; its files hold deleted and replaced rows too.

    `shown` gives the path of a directory as users would write it.
    """
    for root in sorted(with_parents(directories), key=len):
        found = _format_and_line(root, names_in, shown(root))
        if found is not None:
            name, line = found
            raise SourceError(
                f"A directory or glob is a source if all rows of its files count; {shown(root)!r} is a table of "
                f"{name}, and its log says which rows are in it: {line}."
            )


def with_parents(directories: Iterable[str]) -> set[str]:
    """The directories and all directories that they are in."""
    found: set[str] = set()
    for directory in directories:
        path = directory.rstrip("/")
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def _format_and_line(root: str, names_in: NamesIn, path: str) -> tuple[str, str] | None:
    """The format of the table in a directory, and the line that reads it; `None` if there is no table."""
    delta, hudi, lance, iceberg = (names_in(f"{root}/{log}") for log in LOGS)
    if delta is not None:
        return "Delta", f"ts.load(pl.scan_delta({path!r}))"
    if hudi is not None:
        table = f"hudi.HudiTableBuilder.from_base_uri({path!r}).build()"
        return "Hudi", f"ts.load(pa.Table.from_batches({table}.read()))"
    if lance is not None and root.endswith(".lance"):
        return "Lance", f"ts.load(lance.dataset({path!r}))"
    versions = [match for match in map(_METADATA.fullmatch, iceberg or ()) if match]
    if versions:
        newest = max(versions, key=lambda match: (int(match[1] or 0), match[0]))[0]
        return "Iceberg", f"ts.load(pl.scan_iceberg({f'{path}/metadata/{newest}'!r}))"
    return None
