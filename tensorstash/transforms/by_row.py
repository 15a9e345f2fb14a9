"""Scaling spans of `ts.each`: each row has the constants of its column."""

from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate

import torch

from tensorstash.transforms.bound import Source, variates_in
from tensorstash.transforms.entries import span_of


def scaled_variates(source: Source, columns: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Maps each span of `ts.each` to its packs, if a scaler has them; one that has only some of them is refused."""
    found = {}
    for span, packs in variates_in(source).items():
        known = [name for name in packs if name in columns]
        if known and len(known) < len(packs):
            other = next(name for name in packs if name not in columns)
            raise ValueError(
                f"All rows of a span must be scaled; {span!r} holds {other!r} too, which the scaler has not seen. Fit "
                f"it on {[*packs]}, or give {other!r} a span of its own."
            )
        if known:
            found[span] = packs
    return found


def flat_tables(packs: Collection[str], table: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The constants of all columns of packs, `(groups * columns,)`."""
    return torch.cat([table[name].reshape(len(table[name]), -1) for name in packs], 1).reshape(-1)


def groups_of_rows(
    batch: Mapping[str, object], span: str, tables: Iterable[torch.Tensor], group: torch.Tensor | None
) -> torch.Tensor:
    """The place of each row among `flat_tables`, `(rows,)`.

    Args:
        batch: it holds `<span>.window`, `<span>.variate` and `<span>.pack`.
        span: the name of the span.
        tables: the constants of its packs, `(groups, *pack)` each.
        group: the group of constants of each window, `(windows,)`; `None`: there is one.
    """
    window, variate, pack = (span_of(batch, f"{span}.{entry}") for entry in ("window", "variate", "pack"))
    *first, total = accumulate((table[0].numel() for table in tables), initial=0)
    column = torch.tensor(first, device=pack.device)[pack] + variate
    return column if group is None else group.reshape(-1).to(column.device)[window] * total + column
