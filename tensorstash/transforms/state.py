"""Reading the state of a `Scaler`: plain values, each of which is checked."""

from collections.abc import Mapping
from typing import Any

import torch

from tensorstash.common.checks import is_integer
from tensorstash.common.text import type_text
from tensorstash.transforms.fitting import check_kind

VERSION = 1


def fields_of(state: object) -> dict[str, Any]:
    """The fields of a scaler, from its state."""
    if not isinstance(state, Mapping):
        raise TypeError(f"A state must be what state_dict() returned, got {type_text(state)}.")
    if state.get("version", VERSION) != VERSION:
        raise ValueError(f"The version of a state must be {VERSION}, got {state['version']!r}.")
    needed = ["version", "kind", "by", "rows", "spans", "columns"]
    needed += ["entities", "unknown"] if state.get("by") is not None else []
    if missing := [name for name in needed if name not in state]:
        raise ValueError(
            f"A state must have {', '.join(needed)}; this one lacks {', '.join(missing)}. Take what "
            "state_dict() returned out of the checkpoint."
        )
    check_kind(state["kind"], state["by"], state.get("unknown", "error"))
    try:
        return _fields(state)
    except (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"A state must be what state_dict() returned; this one is damaged: {error}.") from error


def _fields(state: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a scaler; raises an error of any type if a value cannot be one."""
    by, unknown, spans = state["by"], state.get("unknown", "error"), dict(state["spans"])
    entities = [*map(_name, state["entities"])] if by else []
    groups = len(entities) + (unknown == "pooled") if by else 1
    center, scale = (
        {name: torch.tensor([*column[which]], dtype=torch.float64) for name, column in state["columns"].items()}
        for which in ("center", "scale")
    )
    variates = {span: (*packs,) for span, packs in state.get("variates", {}).items()}
    computed = {span: (*flags,) for span, flags in state.get("computed", {}).items()}
    columns = {span: (column,) for span, column in spans.items()} | variates
    tables = [*zip(center.values(), scale.values())]
    sound = {
        "center and scale": all(low.shape == high.shape and len(low) == groups for low, high in tables),
        "a scale above 0": all((low.isfinite() & high.isfinite() & (high > 0)).all() for low, high in tables),
        "columns": len(center) > 0,
        "spans of its columns": all(names and {*names} <= center.keys() for names in columns.values()),
        "distinct names of entities": len({*entities}) == len(entities),
        "rows": is_integer(state["rows"]),
        "computed": all(
            len(flags) == len(columns[span]) and {*map(type, flags)} == {bool} for span, flags in computed.items()
        ),
    }
    if wrong := [name for name, is_sound in sound.items() if not is_sound]:
        raise ValueError(f"it needs {wrong[0]}")
    fields = {"kind": state["kind"], "by": by, "unknown": unknown, "rows": int(state["rows"]), "entities": entities}
    return fields | {"spans": spans, "center": center, "scale": scale, "_unmasked": computed, "_variates": variates}


def _name(value: Any) -> Any:
    """The name of an entity: with several columns a tuple, which JSON turns into a list."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_name, value))
    if value is not None and not isinstance(value, (str, int)):
        raise ValueError(f"it needs names of entities, got {value!r}")
    return value
