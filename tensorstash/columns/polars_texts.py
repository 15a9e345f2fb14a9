"""All parsing of text and bytes that polars writes, for questions that polars has no function for.

Each function names the text that it reads, and the first release known to write it so. The tests run the installed
polars on examples with a known answer: they fail on the release that changes the text.
"""

import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_PICKLE_HEADER = b"\x80\x05\x95"  # protocol 5, then a frame
_RANDOM_CALL = re.compile(r"\.(sample|sample_n|sample_fraction|shuffle)\(")


def short_text(expr: "pl.Expr") -> str:
    """An expression in one line, without the brackets and types that columns and constants do not need.

    Reads `str(expr)`, from polars 1.32 on: `[(col("a")) + (dyn int: 1)]`.
    """
    text = " ".join(str(expr).split())
    text = re.sub(r'\.alias\("[^"]*"\)$', "", text)
    text = re.sub(r'col\("([^"]*)"\)', r"\1", text)
    text = re.sub(r"dyn (?:int|float): ", "", text)
    text = re.sub(r"(?<!\w)\(([\w.]+)\)", r"\1", text)
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text.removeprefix(".")


def serialized(expr: "pl.Expr") -> bytes | None:
    """The serialized form of an expression, which is the same in every process; `None` if it has a Python function.

    Reads `expr.meta.serialize()`, from polars 1.32 on: it holds a Python function as a pickle of protocol 5.
    """
    try:
        form = expr.meta.serialize()
    except Exception:  # pickling a Python function may raise any exception
        return None
    return None if _PICKLE_HEADER in form else form


def is_random(expr: "pl.Expr") -> bool:
    """Whether an expression draws random numbers for the elements of lists.

    Reads `str(expr)`, from polars 1.32 on, for calls such as `.sample_n(`. `rank("random")` is not in that text:
    its method is found in the MessagePack of `expr.meta.serialize()`.
    """
    if _RANDOM_CALL.search(str(expr)):
        return True
    with suppress(Exception):  # pickling a Python function may raise any exception
        return b"method\xa6Random" in expr.meta.serialize()
    return False


def is_elementwise(expr: "pl.Expr", empty: "pl.DataFrame") -> bool:
    """Whether each value depends only on its own row; `empty` is a frame with the columns of the expression.

    Reads the optimized plan of `.explain()`, from polars 1.32 on: polars moves a slice below `WITH_COLUMNS`, so that
    it is taken first, only if all parts of the expression are elementwise. `meta.is_row_separable` judges the outermost
    part only.
    """
    plan = empty.lazy().with_columns(expr.alias("")).slice(1, 1).explain()
    steps = (line.strip() for line in plan.splitlines())
    return next(step for step in steps if step and not step.startswith("simple")).startswith("WITH_COLUMNS")


def calls_python(text: str) -> bool:
    """Whether the `short_text` of an expression calls `map_batches`: `.python_udf(`, from polars 1.32 on."""
    return ".python_udf(" in text


def parses_times(text: str) -> bool:
    """Whether the `short_text` of an expression reads times out of text: `.str.strptime(`, from polars 1.32 on."""
    return ".str.strptime(" in text


def is_wrong_length(error: BaseException) -> bool:
    """Whether a column has another number of values than its frame has rows.

    Reads `str(error)`, from polars 2.0 on, for a single value that is no scalar: `the DataFrame height of 5`.
    """
    import polars as pl

    is_invalid = isinstance(error, pl.exceptions.InvalidOperationError)
    return isinstance(error, pl.exceptions.ShapeError) or (is_invalid and "the DataFrame height of" in str(error))


def first_line(error: BaseException) -> str:
    """The message of an error of polars without the query plan that follows it.

    Reads `str(error)`, from polars 1.32 on: the first line holds the message, in quotes if Python code raised it.
    """
    return str(error).strip("'\" ").replace("\\n", "\n").partition("\n")[0].rstrip(".")
