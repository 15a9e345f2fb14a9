"""Expressions over the rows of each entity, bound to the types of their inputs; they are computed block by block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tensorstash.columns.column import Column
from tensorstash.columns.expression import PerEntity
from tensorstash.columns.names import field_of
from tensorstash.sources.derive import Derived, check_unlike_columns
from tensorstash.sources.evaluate import bind_per_entity
from tensorstash.sources.scan import Scan


@dataclass(frozen=True, slots=True)
class Series:
    """What is computed over the rows of each entity, and the scan that its inputs come from, in the source's order.

    `compute` of each derived column takes the numbers of the entities, then the inputs: of whole entities, whose rows
    are in order.
    """

    scanned: Scan
    derived: Mapping[str, Derived]

    def makes(self, column: Column) -> bool:
        """Whether the rows of a column have to be in order before it can be computed."""
        return any(member in self.derived for member in column.members)

    def inputs(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """The columns of the scan that some columns are made from."""
        members = [member for column in columns for member in column.members]
        groups = [self.derived[member].inputs if member in self.derived else (member,) for member in members]
        return tuple(dict.fromkeys(name for group in groups for name in group))


def bound_series(
    formulas: Mapping[str, PerEntity], names: Mapping[str, str], scanned: Scan, grouped: bool
) -> tuple[Derived, ...]:
    """The expressions bound to the types of their inputs, which are columns of the scan.

    `names` has the name in the scan of each computed column that the load names. If the rows are not `grouped`, all of
    them are one entity.
    """
    derived = []
    for name, formula in formulas.items():
        given = formula.expression.columns
        inputs = tuple(one if one in scanned.schema.names else names.get(one, one) for one in given)
        fields = [field_of(scanned.schema, one, scanned.label) for one in inputs]
        check_unlike_columns(name, scanned)
        arrow, compute = bind_per_entity(formula.expression, name, fields, scanned.label, grouped)
        derived.append(Derived(pa.field(name, arrow), inputs, compute))
    return tuple(derived)


def with_fields(scanned: Scan, derived: Sequence[Derived]) -> Scan:
    """The scan with the fields of columns that it cannot read, because they are computed from rows in order."""
    return replace(scanned, schema=pa.schema([*scanned.schema, *(column.field for column in derived)]))
