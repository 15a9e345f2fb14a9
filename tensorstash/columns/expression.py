"""Formulas: computations of columns that the source does not have, such as polars expressions."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tensorstash.columns.polars_texts import serialized, short_text

if TYPE_CHECKING:
    import polars as pl


class Formula(Protocol):
    """Computes a column from columns of the source, each row by itself."""

    def inputs(self, time: str | None) -> tuple[str, ...]:
        """The columns that the formula reads; `time` is the name of the time column."""

    def text(self, time: str | None) -> str:
        """The formula as text for people; it need not be unique."""

    def key(self) -> str:
        """A text that is the same in every process, and different for different formulas."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """A polars expression."""

    expr: "pl.Expr"
    alias: str | None  # the name that the user gave it
    columns: tuple[str, ...]

    @property
    def is_column(self) -> bool:
        """Whether the expression is an unchanged column, perhaps under another name."""
        return bool(self.expr.meta.undo_aliases().meta.is_column())

    def inputs(self, time: str | None) -> tuple[str, ...]:  # noqa: ARG002  see Formula
        """The columns that it names."""
        return self.columns

    def text(self, time: str | None) -> str:  # noqa: ARG002  see Formula
        """As polars writes it, with fewer brackets."""
        return short_text(self.expr)

    def key(self) -> str:
        """A hash of its serialised form."""
        import polars as pl

        form = serialized(self.expr)
        if form is None:
            raise ValueError(
                "With share= or file= a column must be the same in all processes, which cannot verify that they hold "
                f"the same Python function; {self!r} calls one. Write it with the functions of polars, or load without "
                "them."
            )
        return blake2b(pl.__version__.encode() + b" " + form, digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return short_text(self.expr)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerEntity:
    """A polars expression over the rows of each entity, in their order; what `ts.per_entity` returns."""

    expression: Expression  # which may name no column

    def inputs(self, time: str | None) -> tuple[str, ...]:
        """The columns that the expression names: of the source, or computed ones of the same load."""
        return self.expression.inputs(time)

    def text(self, time: str | None) -> str:
        """The text of the expression, and what distinguishes it from an elementwise one."""
        return f"{self.expression.text(time)} per entity"

    def key(self) -> str:
        """That of the expression, and what distinguishes it from an elementwise one."""
        return f"per entity {self.expression.key()}"

    def __repr__(self) -> str:
        return f"ts.per_entity({self.expression!r})"


def is_expression(given: object) -> bool:
    """Whether an object is a polars expression, without importing polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(given, polars.Expr)


def _is_member(given: object) -> bool:
    return isinstance(given, (str, PerEntity)) or is_expression(given)


def source_of(given: Any) -> str | Formula | tuple[str | Formula, ...]:
    """The source of a column: a source column or an expression, or several of them as a pack."""
    if _is_member(given):
        return _member(given)
    if not isinstance(given, (list, tuple)) or not all(map(_is_member, given)):
        raise TypeError(
            f"A column is named by a text, a list of texts, a polars expression, or ts.column(...); got {given!r}."
        )
    return tuple(map(_member, given))


def alias_of(source: "str | Formula | tuple[str | Formula, ...]") -> str:
    """The default name of a column: the name of its source column, or the output name of its expression."""
    if isinstance(source, str):
        return source
    expression = source.expression if isinstance(source, PerEntity) else source
    if isinstance(expression, Expression) and expression.alias is not None:
        return expression.alias
    raise ValueError(
        f"An expression needs a name; got {source!r} in a list. Write {{'name': ...}}, or add .alias('name') to it."
    )


def _member(given: Any) -> str | Formula:
    """The name of the column, if a polars expression is only a column, else the expression to compute."""
    if isinstance(given, (str, PerEntity)):
        return given
    expression = expression_of(given)
    if not expression.columns:
        raise ValueError(
            f"An expression is of columns of the source; {short_text(given)} has none. Add constants to the batches, "
            "in a transform."
        )
    if expression.is_column and expression.alias in (None, expression.columns[0]):
        return expression.columns[0]
    return expression


def expression_of(expr: "pl.Expr") -> Expression:
    """A polars expression with its alias and columns; refused if it may have several outputs."""
    if expr.meta.has_multiple_outputs():
        raise ValueError(
            f"An expression names its columns one by one and gives one; {short_text(expr)} may stand for several. "
            "Write pl.col('name') for each, and one expression for each column of the stash."
        )
    columns = tuple(dict.fromkeys(name for name in expr.meta.root_names() if name))  # elements of lists have no name
    renamed = expr.meta.undo_aliases().meta.ne(expr)
    return Expression(expr, expr.meta.output_name(raise_if_undetermined=False) if renamed else None, columns)


Compute = Callable[[Sequence[pa.Array], str], pa.Array]  # input arrays and their place in the source -> the values
