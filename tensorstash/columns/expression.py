"""Formulas: computations of columns that the source does not have, such as polars expressions."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import polars as pl

# input arrays, their place in the source, their first row counted among the loaded rows -> the values
Compute = Callable[[Sequence[pa.Array], str, int], pa.Array]

_PICKLE = b"\x80\x05\x95"  # how a Python function begins in a serialized expression: protocol 5, then a frame


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
        """The expression as polars prints it."""
        return printed(self.expr)

    def key(self) -> str:
        """A hash of its serialized form."""
        import polars as pl

        form = serialized(self.expr)
        if form is None or _PICKLE in form:
            raise ValueError(
                "With share= or file= a column must be the same in all processes, which cannot verify that they hold "
                f"the same Python function; {self!r} calls one. Write it with the functions of polars, or load without "
                "them."
            )
        return blake2b(pl.__version__.encode() + b" " + form, digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return printed(self.expr)


def printed(expr: "pl.Expr") -> str:
    """An expression for messages, in one line and without its alias."""
    return " ".join(str(expr.meta.undo_aliases()).split())


def serialized(expr: "pl.Expr") -> bytes | None:
    """The serialized form, which is the same in every process; `None` if a Python function in it cannot be pickled."""
    try:
        return expr.meta.serialize()
    except Exception:  # pickling may raise any exception
        return None


def is_expression(value: object) -> bool:
    """Whether an object is a polars expression, without importing polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, polars.Expr)


def source_of(value: Any) -> str | Formula | tuple[str | Formula, ...]:
    """The source of a column: a source column or an expression, or several of them as a pack."""
    if _is_member(value):
        return _member(value)
    if not isinstance(value, (list, tuple)) or not all(map(_is_member, value)):
        raise TypeError(
            f"A column is named by a text, a list of texts, a polars expression, or ts.column(...); got {value!r}."
        )
    return tuple(map(_member, value))


def alias_of(source: "str | Formula | tuple[str | Formula, ...]") -> str:
    """The default name of a column: the name of its source column, or the output name of its expression."""
    if isinstance(source, str):
        return source
    if isinstance(source, Expression) and source.alias is not None:
        return source.alias
    raise ValueError(
        f"An expression needs a name; got {source!r} in a list. Write {{'name': ...}}, or add .alias('name') to it."
    )


def _is_member(value: object) -> bool:
    return isinstance(value, str) or is_expression(value)


def _member(value: Any) -> str | Expression:
    if isinstance(value, str):
        return value
    expression = _expression(value)
    if not expression.columns:
        raise ValueError(
            f"An expression names a column of the source; {expression!r} names none. Add constants to the batches, in "
            "a transform."
        )
    if expression.is_column and expression.alias in (None, expression.columns[0]):
        return expression.columns[0]
    return expression


def _expression(expr: "pl.Expr") -> Expression:
    if expr.meta.has_multiple_outputs():
        raise ValueError(
            f"An expression names its columns one by one and gives one; {printed(expr)} may stand for several. "
            "Write pl.col('name') for each, and one expression for each column of the stash."
        )
    columns = tuple(dict.fromkeys(name for name in expr.meta.root_names() if name))  # elements of lists have no name
    renamed = expr.meta.undo_aliases().meta.ne(expr)
    return Expression(expr, expr.meta.output_name(raise_if_undetermined=False) if renamed else None, columns)
