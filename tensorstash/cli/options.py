"""The options that say what is loaded, of all commands that load or plan."""

from collections.abc import Callable
from typing import Any

import click
import torch

from tensorstash.columns.layout import regular

_FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


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


def _schema(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str] | None:
    """The types of CSV columns in the form that `load` takes."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, _, kind) in zip(texts, pairs) if not (name and kind)]:
        raise click.BadParameter(f"{wrong[0]!r} is not COLUMN=TYPE, such as load=float64.")
    return {name: kind for name, _, kind in pairs} or None


def arguments(options: dict[str, Any]) -> tuple[str | list[str], dict[str, Any]]:
    """The source and the other arguments of `load` and `plan` that the options stand for."""
    files, start, every = options["source"], options["start"], options["every"]
    given = {name: value for name, value in options.items() if name not in ("source", "start", "every")}
    given["dtype"] = _FLOATS.get(given["dtype"])
    if start is not None or every is not None:
        if given["time"] is not None or start is None or every is None:
            raise click.UsageError("Times are --time COLUMN, or --start COLUMN and --every STEP.")
        given["time"] = regular(start, int(every) if every.isdecimal() else every)
    return [*files] if len(files) > 1 else files[0], given


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments that say what is loaded."""
    forms = "a,b for two columns, x=a,b for a pack named x, y=a for another name; may be given several times"
    for decorate in (
        click.option("--dtype", type=click.Choice([*_FLOATS]), help="Cast the floating columns."),
        click.option(
            "--static",
            metavar="COLUMNS",
            multiple=True,
            callback=_columns,
            help="Columns with one value per entity, in the same forms.",
        ),
        click.option(
            "--schema",
            metavar="COLUMN=TYPE",
            multiple=True,
            callback=_schema,
            help="The type of a CSV column, or how a time is written (date=%d.%m.%Y); may be given several times.",
        ),
        click.option("--every", metavar="STEP", help="With --start: the step, such as 1h, or the column that has it."),
        click.option("--start", metavar="COLUMN", help="With --layout lists: the first time of each series."),
        click.option("--time", metavar="COLUMN", help="The column that orders the rows of a series."),
        click.option(
            "--entity",
            metavar="COLUMN",
            multiple=True,
            callback=_entity,
            help="The column that identifies a series; may be given several times if several columns together do.",
        ),
        click.option(
            "--layout",
            type=click.Choice(["lists", "wide"]),
            help="A series in each row, or in each column: then --entity is a name for their names.",
        ),
        click.option("--columns", metavar="COLUMNS", multiple=True, callback=_columns, help=f"{forms}. Default: all."),
        click.argument("source", metavar="FILE...", nargs=-1, required=True),
    ):
        command = decorate(command)
    return command
