"""`fit_scaler`: a scaler for the windows of shards on several nodes."""

from collections.abc import Sequence
from typing import Any

from tensorstash.cluster.counts import everyone
from tensorstash.common.checks import names_in
from tensorstash.sampling.sharded import ShardedWindows
from tensorstash.transforms.scaler import Scaler
from tensorstash.transforms.sharded import told_by
from tensorstash.transforms.statistics import check_kind


def fit_scaler(
    windows: ShardedWindows,
    columns: Sequence[str],
    *,
    kind: str = "standard",
    by: str | None = None,
    group: Any = None,
) -> Scaler:
    """`ts.Scaler.fit` for the windows of shards, over the rows of all nodes: bit by bit the same on every rank.

    This is a collective: every rank calls it. Each sends a few numbers per shard and column, and with `by="entity"` per
    entity; they are merged in the order of shards, whichever node holds them.

    Args:
        windows: preferably of the training part alone.
        columns: as for `ts.Scaler.fit`.
        kind: as for `ts.Scaler.fit`, but not `"robust"`: quartiles of several shards cannot be merged.
        by: `None`, or `"entity"`; batches then need `entity`, which `ts.Loader(..., with_ids=True)` gives them.
        group: the process group of the data ranks of all nodes; `None` for the default one.

    Raises:
        ValueError: there is no process group for several nodes, or no window. Others as for `ts.Scaler.fit`.

    Example:
        >>> import tempfile, tensorstash as ts
        >>> data = {"station": ["A", "B"] * 4, "hour": [0, 0, 1, 1, 2, 2, 3, 3], "temp": [0.5, 1.5] * 4}
        >>> where = tempfile.mkdtemp()
        >>> made = ts.cluster.shard(data, ["temp"], entity="station", time="hour", shards=4, to=where)
        >>> windows = ts.cluster.windows(ts.cluster.open(where), history=2)
        >>> ts.cluster.fit_scaler(windows, ["temp"])
        Scaler: standard, of the 8 rows seen
          temp  center 1  scale 0.5  for temp
    """
    check_kind(kind, by)
    own = told_by(windows, names_in(columns, "columns"), kind, by)
    return Scaler._of_shards(windows, everyone(own, windows.division.nodes, group), kind, by)
