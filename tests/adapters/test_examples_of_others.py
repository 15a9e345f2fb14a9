"""The examples for people who come from another package: each says that every window is the same, and this reads it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# what each needs, and what it prints if its windows are those of the package, each once
SAYS = {
    "coming_from_darts": ("darts", r"\A18,320 windows; those of darts are the same: True\n"),
    "coming_from_dataset": (
        "torch",
        r"\A8,587 windows of 8,587, 0 spans differ\n(?:DataLoader .*: [\d,]+ windows/s\n){3}ts\.Loader: [\d,]+ ",
    ),
    "coming_from_gluonts": (
        "gluonts",
        r"\A14,320 windows, 0 differ from those of GluonTS\n(?s:.*)^Chronos: 15,500 rows, the same: True\n",
    ),
    "coming_from_neuralforecast": (
        "neuralforecast",
        r"^MAE in standard deviations: 0\.[23]\d; waiting .*\n(?s:.*)^NeuralForecast\.fit: [\d,]+ windows/s\n",
    ),
    "coming_from_pytorch_forecasting": ("pytorch_forecasting", r"^1,128 windows, 0 differ\n"),
    "huggingface_trainer": ("transformers", r"^24039 windows; each seen once in each of 2 epochs: True\n"),
    "lightning_datamodule": ("lightning", r"^18194 windows; each seen once in each of 2 epochs: True\n"),
    "other_arrays": ("hnswlib", r"\Ajax: (0 of \d+) batches copied\nkeras: trained\nfaiss: found\nhnswlib: a copy\n"),
}


@pytest.mark.parametrize("example", SAYS)
def test_an_example_says_that_its_windows_are_the_same(example: str, tmp_path: Path) -> None:
    package, expected = SAYS[example]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'tensorstash[adapters,frameworks]'")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "examples" / f"{example}.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout, re.MULTILINE), done.stdout
