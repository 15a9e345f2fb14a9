"""Formulas: columns computed from columns of the source, such as polars expressions."""

import base64
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Union

import pyarrow as pa

from tensorstash.common.checks import shown
from tensorstash.errors import SegmentError

if TYPE_CHECKING:
    import polars as pl

    from tensorstash.columns.time_fields import Moment

# input arrays, their place in the source, what names a row of them for messages -> the values
Compute = Callable[[Sequence[pa.Array], str, Callable[[int], str]], pa.Array]

_PICKLE = b"\x80\x05\x95"  # how a Python function begins in a serialized expression: protocol 5, then a frame
_FUNCTION = b"PLPY"  # what polars puts before it, and looks for before it unpickles it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expression:
    """A polars expression."""

    expr: "pl.Expr"
    alias: str | None  # given by the user
    columns: tuple[str, ...]

    @property
    def is_column(self) -> bool:
        """Whether the expression is an unchanged column, perhaps under another name."""
        return bool(self.expr.meta.undo_aliases().meta.is_column())

    def inputs(self, time: str | None) -> tuple[str, ...]:  # noqa: ARG002  as of `Moment`
        """The columns in the expression."""
        return self.columns

    def text(self, time: str | None) -> str:  # noqa: ARG002  as of `Moment`
        """The expression as polars prints it; others may print alike."""
        return printed(self.expr)

    def key(self) -> str:
        """A hash of the serialized expression."""
        form = kept(self)
        if not form:
            raise ValueError(
                "With share= or file= a column must be the same in all processes, which cannot compare Python "
                f"functions; {self!r} calls one. Write it with functions of polars, or leave share= and file= out."
            )
        return blake2b(form.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return printed(self.expr)


# computes a column from columns of the source, each row by itself
Formula = Union[Expression, "Moment"]


def printed(expr: "pl.Expr") -> str:
    """An expression for messages, in one line and without its alias."""
    return " ".join(str(expr.meta.undo_aliases()).split())


def serialized(expr: "pl.Expr") -> bytes | None:
    """The serialized form, equal in all processes; `None` if a Python function in it cannot be pickled."""
    try:
        return expr.meta.serialize()
    except Exception:  # pickling may raise any exception
        return None


def kept(expression: Expression) -> str:
    """The expression as text for the header of a stash; empty if it calls a Python function.

    Polars reads a serialized form only in the release that wrote it, so its version comes first.
    """
    import polars as pl

    form = serialized(expression.expr)
    if form is None or _PICKLE in form or _FUNCTION in form:
        return ""
    return f"{pl.__version__} {base64.b64encode(form).decode()}"


def restored(text: str, name: str) -> Expression:
    """The expression of a column from the text that `kept` made."""
    import polars as pl

    remedy = "Give columns=, as for the first load."
    if not text:
        raise ValueError(
            f"A saved stash keeps expressions of polars, and no Python functions; {name!r} calls one. {remedy}"
        )
    version, _, form = text.partition(" ")
    if version != pl.__version__:
        raise ValueError(
            f"An expression is read by the release of polars that wrote it; {name!r} in like= was written by polars "
            f"{version}, and this is {pl.__version__}. {remedy}"
        )
    try:
        raw = base64.b64decode(form, validate=True)
        if _PICKLE in raw or _FUNCTION in raw:  # it would run as it is read
            raise ValueError("it has a Python function")
        expr = pl.Expr.deserialize(io.BytesIO(raw))
        member = member_of(expr)
    except Exception as error:  # polars raises many types
        raise SegmentError(f"The expression of {name!r} in like= cannot be read: {error}. {remedy}") from error
    return member if isinstance(member, Expression) else Expression(expr, None, (str(member),))


def is_expression(value: object) -> bool:
    """Whether an object is a polars expression, without importing polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, polars.Expr)


def members_of(value: Any) -> tuple[tuple[str | Formula, ...], bool]:
    """The members of a column, each a source column or an expression, and whether they are packed into one."""
    if isinstance(value, (list, tuple)):
        place = f" in {shown(value)}"
        return tuple(member_of(item, place) for item in value), True
    return (member_of(value),), False


def member_of(value: Any, place: str = "") -> str | Expression:
    """A source column or an expression; `place` says where it stands, for messages."""
    if isinstance(value, str):
        return value
    if not is_expression(value):
        raise TypeError(
            f"A column must be a name, a list of names, a polars expression or ts.column(...), got {shown(value)}"
            f"{place}. Values belong in the source, and options of a pack in ts.column([...], ...)."
        )
    if value.meta.has_multiple_outputs():
        raise ValueError(
            f"An expression must name its input columns and have one output; {printed(value)} may stand for several "
            "columns. Write pl.col('name') for each, and one expression for each column of the stash."
        )
    columns = tuple(dict.fromkeys(name for name in value.meta.root_names() if name))  # elements of lists have no name
    if not columns:
        raise ValueError(
            f"An expression must name a column of the source; {printed(value)} names none. Add constants to the "
            "batches, in a transform."
        )
    renamed = value.meta.undo_aliases().meta.ne(value)
    alias = value.meta.output_name(raise_if_undetermined=False) if renamed else None
    expression = Expression(value, alias, columns)
    return columns[0] if expression.is_column and alias in (None, columns[0]) else expression


def alias_of(source: "str | Formula") -> str:
    """The default name of a column: the name of its source column, or the output name of its expression."""
    if isinstance(source, str):
        return source
    if isinstance(source, Expression) and source.alias is not None:
        return source.alias
    raise ValueError(
        f"An expression in a list needs a name, got {shown(source)}. Write {{'name': ...}}, or add .alias('name') to "
        "it."
    )
