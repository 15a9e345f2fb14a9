"""`ts.each`: the columns of packs as rows of their own, for models of any number of variates."""

from collections import Counter
from dataclasses import dataclass

from tensorstash.common.checks import at_least, shown


@dataclass(frozen=True, slots=True, repr=False)
class Variates:
    """What `ts.each` returns: packs whose columns are rows of their own."""

    columns: tuple[str, ...]  # the packs, or single columns
    most: int | None  # columns of each pack in a batch

    def __repr__(self) -> str:
        most = [] if self.most is None else [f"max_variates={self.most}"]
        return f"each({', '.join([*map(repr, self.columns), *most])})"

    def __str__(self) -> str:
        most = [] if self.most is None else [f"max_variates={self.most}"]
        return f"each({', '.join([*self.columns, *most])})"


def each(*columns: str, max_variates: int | None = None) -> Variates:
    """Every column of packs as a row of its own, in place of the column of a span.

    A window of a pack of 7 columns then has 7 rows. A batch holds the span as `(rows, time)`: the windows one after the
    other, the columns of each in the order of `columns` and of their packs. Nothing is padded, so the components of a
    `ts.Mix` may have packs of different widths. The batch also holds, each `(rows,)` int64:

    - `<span>.window`: the place of the row's window in the batch, so that `batch["valid"][batch["past.window"]]` is of
      the rows, and attention may stay within a window (the group of Chronos-2);
    - `<span>.variate`: its column, counted from 0 within its pack;
    - `<span>.pack`: which of `columns` it is from.

    `<span>.observed` is `(rows, time)`. Spans of the same `each` share these tensors. Everything else in the batch has
    one value per window. Sizes of batches, orders, ranks and resume count windows as ever.

    Args:
        columns: names of packs or of single columns, all of one dtype and with one value for empty slots.
        max_variates: at most so many columns of each pack, drawn anew for each window of each epoch, which bounds the
            rows of a batch. The draw is a hash of the seed, the epoch, the position in it and the name of the pack, so
            it depends neither on the ranks nor on the batch size, a resumed run draws as the whole run would have, and
            all spans of a pack have the same columns. Such windows need a `ts.Loader`. `None`: all columns.

    Returns:
        What stands in place of the column of a span: `(ts.each("x"), -512, 0)`.

    Raises:
        TypeError: a name is not a text. ValueError: no name, one twice, or `max_variates` is no integer of at least 1.
            SchemaError, from `ts.Windows`: the columns differ in their dtype, or hold more than a number each.

    Example:
        >>> import tensorstash as ts
        >>> data = {"a": [1, 2, 3], "b": [10, 20, 30], "c": [0, 1, 0]}
        >>> stash = ts.load(data, columns={"x": ["a", "b"], "c": "c"})
        >>> windows = ts.Windows(stash, spans={"past": (ts.each("x", "c"), -2, 0)})
        >>> batch = windows[:]
        >>> batch["past"]
        tensor([[ 1,  2],
                [10, 20],
                [ 0,  1],
                [ 2,  3],
                [20, 30],
                [ 1,  0]])
        >>> batch["past.window"].tolist(), batch["past.variate"].tolist(), batch["past.pack"].tolist()
        ([0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1])
    """
    if odd := [name for name in columns if not isinstance(name, str)]:
        raise TypeError(f"ts.each takes names of columns, got {shown(odd[0])}. Write ts.each('x', 'c').")
    if not columns:
        raise ValueError("ts.each needs the name of at least one column, got none.")
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise ValueError(f"ts.each takes each column once, got {twice[0]!r} twice. Leave it out.")
    return Variates(columns, None if max_variates is None else at_least(1, max_variates, "max_variates", below=1 << 31))
