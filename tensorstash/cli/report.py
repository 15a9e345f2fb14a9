"""`tensorstash inspect --html`: a self-contained HTML page about a source."""

import html
from collections.abc import Mapping
from typing import Any

from tensorstash.common.html import escaped, table
from tensorstash.errors import TensorstashError
from tensorstash.ingest.load import load
from tensorstash.ingest.plan_text import HEAD
from tensorstash.ingest.survey import Planned
from tensorstash.stash.printed import picture
from tensorstash.stash.stash import Stash
from tensorstash.windows.runs import Runs, find_runs

_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide, pre { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #8886; text-align: left; }
.wide th, .wide td { white-space: nowrap; }
h1 { overflow-wrap: anywhere; font-size: 1.5rem; }
pre { padding: 1rem; border: 1px solid #8886; border-radius: 0.4rem; }
"""


def report(planned: Planned, source: Any, given: Mapping[str, Any]) -> str:
    """A page about a source: its columns, the memory of a load, its times, and code to paste.

    Args:
        planned: the plan of the load.
        source: what `load` takes.
        given: the other arguments of `load`. With a time column, that column and the entities are loaded.
    """
    sizes = {
        f"memory, once for all processes ({planned.rows:,} rows)": planned.nbytes,
        "page tables in each process": planned.page_tables,
        "free memory now": planned.free,
    }
    parts = [
        f"<h1>{escaped(planned.source)}</h1>",
        "<h2>Columns</h2>",
        f'<div class="wide">{table(HEAD, planned.lines)}</div>',
        f"<p>Not read: {escaped(', '.join(planned.skipped) or 'nothing')}</p>",
        "<h2>What a load takes</h2>",
        table(("what", "MB"), [(what, f"{size / 1e6:,.1f}") for what, size in sizes.items()]),
        *(f"<p>Note: {html.escape(note)}</p>" for note in planned.notes),
        "<h2>Times</h2>",
        *_times(planned, source, given),
        "<h2>Code</h2>",
        f"<pre><code>{html.escape(_code(source, given))}</code></pre>",
    ]
    title = f"<title>{escaped(planned.source)}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}<style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _times(planned: Planned, source: Any, given: Mapping[str, Any]) -> list[str]:
    """Coverage, frequency and gaps, or why they cannot be shown."""
    if planned.time is None:
        return ["<p>Name the columns of time and entity to see coverage, frequency and gaps: --time, --entity.</p>"]
    keys = {name: value for name, value in given.items() if name not in ("columns", "static", "dtype")}
    try:
        stash = load(source, {"loaded_time": given["time"]}, **keys)
        if stash.known is not None:
            return [picture(stash), f"<p>Rows are ordered by {escaped(_order(stash))}.</p>"]
        runs = find_runs(stash.offsets.numpy(), stash.time.numpy(), stash.clock, None, None)  # type: ignore[union-attr]
    except (TensorstashError, ValueError) as error:
        return [f"<p>A load is refused: {html.escape(str(error))}</p>"]
    return [picture(stash), table(("what", "how many"), _gaps(stash, runs))]


def _order(stash: Stash) -> str:
    """How the rows of an entity are ordered, where times have versions."""
    names = str(stash.time_name), str(stash.known_name)
    return " and then by ".join(names[::-1] if stash.is_by_known else names)


def _gaps(stash: Stash, runs: Runs) -> list[tuple[str, str]]:
    with_rows = int(stash.offsets.diff().count_nonzero())
    lines = [
        ("frequency", "none" if runs.frequency is None else runs.frequency.text),
        ("entities", f"{len(stash.offsets) - 1:,}"),
        ("gaps in time", f"{len(runs.first) - with_rows:,}"),
        *((f"gaps of {step}", f"{count:,}") for step, count in runs.steps),
    ]
    if len(runs.rows):
        lines.append(("rows of the longest stretch without a gap", f"{int(runs.rows.max()):,}"))
        lines.append(("rows of the shortest", f"{int(runs.rows.min()):,}"))
    return lines


def _code(source: Any, given: Mapping[str, Any]) -> str:
    """A program that loads the source as it was inspected."""
    names = {"dtype": str(given["dtype"])} if given.get("dtype") is not None else {}
    shown = {name: repr(value) for name, value in given.items() if value not in (None, ())} | names
    arguments = "".join(f"    {name}={value},\n" for name, value in shown.items())
    imports = "import torch\n\n" if names else ""
    load = f"{imports}import tensorstash as ts\n\nstash = ts.load(\n    {source!r},\n{arguments})\n"
    if given.get("known") is not None:  # windows are anchored on the rows of another stash
        return load
    return (
        f"{load}windows = ts.Windows(stash, history=96, horizon=24)\n"
        "loader = ts.Loader(windows, batch_size=256, shuffle=True, seed=0)\n"
        "for batch in loader:\n    ...\n"
    )
