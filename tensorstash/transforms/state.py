"""Reading the state of a `Scaler`: plain values, each of which is checked."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from tensorstash.common.checks import is_integer
from tensorstash.common.text import type_text
from tensorstash.transforms.fitting import check_kind
from tensorstash.transforms.observed import Computed

VERSION = 1


def state_of(  # noqa: PLR0917  in the order of a state
    fields: dict[str, Any],
    computed: Computed,
    variates: Mapping[str, Sequence[str]],
    names: dict[str, Any],
    center: Mapping[str, torch.Tensor],
    scale: Mapping[str, torch.Tensor],
) -> dict[str, Any]:
    """The state of a scaler, as plain values."""
    columns = {name: {"center": center[name].tolist(), "scale": scale[name].tolist()} for name in center}
    some = {"computed": {span: [*columns] for span, columns in computed.items()}} if computed else {}
    rows = {"variates": {span: [*packs] for span, packs in variates.items()}} if variates else {}
    return {"version": VERSION, **fields, **some, **rows, **names, "columns": columns}


def fields_of(state: object) -> dict[str, Any]:
    """The fields of a scaler, from its state."""
    if not isinstance(state, Mapping):
        raise TypeError(f"A state must be what state_dict() returned, got {type_text(state)}.")
    if state.get("version", VERSION) != VERSION:
        raise ValueError(f"The version of a state must be {VERSION}, got {state['version']!r}.")
    needed = ["version", "kind", "by", "rows", "spans", "columns"]
    needed += ["entities", "unknown"] if state.get("by") == "entity" else []
    if missing := [name for name in needed if name not in state]:
        raise ValueError(
            f"A state must have {', '.join(needed)}; this one lacks {', '.join(missing)}. Take what "
            "state_dict() returned out of the checkpoint."
        )
    fields = {"kind": state["kind"], "by": state["by"], "unknown": state.get("unknown", "error")}
    check_kind(fields["kind"], fields["by"], fields["unknown"])
    names = _names(state["entities"]) if fields["by"] else []
    groups = len(names) + (fields["unknown"] == "pooled") if fields["by"] else 1
    columns = state["columns"] if isinstance(state["columns"], Mapping) else {}
    center, scale = ({name: _table(column, which) for name, column in columns.items()} for which in ("center", "scale"))
    for name, low, high in zip(columns, center.values(), scale.values()):
        if low is None or high is None or low.shape != high.shape or len(low) != groups or not (high > 0).all():
            raise ValueError(
                f"A state must have a finite centre and a finite scale above 0 for each of {groups} entities; those of "
                f"{name!r} are not. It is damaged."
            )
    spans = state["spans"]
    if not columns or not isinstance(spans, Mapping) or not all(column in [*columns] for column in spans.values()):
        raise ValueError("A state must have columns, and spans of these. It is damaged.")
    if not is_integer(state["rows"]):
        raise ValueError(f"rows must be an integer, got {state['rows']!r} in the state.")
    variates = state.get("variates", {})
    lists = [*variates.values()] if isinstance(variates, Mapping) else [None]
    if not all(isinstance(packs, (list, tuple)) and packs and {*map(str, packs)} <= {*columns} for packs in lists):
        raise ValueError("variates must map spans to lists of columns of the state. It is damaged.")
    variates = {span: (*packs,) for span, packs in variates.items()}
    computed = _computed(
        state.get("computed", {}), {**dict.fromkeys(spans, 1), **{k: len(v) for k, v in variates.items()}}
    )
    fields |= {"rows": int(state["rows"]), "spans": dict(spans), "entities": names, "_computed": computed}
    fields["_variates"] = variates
    return fields | {"center": center, "scale": scale}


def _computed(found: Any, widths: Mapping[str, int]) -> Computed:
    """Of each column of some spans whether it is computed; `widths` are the numbers of columns of all spans."""
    flags = found.values() if isinstance(found, Mapping) and found.keys() <= widths.keys() else [None]
    if any(not isinstance(columns, (list, tuple)) or {*map(type, columns)} != {bool} for columns in flags) or any(
        len(columns) != widths[span] for span, columns in found.items()
    ):
        raise ValueError(f"computed must map spans of the state to a boolean per column, got {found!r}. It is damaged.")
    return {span: (*columns,) for span, columns in found.items()}


def _names(values: Any) -> list[Any]:
    names = [*map(_as_name, values)] if isinstance(values, (list, tuple)) else [[]]
    if not all(map(_is_name, names)) or len({*names}) < len(names):
        raise ValueError("A state must have distinct names of entities. It is damaged.")
    return names


def _as_name(value: Any) -> Any:
    """The name of an entity: with several columns a tuple, which JSON turns into a list."""
    return tuple(map(_as_name, value)) if isinstance(value, list) else value


def _is_name(value: Any) -> bool:
    return all(map(_is_name, value)) if isinstance(value, tuple) else value is None or isinstance(value, (str, int))


def _table(column: Any, which: str) -> torch.Tensor | None:
    """The constants of a column, `(groups, *pack)`; `None` if they are not finite numbers."""
    values = column.get(which) if isinstance(column, Mapping) else None
    with suppress(TypeError, ValueError, OverflowError, RuntimeError, RecursionError):
        table = torch.tensor(values, dtype=torch.float64)
        return table if isinstance(values, list) and table.numel() and table.isfinite().all() else None
    return None
