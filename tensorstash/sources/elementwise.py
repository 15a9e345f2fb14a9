"""The rules for expressions: each value is the same every time, and depends only on its own row."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from tensorstash.columns.polars_texts import calls_python, is_elementwise, is_random, parses_times, short_text
from tensorstash.errors import SchemaError

if TYPE_CHECKING:
    import polars as pl

_REMEDY = "Compute it before loading, or per batch in a transform."
_OVER_ROWS = (
    "To compute it over the rows of each entity, write ts.per_entity(...); else compute it before loading, or per "
    "batch in a transform."
)


def check_elementwise(expr: "pl.Expr", empty: "pl.DataFrame") -> None:
    """Refuse values that depend on other rows, on chance, or on what the process has read before."""
    culprit = _beyond_rows(expr, empty)
    if culprit is not None:
        shown = short_text(culprit)
        raise SchemaError(
            f"Expressions are computed piece by piece, so that a value must come from its own row alone; {shown} also "
            f"looks at others. {_remedy(shown)}"
        )
    check_repeatable(expr, empty)


def check_repeatable(expr: "pl.Expr", empty: "pl.DataFrame") -> None:
    """Refuse values that depend on chance, or on what the process has read before."""
    import polars as pl

    if is_random(expr):
        raise SchemaError(f"An expression has the same values every time; {short_text(expr)} is random. {_REMEDY}")
    whole = expr.meta.undo_aliases()
    for part in _parts(expr, empty):
        with suppress(pl.exceptions.PolarsError):  # pl.element() has a type only inside its list
            types = empty.lazy().select(part).collect_schema().dtypes()
            if types == [pl.Categorical] and part.meta.undo_aliases().meta.ne(whole):
                raise SchemaError(
                    f"The codes of a pl.Categorical depend on what was read before; {short_text(part)} is one. Leave "
                    "the text as it is, which becomes codes in the stash, or cast it to pl.Enum([...])."
                )


def _remedy(shown: str) -> str:
    if calls_python(shown):
        return "Use map_elements, or map_batches(..., is_elementwise=True) if it is elementwise."
    if parses_times(shown):
        return "Give it the format, which is otherwise guessed from other rows."
    return _OVER_ROWS


def _beyond_rows(expr: "pl.Expr", empty: "pl.DataFrame") -> "pl.Expr | None":
    """The smallest part of an expression that needs more than its own row."""
    import polars as pl

    if is_elementwise(expr, empty):
        return None
    for part in expr.meta.pop(schema=empty.schema):
        if part.meta.root_names():
            with suppress(pl.exceptions.PolarsError):  # pl.element() has a type only inside its list
                if (culprit := _beyond_rows(part, empty)) is not None:
                    return culprit
    return expr


def _parts(expr: "pl.Expr", empty: "pl.DataFrame") -> "Iterator[pl.Expr]":
    yield expr
    for part in expr.meta.pop(schema=empty.schema):
        yield from _parts(part, empty)
