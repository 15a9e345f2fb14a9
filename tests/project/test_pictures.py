"""What a page shows can be read on a phone, on a dark page, and where it is read in the repository."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from tests.project.pages import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("examples/**/*.md")]
PAGES += sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
PICTURES = [*sorted((ROOT / "docs" / "pictures").glob("*.png")), *sorted(ROOT.glob("benchmarks/results/*/*.png"))]
DRAWINGS = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
PHONE = 360  # pixels of a page that is shown on one
SIZES = {"": 14, "code": 13, "small": 12}  # of letters, by the class of a text


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def cut_or_small(drawing: str) -> list[str]:
    """The texts of a drawing that leave it, and those whose letters a phone shrinks below 9.5 pixels."""
    root = ElementTree.fromstring(drawing)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    found = []
    for node in root.iter("{http://www.w3.org/2000/svg}text"):
        words, kind = node.text or "", node.get("class", "")
        length = len(words) * SIZES[kind] * (0.6 if kind == "code" else 0.55)
        start = float(node.attrib["x"]) - length * {"start": 0, "middle": 0.5, "end": 1}[node.attrib["text-anchor"]]
        inside = start >= 0 and start + length <= width and SIZES[kind] <= float(node.attrib["y"]) <= height - 4
        if not inside or SIZES[kind] * PHONE / width < 9.5:
            found.append(words)
    return found


@pytest.mark.parametrize("path", DRAWINGS, ids=named)
def test_the_text_of_a_drawing_can_be_read_on_a_phone(path: Path) -> None:
    assert cut_or_small(path.read_text("utf-8")) == []


def test_a_drawing_that_is_too_wide_and_a_text_that_leaves_it_are_found() -> None:
    word = '<text class="{}" x="{}" y="20" text-anchor="start">word</text>'
    for width, kind, x, found in ((760, "small", 5, ["word"]), (400, "", 395, ["word"]), (400, "small", 5, [])):
        text = word.format(kind, x)
        drawing = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 40">{text}</svg>'
        assert cut_or_small(drawing) == found


@pytest.mark.parametrize("path", PICTURES, ids=named)
def test_a_picture_has_no_ground_and_no_black_letters(path: Path) -> None:
    image = imread(path)
    assert image.shape[2] == 4
    assert image[..., 3][[0, 0, -1, -1], [0, -1, 0, -1]].max() == 0  # the corners
    drawn = image[image[..., 3] > 0.5][:, :3]
    assert np.mean(drawn.max(axis=1) < 0.25) < 0.02  # the ranges of benchmarks alone are black, in a white seam


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them; of a page that is but a link, those where it leads."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    if alone := re.fullmatch(r"\[[^\]]*\]\(([^)]*)\)\n", text):
        return anchors(path.parent / alone[1])
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w-]", "", re.sub(r"\]\([^)]*\)", "", head).lower().replace(" ", "-")) for head in heads}


def lost_links(path: Path) -> list[str]:
    """The links of a page, and its pictures, that lead to no file, to a folder of the site, or to no heading."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)|(?:src|href)=\"(?!https?:)([^\"]+)\"", text)
    found = []
    for link in (one or other for one, other in links):
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_and_their_headings_exist_where_a_page_is_read_in_the_repository(path: Path) -> None:
    assert lost_links(path) == []


def test_a_link_to_no_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b.c`, d\n\n[x](#a-bc-d) [y](page.md#no) [z](none.md) ![p](none.png)\n")
    assert lost_links(page) == ["page.md#no", "none.md", "none.png"]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_page_has_no_directive_that_hides_text_where_it_is_read_in_the_repository(path: Path) -> None:
    """Lists of contents, and names of the reference, are lists there too."""
    directives = {*re.findall(r"^ *(?:```|:::+)\{(\w[\w-]*)\}", path.read_text("utf-8"), re.MULTILINE)}
    assert directives <= {"toctree", "eval-rst", "commands"}
