"""`ts.per_entity`: a polars expression over the ordered rows of each entity, such as a lag or a rolling mean."""

from typing import TYPE_CHECKING

from tensorstash.columns.expression import PerEntity, expression_of, is_expression

if TYPE_CHECKING:
    import polars as pl


def per_entity(expr: "pl.Expr") -> PerEntity:
    """A column that polars computes over the rows of each entity, ordered by time: lags, rolling means, filled nulls.

    The values are those of `frame.with_columns(expr.over(entity))`, where the frame holds all rows of the source,
    ordered by time, without those that `filter=` excludes. Without `entity=` all rows are one entity, and the values
    are those of `frame.with_columns(expr)`.

    **Gaps.** Most expressions count rows, not time: `pl.col("y").shift(24)` is the value 24 rows earlier, which is not
    24 hours earlier where hours are missing. Expressions that are given the time column count time:
    `pl.col("y").rolling_mean_by("time", window_size="7d")`, `pl.col("y").interpolate_by("time")`. `gaps=` of
    `ts.Windows` says what windows do where times are missing.

    **Looking ahead.** These expressions take values from later rows, which a model must not see in its history:
    `backward_fill`, `interpolate`, `shift` and `diff` with a negative number, `rolling_*` with `center=True`,
    `reverse`, `rank`, `sort`, and whatever is taken over all rows, such as `mean()`, `max()` and `pl.len()`. These look
    back only: `forward_fill`, `shift`, `diff`, `pct_change`, `rolling_*`, `ewm_mean` and `cum_*`.

    **Memory.** Values are computed in blocks of whole entities, of about 262,144 rows each, or 1/512 of all rows where
    these are more. A block takes about four times the bytes of all its inputs and of the values of one column, and each
    thread has one block. An entity is never divided, so that a giant one takes four times the bytes of its own. If the
    rows of the source are not grouped by entity and ordered by time, the inputs are sorted first, in an unnamed file in
    the temporary directory (TMPDIR); `ts.plan` shows its size.

    Args:
        expr: a polars expression with a value for each row of an entity, or with one for all of them, which is
            repeated. It may name any column of the source, loaded or not, the entity and the time among them; and any
            column of the same call that an expression or `ts.calendar` computes from its own row. A missing value of
            the source is a null in polars, and a NaN is a NaN: `forward_fill` fills nulls only.

    Returns:
        What may stand in `columns=` and `static=` of `ts.load` wherever a polars expression may: in a list, in a pack,
        in `ts.column`, `ts.is_valid` and `ts.hashed`. The vocabulary of a text is in the order of the stash's rows.

    Raises:
        TypeError: not an expression. ValueError: an expression with several outputs; from `ts.load`, one with a Python
        function and `share=` or `file=`. From `ts.load`: SchemaError: an expression that does not suit its columns, or
        is random. DataError: one that fails in an entity, or gives neither one value nor one for each row. SourceError:
        too little room for the temporary file. NoMemoryError: an entity is too large for free memory.

    Example:
        >>> import polars as pl, tensorstash as ts
        >>> data = {"e": ["A", "B", "A", "A"], "t": [3, 1, 1, 2], "y": [5.0, 7.0, 1.0, None]}
        >>> y = pl.col("y")
        >>> columns = {"lag": ts.per_entity(y.shift(1)), "filled": ts.per_entity(y.forward_fill(limit=1))}
        >>> stash = ts.load(data, columns, entity="e", time="t")
        >>> stash.entities, stash["lag"].tolist(), stash["filled"].tolist()
        (['A', 'B'], [nan, 1.0, nan, nan], [1.0, 1.0, 5.0, 7.0])
    """
    if not is_expression(expr):
        raise TypeError(
            f"ts.per_entity takes a polars expression; got {expr!r}. Write ts.per_entity(pl.col('y').diff())."
        )
    return PerEntity(expression_of(expr))
