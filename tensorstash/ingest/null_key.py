"""The refusal of a row without an entity or a time."""

from tensorstash.errors import DataError
from tensorstash.sources.scan import Scan


def null_key(name: str, scanned: Scan, row: int) -> DataError:
    """The error for a row without an entity or a time."""
    return DataError(
        f"Every row needs an entity and a time; column {name!r} is null in source row "
        f"{scanned.name_row(row)} (the first such). Drop those rows, or name them, before loading."
    )
