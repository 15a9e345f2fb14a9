"""What several commands take: the source, its columns and their roles; and sizes as people write them."""

import re
from collections.abc import Callable
from typing import Any

import click

from tensorstash.segments import shared

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *((?:[kmgt]i?)?)b?", re.IGNORECASE)


def _columns(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | list[str]] | None:
    """The columns of an option in the form that `load` takes."""
    chosen: dict[str, str | list[str]] = {}
    for text in texts:
        name, equals, members = text.partition("=")
        names = [part.strip() for part in (members if equals else text).split(",")]
        named = {name.strip(): names[0] if len(names) == 1 else names} if equals else {part: part for part in names}
        if (not equals and len(named) < len(names)) or named.keys() & chosen:
            raise click.BadParameter(f"{text!r} names a column twice.")
        chosen |= named
    return chosen or None


def _entity(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> str | list[str] | None:
    """One column or several, in the form that `load` takes."""
    return [*names] if len(names) > 1 else names[0] if names else None


def nbytes(text: str) -> int:
    """The bytes of a size such as "500MB"."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size such as 500MB, 10GB or 8GiB.")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def arguments(options: dict[str, Any]) -> tuple[str | list[str], dict[str, Any]]:
    """The source and the other arguments of `load` and `plan` that the options stand for."""
    import torch  # imported here, because most commands do not need it

    files = options["source"]
    others = {name: value for name, value in options.items() if name != "source"}
    others["dtype"] = None if others["dtype"] is None else getattr(torch, others["dtype"])
    return [*files] if len(files) > 1 else files[0], others


def label_completion(_context: click.Context, _option: click.Parameter, text: str) -> list[str]:
    """The labels of shared segments that begin with a text."""
    return sorted({line["label"] for line in shared.lines() if line["label"].startswith(text)})


known_option = click.option("--known", metavar="COLUMN", help="The column that says when a row became known.")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that say what is loaded."""
    forms = "a,b for two columns, x=a,b for a pack named x, y=a for another name; may be given several times"
    for decorate in (
        click.option("--dtype", type=click.Choice(_FLOATS), help="Cast the floating columns."),
        click.option(
            "--static",
            metavar="COLUMNS",
            multiple=True,
            callback=_columns,
            help="Columns with one value per entity, in the same forms.",
        ),
        click.option("--time", metavar="COLUMN", help="The column that orders the rows of a series."),
        click.option(
            "--entity",
            metavar="COLUMN",
            multiple=True,
            callback=_entity,
            help="The column that identifies a series; may be given several times if several columns together do.",
        ),
        click.option("--columns", metavar="COLUMNS", multiple=True, callback=_columns, help=f"{forms}. Default: all."),
        click.argument("source", metavar="FILE...", nargs=-1, required=True, type=click.Path()),
    ):
        command = decorate(command)
    return command
