"""The built site as a browser lays it out: `make site` builds it and runs this with `--site`.

Chromium loads every page in frames of several widths, light and dark, and says what is cut off or hard to read.
"""

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# loads pages in a frame one after the other, and leaves its findings as JSON in the body
MEASURE = """<!doctype html><body><script>
const wait = ms => new Promise(done => setTimeout(done, ms));
const frame = document.createElement("iframe");
const numbers = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
function behind(node) {
  for (let at = node; at; at = at.parentElement) {
    const colour = numbers(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
function contrast(node) {
  const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
}
const cut = node => node.scrollWidth > node.clientWidth + 1;
const name = node => node.textContent.trim().slice(0, 60);
async function look(page, width, theme) {
  localStorage.setItem("theme", theme);
  frame.width = width;
  frame.src = page;
  await new Promise(done => frame.onload = done);
  await wait(0);
  const root = frame.contentDocument, content = root.querySelector("article");
  const blocks = [...content.querySelectorAll("pre, .table-wrapper, img")];
  const texts = [...content.querySelectorAll("p, td, pre, pre span, code, a")].filter(node => name(node));
  return {
    page, width, theme,
    wide: root.documentElement.scrollWidth - width,
    cut: blocks.filter(cut).map(name),
    lost: blocks.filter(node => cut(node) && !/auto|scroll/.test(getComputedStyle(node).overflowX)).map(name),
    pale: texts.filter(node => contrast(node) < 4.5).map(name).slice(0, 3),
    dark: light(behind(content)) < .2,
  };
}
(async () => {
  document.body.append(frame);
  frame.height = 900;
  const found = [];
  for (const [page, width, theme] of TASKS) found.push(await look(page, width, theme));
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify(found);
  document.body.replaceChildren(result);
})();
</script>"""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Path:
    folder = request.config.getoption("site")
    if folder is None:
        pytest.skip("measures a built site: make site")
    if BROWSER is None:
        pytest.skip("needs Chromium to lay out the pages")
    return Path(folder)


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on a port of this machine; pages of files may not look into each other."""
    handler = functools.partial(Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  as the base has it
        pass


def browsed(address: str) -> str:
    """The page as it is when its scripts are done."""
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=600000",
        "--dump-dom",
    ]
    done = subprocess.run([*command, address], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def measured(site: Path, address: str, tasks: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
    page = site / "measure.html"
    page.write_text(MEASURE.replace("TASKS", json.dumps(tasks)), "utf-8")
    try:
        found = re.search(r'<pre id="result">(.*?)</pre>', browsed(f"{address}/measure.html"), re.DOTALL)
    finally:
        page.unlink()
    assert found
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def pages(site: Path) -> list[str]:
    others = {"genindex.html", "py-modindex.html", "search.html", "measure.html"}
    names = [path.relative_to(site) for path in sorted(site.rglob("*.html"))]
    return [str(name) for name in names if name.name not in others and not name.parts[0].startswith("_")]


def test_no_block_and_no_table_is_cut_off(site: Path, address: str) -> None:
    """On a laptop nothing needs to be scrolled sideways; on a phone blocks and tables scroll, and the page does not."""
    tasks = [(page, width, "light") for page in pages(site) for width in (1300, 1440, 400)]
    assert len(tasks) > 150
    found = measured(site, address, tasks)
    assert [(of["page"], of["width"], of["cut"]) for of in found if of["width"] > 400 and of["cut"]] == []
    assert [(of["page"], of["width"], of["lost"]) for of in found if of["lost"]] == []
    assert [(of["page"], of["width"]) for of in found if of["wide"] > 0] == []


def test_text_stands_out_in_the_light_and_in_the_dark(site: Path, address: str) -> None:
    """By the contrast of 4.5 that WCAG 2.1 asks for."""
    tasks = [(page, 1300, theme) for page in pages(site) for theme in ("light", "dark")]
    found = measured(site, address, tasks)
    assert {of["theme"] for of in found if of["dark"]} == {"dark"}
    assert {of["theme"] for of in found if not of["dark"]} == {"light"}
    assert [(of["page"], of["theme"], of["pale"]) for of in found if of["pale"]] == []


def test_what_is_cut_off_is_found(site: Path, address: str) -> None:
    page = site / "cut.html"
    long = "x" * 300
    page.write_text(
        f"<body style='margin:0;background:#fff'><article><pre style='overflow:hidden'>{long}</pre>"
        "<p style='color:#ccc'>pale</p></article>",
        "utf-8",
    )
    try:
        (found,) = measured(site, address, [("cut.html", 400, "light")])
    finally:
        page.unlink()
    assert (found["cut"], found["lost"], found["pale"]) == ([long[:60]], [long[:60]], ["pale"])


def pages_found(address: str, words: str) -> list[str]:
    """The pages that a search finds, the best first."""
    query = urllib.parse.quote(words)
    return re.findall(
        r'<li class="kind-[^"]*"[^>]*><a href="([^"?#]*)\.html', browsed(f"{address}/search.html?q={query}")
    )


@pytest.mark.parametrize("words", ["workers", "copy", "order"])
def test_a_search_finds_guides_before_decisions(address: str, words: str) -> None:
    parts = [page.split("/")[0] for page in pages_found(address, words)]
    assert {"guide", "how-to", "start"} & {*parts[:3]}
    assert "decisions" not in parts[:5]


FIRST = {
    "resume": "guide/ranks",
    "shuffle": "guide/orders",
    "DDP": "how-to/torchrun",
    "as known": "how-to/forecasts-as-inputs",
    "GPU": "guide/devices",
    "missing values": "guide/columns",
    "gaps": "guide/windows",
    "serving": "how-to/serve",
    "CSV": "guide/csv",
    "train test split": "guide/splits",
}


@pytest.mark.parametrize("words", FIRST)
def test_a_search_finds_the_page_of_a_topic_first(address: str, words: str) -> None:
    assert pages_found(address, words)[0] == FIRST[words]


def test_the_pages_of_topics_exist() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = re.findall(r': "([a-z-]+/[a-z-]+)"', (docs / "scorer.js").read_text("utf-8"))
    assert len(pages) > 10
    assert [page for page in pages if not (docs / f"{page}.md").exists()] == []
