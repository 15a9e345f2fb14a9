"""`tensorstash inspect --html`: a self-contained HTML page about a source."""

import html
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from tensorstash.cli.times import Times, lines_of
from tensorstash.common.html import escaped, table
from tensorstash.ingest.plan import Plan
from tensorstash.ingest.plan_text import HEAD
from tensorstash.plot.axes import pyplot
from tensorstash.plot.coverage import coverage
from tensorstash.stash.stash import Stash

_DPI = 200  # sharp on a screen with two pixels for each of the page's
_STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide, pre { overflow-x: auto; }
img { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid #8886; text-align: left; }
.wide th, .wide td { white-space: nowrap; }
h1 { overflow-wrap: anywhere; font-size: 1.5rem; }
pre { padding: 1rem; border: 1px solid #8886; border-radius: 0.4rem; }
"""


def report(planned: Plan, times: Times | None, source: Any, given: Mapping[str, Any]) -> str:
    """A page about a source: its columns, the memory of a load, its times, and code to paste.

    Args:
        planned: the plan of the load.
        times: those of the source; `None` if no time column is named.
        source: what `load` takes.
        given: the other arguments of `load`.
    """
    sizes = {
        f"memory of {planned.rows:,} rows, once for all processes": planned.choice.row_bytes,
        "free memory now": planned.free,
    }
    parts = [
        f"<h1>{escaped(planned.source)}</h1>",
        "<h2>Columns</h2>",
        f'<div class="wide">{table(HEAD, planned.lines)}</div>',
        f"<p>Not read: {escaped(', '.join(planned.skipped))}</p>" if planned.skipped else "",
        "<h2>What a load takes</h2>",
        table(("what", "MB"), [(what, f"{size / 1e6:,.1f}") for what, size in sizes.items()]),
        *(f"<p>Note: {html.escape(note)}</p>" for note in planned.notes),
        "<h2>Times</h2>",
        *_times(times),
        "<h2>Code</h2>",
        f"<pre><code>{html.escape(_code(source, given))}</code></pre>",
    ]
    title = f"<title>{escaped(planned.source)}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}<style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _times(times: Times | None) -> list[str]:
    """Coverage, frequency and gaps, or why they cannot be shown."""
    if times is None:
        return ["<p>Name the columns of time and entity to see coverage, frequency and gaps: --time, --entity.</p>"]
    if times.stash is None:
        return [f"<p>A load is refused: {html.escape(times.facts['refused'])}</p>"]
    picture = [] if times.stash.known is not None or not times.stash.rows else [_coverage(times.stash)]
    return [*picture, table(("what", "value"), lines_of(times.facts))]


def _coverage(stash: Stash) -> str:
    """The picture of `ts.plot.coverage` within the page."""
    try:
        plt = pyplot("coverage")
    except ImportError:
        return "<p>With matplotlib there is a picture of the coverage here: pip install 'tensorstash[plot]'.</p>"
    figure: Any = coverage(stash, columns=[]).figure
    image = BytesIO()
    figure.savefig(image, format="png", dpi=_DPI)
    plt.close(figure)
    encoded = b64encode(image.getvalue()).decode()
    return f'<img alt="The times that each entity covers" src="data:image/png;base64,{encoded}">'


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
