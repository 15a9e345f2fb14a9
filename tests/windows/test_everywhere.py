"""Every way of choosing windows, in everything that samples: batches hold the windows that their ids say, each once.

The oracle is `windows[ids]`, which knows neither orders nor ranks, nor devices, nor other processes. On the device that
`--device` names, whatever a batch holds has the bits of the host's.
"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests import kernel, oracle, processes
from tests.everywhere import KINDS, stash_of, windows_of
from tests.late_device import LateCopies

pytestmark = pytest.mark.filterwarnings("ignore:.* entities have no", "ignore:.*Gaps cost", "ignore:Gaps make")

ORDERS: dict[str, Callable[[ts.Windows], dict[str, Any]]] = {
    "in order": lambda _: {},
    "shuffled": lambda _: {"shuffle": True},
    "blocks": lambda _: {"order": ts.Blocks(4)},
    "by time": lambda _: {"order": ts.ByTime(shuffle=True), "batch_size": None},
    "weighted": lambda windows: {"order": ts.Weighted(np.arange(len(windows)) % 5 + 0.5)},
    "per entity": lambda _: {"order": ts.PerEntity(9)},
    "resident": lambda _: {"shuffle": True, "resident": True},
    "packed": lambda _: {"shuffle": True, "transform": [ts.PackSequences("past")]},
}


UNPACKED = ("each variate", "drawn")


def loader_of(windows: Any, arguments: dict[str, Any], **more: Any) -> ts.Loader:
    return ts.Loader(windows, **({"batch_size": 6, "with_ids": True, "with_valid": True, "seed": 5} | arguments | more))


def check_on_device(windows: Any, arguments: dict[str, Any], device: torch.device, *, resident: bool) -> None:
    """Everything that batches hold has the bits of the host's; for the CPU stands a device whose copies are late."""
    host = [*loader_of(windows, arguments)]
    with pytest.MonkeyPatch.context() as patch:
        if device.type == "cpu":
            patch.setattr("tensorstash.batches.loader.copies_to", lambda _: LateCopies())
        there = loader_of(windows, arguments, device=device, prefetch=2, resident=resident)
        for batch, exact in zip(there, host, strict=True):
            assert [*batch] == [*exact]
            for name, tensor in exact.items():
                assert batch[name].device.type == device.type
                assert oracle.same(batch[name].cpu(), tensor), name


def check_batch(windows: ts.Windows, batch: dict[str, torch.Tensor], *, drawn: bool) -> None:
    if "past.offsets" in batch or drawn:
        return  # other tests compare what is packed, and what was drawn follows from the key of the window
    expected = windows[batch["window"].numpy()]
    assert expected.keys() <= batch.keys()
    for name, values in expected.items():
        assert torch.equal(batch[name].cpu().nan_to_num(-7.5), values.nan_to_num(-7.5)), name


@pytest.mark.device
@pytest.mark.parametrize("way", kernel.WAYS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_hold_each_window_of_an_epoch_once(
    kind: str, order: str, way: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one rank; and begun on two ranks, then resumed on three."""
    kernel.take(way, monkeypatch)
    windows = windows_of(kind, stash_of())
    arguments = {"device": device} | ORDERS[order](windows)
    if kind in UNPACKED and order == "packed":
        pytest.skip("these windows have no span of this name, or of one length, to pack")
    whole = [*loader_of(windows, arguments)]
    seen = torch.cat([batch["window"][batch["valid"]] for batch in whole]).tolist()
    for batch in whole:
        check_batch(windows, batch, drawn=kind == "drawn")
    if order not in ("weighted", "per entity"):
        assert sorted(seen) == [*range(len(windows))]
    begun: list[int] = []
    state: dict[str, Any] = {}
    size = arguments.get("batch_size", 6)
    for rank in range(2):
        loader = loader_of(windows, arguments, num_replicas=2, rank=rank, batch_size=size and 3)
        batch = next(iter(loader))
        begun += batch["window"][batch["valid"]].tolist()
        state = loader.state_dict()
    if len(begun) == len(seen):
        return  # the epoch is over: the state goes on with the next one
    for rank in range(3):
        loader = loader_of(windows, arguments, num_replicas=3, rank=rank, batch_size=size and 2)
        loader.load_state_dict(state)
        begun += [k for batch in loader for k in batch["window"][batch["valid"]].tolist()]
    assert sorted(begun) == sorted(seen)


@pytest.mark.device
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("order", [order for order in ORDERS if order != "resident"])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_on_a_device_have_the_bits_of_the_host(
    kind: str, order: str, resident: bool, device: torch.device
) -> None:
    if order == "packed" and (resident or kind in UNPACKED):
        pytest.skip("these windows have no span to pack, or packing, which is done on the host, would not see it")
    windows = windows_of(kind, stash_of())
    check_on_device(windows, ORDERS[order](windows), device, resident=resident)


@pytest.mark.device
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_mixes_on_a_device_have_the_bits_of_the_host(kind: str, resident: bool, device: torch.device) -> None:
    stash = stash_of()
    mix = ts.Mix({"one": windows_of(kind, stash), "other": windows_of(kind, stash_of())})
    check_on_device(mix, {"shuffle": True}, device, resident=resident)


@pytest.mark.parametrize("kind", KINDS)
def test_components_of_a_mix_hold_the_same(kind: str) -> None:
    stash = stash_of()
    one, other = windows_of(kind, stash), windows_of(kind, stash)
    for batch in loader_of(ts.Mix({"one": one, "other": other}), {"shuffle": True}):
        source = batch["source"]
        for k, windows in enumerate((one, other)):
            mine = source == k
            if kind in ("drawn", "each variate") or not mine.any():
                continue
            for name, values in windows[batch["window"][mine].numpy()].items():
                assert torch.equal(batch[name][mine].nan_to_num(-7.5), values.nan_to_num(-7.5)), name


def _first_batches(windows: list[ts.Windows]) -> list[Any]:
    batches = [next(iter(loader_of(part, {"order": ts.PerEntity(2)}))) for part in windows]
    return [{name: values.nan_to_num(-7.5).tolist() for name, values in batch.items()} for batch in batches]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_make_the_same_batches(method: str, processes_from_the_template: None) -> None:
    windows = [windows_of(kind, stash_of()) for kind in KINDS]
    assert processes.in_child(method, _first_batches, windows) == _first_batches(windows)


@pytest.mark.usefixtures("shm")
def test_fingerprints_tell_them_apart_and_pickles_keep_them() -> None:
    stash = stash_of().share("trees")
    windows = {kind: windows_of(kind, stash) for kind in KINDS if kind != "tables"}  # whose table is private
    prints = {kind: part.fingerprint() for kind, part in windows.items()}
    assert len({*map(str, prints.values())}) == len(prints)
    for kind, part in windows.items():
        assert pickle.loads(pickle.dumps(part)).fingerprint() == prints[kind]
        if kind not in ("the last of each", "covering"):  # a cut and a cover stay with their windows
            assert part.on(stash_of()).fingerprint() == prints[kind]
