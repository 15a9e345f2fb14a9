"""The loop: right batches, whose memory is used again only when nobody can see it, and a loop that stops at once."""

import copy
import gc
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensorstash as ts
from tests import kernel, oracle, orders, processes
from tests.data import DTYPES, Table
from tests.epochs import ids_of
from tests.oracle_load import like
from tests.words import Tail

SPANS = {"past": ("f32", -4, 0), "pack": ("pack", -4, 2), "flag": ("flag", 0, 2), "code": ("i32", -4, 0)}


def windows(rows: int = 500) -> ts.Windows:
    return ts.Windows(
        Table([rows // 2, rows - rows // 2], [*range(rows // 2), *range(rows - rows // 2)]).stash(), spans=SPANS
    )


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_windows_of_the_samplers_ids(prefetch: int, shuffle: bool) -> None:
    loader = ts.Loader(windows(), 32, shuffle=shuffle, prefetch=prefetch)
    expected = ids_of(loader.sampler)
    kept = list(loader)
    assert len(kept) == len(loader) == len(expected)
    for batch, ids in zip(kept, expected):
        exact = loader.dataset[ids]
        assert list(batch) == list(exact)
        assert all(oracle.same(batch[name], exact[name]) for name in exact)


@pytest.mark.parametrize(("ranks", "batch_size"), [(1, 4), (2, 2), (4, 1)])
@pytest.mark.parametrize("horizon", [0, 1])
def test_reset_is_false_exactly_where_a_row_goes_on(ranks: int, batch_size: int, horizon: int) -> None:
    """In the first window of a lane, after an entity or a gap, and where the last step moves a lane to another row."""
    times = [*range(20), *range(30, 41), *range(23)]
    stash = Table([31, 23], times).stash()
    chunks = ts.Windows(stash, 3, horizon, columns=["i64"], stride=3)
    seen = []
    for rank in range(ranks):
        loader = ts.Loader(
            chunks,
            batch_size,
            order=ts.Lanes(4),
            num_replicas=ranks,
            rank=rank,
            with_ids=True,
            with_valid=True,
            prefetch=rank % 2,
        )
        before: list[int] = []
        for batch in loader:
            valid = int(batch["valid"].sum())
            # the first row of a window, as the value in it says
            starts = (batch["i64"][:, 0] // 16).tolist()
            expected = [
                k >= len(before)
                or start != before[k] + 3
                or k >= valid
                or any(before[k] < edge <= start for edge in (20, 31))
                for k, start in enumerate(starts)
            ]
            assert batch["reset"].tolist() == expected
            before = starts
            seen += batch["window"][:valid].tolist()
    assert sorted(seen) == list(range(len(chunks)))


def test_lanes_need_windows_that_follow_each_other() -> None:
    with pytest.raises(
        ValueError,
        match=like("stride must equal the length of the past, 4 ... got 1"),
    ):
        ts.Loader(windows(), 8, order=ts.Lanes(8))
    with pytest.raises(
        ValueError,
        match=like("lanes ... 2 x 8, got 8. Use ts.Lanes(16)"),
    ):
        list(ts.Sampler(100, 8, order=ts.Lanes(8), num_replicas=2, rank=0))


def numpy_slice(batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
    array = batch["past"].numpy()[::2, 1]
    return lambda: array


def tensor_view(batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
    view = batch["pack"].transpose(1, 2)[-1:]
    return lambda: view.numpy()


def autograd_graph(batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The product saves its input for backward."""
    weight = torch.ones((), requires_grad=True)
    loss = (weight * batch["past"]).sum()
    return lambda: torch.autograd.grad(loss, weight, retain_graph=True)[0].numpy()


def dlpack_capsule(batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
    other = np.from_dlpack(batch["code"])
    return lambda: other


def other_dtype(batch: dict[str, torch.Tensor]) -> Callable[[], Any]:
    bits = batch["past"].view(torch.int32)[3:]
    return lambda: bits.numpy()


@pytest.mark.parametrize("keep", [numpy_slice, tensor_view, autograd_graph, dlpack_capsule, other_dtype])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_what_is_kept_of_a_batch_never_changes(
    keep: Callable[[dict[str, torch.Tensor]], Callable[[], Any]], prefetch: int
) -> None:
    held = []
    for epoch, batch in enumerate(ts.Loader(windows(), 16, shuffle=True, prefetch=prefetch)):
        if epoch % 3 == 0:
            look = keep(batch)
            held.append((look, np.array(look(), copy=True)))
        if epoch % 12 == 0:
            gc.collect()  # nothing but these cycles could set a buffer free; a collection takes long
        del batch
    assert len(held) > 5
    for look, before in held:
        assert np.array_equal(look(), before, equal_nan=True)


def test_masked_batches_carry_valid() -> None:
    cases: list[tuple[Tail, int]] = [("pad", 1), ("keep", 2), ("keep", 1)]
    for tail, ranks in cases:
        for batch in ts.Loader(windows(), 16, tail=tail, num_replicas=ranks, rank=0):
            assert ("valid" in batch) == (tail == "pad" or ranks > 1)
            assert tail == "keep" or len(batch["past"]) == 16
    *_, last = ts.Loader(windows(), 16, tail="pad")
    assert last["valid"].tolist() == [True] * (len(windows()) % 16) + [False] * (16 - len(windows()) % 16)


@pytest.mark.parametrize("timed", [True, False])
def test_ids_tell_window_entity_and_anchor(timed: bool) -> None:
    stash = Table([9, 7], [*range(100, 109), *range(7)]).stash(timed)
    for horizon in (0, 2):
        loader = ts.Loader(ts.Windows(stash, 3, horizon, columns=["i64"]), 4, shuffle=True, with_ids=True)
        for batch, ids in zip(loader, ids_of(loader.sampler)):
            assert list(batch) == ["i64", "window", "entity", "anchor", "window.key"]
            assert batch["window"].tolist() == ids
            rows = loader.dataset.placement.anchor_slots(np.array(ids)) - (horizon == 0)
            assert batch["entity"].tolist() == [int(row >= 9) for row in rows]
            times = [*range(100, 109), *range(7)]
            anchors = [times[row] for row in rows] if timed else rows.tolist()
            assert batch["anchor"].tolist() == anchors


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_state_counts_the_batches_that_were_handed_out(prefetch: int) -> None:
    """Batches gathered ahead do not count, and the rest of the epoch follows exactly."""
    first = ts.Loader(windows(), 32, shuffle=True, prefetch=prefetch)
    expected = [batch["code"].clone() for batch in first]
    for stop in (1, 2, len(expected)):
        loader = ts.Loader(windows(), 32, shuffle=True, prefetch=prefetch)
        for k, _ in enumerate(loader, 1):
            if k == stop:
                state = loader.state_dict()
                break
        assert state["consumed"] == min(32 * stop, len(windows()))
        again = ts.Loader(windows(), 32, shuffle=True, prefetch=3 - prefetch)
        again.load_state_dict(state)
        again.set_epoch(0)
        rest = [batch["code"] for batch in again]
        assert len(rest) == len(expected) - stop
        assert all(one.equal(two) for one, two in zip(rest, expected[stop:]))


def test_a_state_of_other_spans_is_refused() -> None:
    state = ts.Loader(windows(), 32).state_dict()
    other = ts.Loader(ts.Windows(windows().stash, 4, 2, columns=["f32"]), 32)
    with pytest.raises(ValueError, match=r"these differ: spans\.f32: none in the state, .*; spans\.past: .* in"):
        other.load_state_dict(state)


def test_a_second_iterator_ends_the_first() -> None:
    loader = ts.Loader(windows(), 32)
    one = iter(loader)
    next(one)
    two = iter(loader)
    next(two)
    with pytest.raises(RuntimeError, match=re.escape("A loader has one live iterator, and another was started.")):
        next(one)
    assert len(next(two)["past"]) == 32


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("tensorstash-prefetch")]


def test_leaving_the_loop_stops_the_thread() -> None:
    for batch in ts.Loader(windows(), 8, prefetch=3):
        assert len(batch["past"]) == 8
        assert len(prefetch_threads()) == 1
        break
    assert prefetch_threads() == []
    with pytest.raises(ZeroDivisionError, match="in the loop"):
        for _ in ts.Loader(windows(), 8, prefetch=3):
            raise ZeroDivisionError("in the loop")
    gc.collect()
    assert prefetch_threads() == []


@pytest.mark.host("there transforms run in the thread")
def test_an_iterator_may_be_collected_in_its_own_thread() -> None:
    """As by the garbage collector, which runs wherever memory is taken; a thread cannot wait for itself."""
    last, alone, collected, seen = list[Any](), threading.Event(), threading.Event(), itertools.count()
    epoch = len(ts.Loader(windows(), 8))

    def drop(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if next(seen) == epoch:  # behind an epoch, which is made together
            assert alone.wait(60)
            last.clear()
            collected.set()
        return batch

    loader = ts.Loader(windows(), 8, prefetch=2, steps=epoch + 20, transform=[drop, ts.PackSequences("past")])
    last.append(iter(loader))
    next(last[0])
    alone.set()
    assert collected.wait(60)
    for thread in prefetch_threads():
        thread.join(60)
    assert prefetch_threads() == []
    assert len([*loader]) == len(loader)


def test_an_exception_in_the_thread_comes_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_in_locate(*_: object) -> None:
        raise OSError("the disk is gone")

    for prefetch in (0, 2):
        loader = ts.Loader(windows(), 8, prefetch=prefetch)
        monkeypatch.setattr(loader, "_locate", fails_in_locate)
        with pytest.raises(OSError, match="the disk is gone") as caught:
            next(iter(loader))
        assert "fails_in_locate" in "".join(traceback.format_tb(caught.value.__traceback__))


PROGRAM = """
import sys, threading
import numpy as np, tensorstash as ts
loader = ts.Loader(ts.Windows(ts.load({"y": np.zeros(4_000_000)}), 100), 4096, shuffle=True, prefetch=2)
passing = iter(loader)
next(passing)
print("ready", flush=True)
"""


@pytest.mark.host("the processes that it starts take their own way")
def test_the_interpreter_exits_with_a_live_iterator() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


@pytest.mark.host("the processes that it starts take their own way")
def test_ctrl_c_ends_the_loop() -> None:
    program = PROGRAM + "while True:\n    next(passing, None) or (passing := iter(loader))\n"
    with processes.start(program) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.kill(signal.SIGINT)
        done = child.finish()
    assert done.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in done.stderr


def test_stats_tell_where_the_time_went() -> None:
    loader = ts.Loader(windows(2000), 64)
    assert loader.stats()["steps"] == 0
    for _ in loader:
        time.sleep(0.001)
    stats = loader.stats()
    assert stats["steps"] == len(loader)
    assert 0 < stats["gather_seconds"] <= stats["wait_seconds"] < stats["seconds"]
    assert stats["seconds"] - stats["wait_seconds"] >= 0.001 * len(loader)
    nbytes = sum(tensor.nbytes for tensor in loader.dataset[[0]].values()) * len(loader.dataset)
    assert stats["gigabytes_per_second"] * stats["gather_seconds"] * 1e9 == pytest.approx(nbytes)


def test_wrong_arguments_say_the_rule_and_the_offender() -> None:
    with pytest.raises(ValueError, match=re.escape("prefetch must be an integer >= 0, got -1.")):
        ts.Loader(windows(), 8, prefetch=-1)
    timed = ts.Windows(Table([6], range(6)).stash(), 2, columns=["f32"])
    with pytest.raises(
        ValueError,
        match=like("dataset must hold at least one window ... part ... cuts"),
    ):
        ts.Loader(timed.split(100)[1], 8)
    ahead = ts.Windows(Table([6], range(6)).stash(), 2, 1, columns=["f32"])
    history = ahead.on(Table([2], range(2)).stash())
    with pytest.raises(ValueError, match=like("windows.on(stash), see latest()")):
        ts.Loader(history, 8)
    assert len(ts.Loader(history.latest(), 8)) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((windows, 2.5), ValueError, "batch_size must be an integer >= 1, got 2.5."),
        (
            (windows, None),
            ValueError,
            "batch_size ... global_batch_size ... got None and None",
        ),
        (
            (lambda: windows().stash, 2),
            TypeError,
            "dataset ... ts.Mix ... got a Stash",
        ),
    ],
)
def test_what_is_no_windows_or_batch_size_is_refused(
    arguments: tuple[Callable[[], Any], Any], error: type[Exception], message: str
) -> None:
    make, batch_size = arguments
    with pytest.raises(error, match=like(message)):
        ts.Loader(make(), batch_size)


@pytest.mark.parametrize("prefetch", [1.5, "2", True])
def test_prefetch_is_a_count(prefetch: Any) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'prefetch must be an integer >= 0, got {prefetch!r}.')}$"):
        ts.Loader(windows(), 8, prefetch=prefetch)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.usefixtures("shm", "way")
def test_a_copy_of_a_used_loader_holds_nothing_of_the_stash(prefetch: int, copied: Callable[[Any], Any]) -> None:
    """A pickle has the name of the shared stash, not its values, and goes on where the loader stands."""
    stash = ts.load({"y": np.arange(5_000.0)}, share="pickled")
    loader = ts.Loader(ts.Windows(stash, 10), 64, shuffle=True, prefetch=prefetch)
    for _, _batch in zip(range(3), loader):
        pass
    assert len(pickle.dumps(loader)) < 5000
    again = copied(loader)
    assert again.state_dict() == loader.state_dict()
    assert all(oracle.same(one["y"], two["y"]) for one, two in zip(again, loader, strict=True))


def test_the_last_transform_may_return_anything() -> None:
    def as_tuple(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return batch["past"], batch["code"]

    def same_batch(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return batch

    made: list[Any] = list(ts.Loader(windows(), 32, transform=[same_batch, as_tuple]))
    exact = list(ts.Loader(windows(), 32))
    assert all(oracle.same(past, one["past"]) for (past, _), one in zip(made, exact, strict=True))
    message = "A transform must return the batch, ... as_tuple ... returned a tuple"
    with pytest.raises(TypeError, match=like(message)):
        next(iter(ts.Loader(windows(), 32, transform=[as_tuple, same_batch])))


@pytest.mark.parametrize("tail", ["keep", "pad", "drop"])
def test_valid_can_always_be_asked_for(tail: Tail) -> None:
    """So that one loss function serves any number of ranks."""
    n, masks = len(windows()), []
    for batch in ts.Loader(windows(), 32, tail=tail, with_valid=True):
        assert batch["valid"].dtype == torch.bool
        assert len(batch["valid"]) == len(batch["past"])
        masks += batch["valid"].tolist()
    assert sum(masks) == (n if tail != "drop" else n // 32 * 32)
    assert all(masks) == (tail != "pad")


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loop_that_is_left_sees_the_next_epoch(prefetch: int) -> None:
    """Not the same part of the data for ever, and with `steps=` the part after it."""
    loader = ts.Loader(windows(), 32, shuffle=True, prefetch=prefetch, with_ids=True)
    firsts = [next(iter(loader))["window"].tolist() for _ in range(3)]
    assert firsts == [orders.shuffled(len(windows()), 0, epoch)[:32] for epoch in range(3)]
    loader = ts.Loader(windows(), 32, shuffle=True, prefetch=prefetch, with_ids=True, steps=4)
    assert len(loader) == 4
    made = [[batch["window"].tolist() for batch in loader] for _ in range(2)]
    order = np.array(orders.shuffled(len(windows()), 0, 0)[: 8 * 32]).reshape(2, 4, 32)
    assert made == order.tolist()


FORKED = """
        import os, torch, numpy as np, tensorstash as ts
        torch.set_num_threads(2)
        windows = ts.Windows(ts.load({"y": np.arange(1000.0)}), 10)
        if os.fork() == 0:
            BODY
            os._exit(0)
        raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


WITHOUT_THE_KERNEL = (
    "from tensorstash.native import library; library.LIBRARY = None; library._has_warned['absent'] = True; "
)


def run_forked(body: str) -> subprocess.CompletedProcess[str]:
    return run(FORKED.replace("BODY", body))


def run(program: str) -> subprocess.CompletedProcess[str]:
    return processes.run(textwrap.dedent(program), warn="ignore")  # it forks with threads, which is the point here


BATCHES = "assert sum(len(batch['y']) for batch in ts.Loader(windows, 10, shuffle=True)) == len(windows)"


@pytest.mark.host("the processes that it starts take their own way")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@kernel.needed
def test_a_forked_process_gathers_with_the_kernel_on_any_threads() -> None:
    for body in ("assert windows[[3]]['y'][0, 0] == 3.0", BATCHES):
        done = run_forked(body)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.host("the processes that it starts take their own way")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_gathers_with_torch_on_one_thread_only() -> None:
    alone = run_forked(f"{WITHOUT_THE_KERNEL}torch.set_num_threads(1); assert windows[[3]]['y'][0, 0] == 3.0")
    assert (alone.returncode, alone.stderr) == (0, "")
    several = run_forked(f"{WITHOUT_THE_KERNEL}windows[[3]]")
    assert several.returncode != 0
    assert "RuntimeError: A forked process can gather on one thread only, because torch's thread pool" in several.stderr
    assert "torch.set_num_threads(1)" in several.stderr


@pytest.mark.host("the processes that it starts take their own way")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_cannot_go_on_with_an_iterator_that_prefetches() -> None:
    """It has no such thread, and would wait for ever."""
    begun = """loader = ts.Loader(windows, 8, prefetch=2)
        passing = iter(loader)
        next(passing)
        if os.fork() == 0:"""
    program = FORKED.replace("if os.fork() == 0:", begun)
    goes_on = run(program.replace("BODY", "torch.set_num_threads(1); [*passing]"))
    assert goes_on.returncode != 0
    assert (
        "RuntimeError: A forked process cannot continue an iterator that was begun before the fork with prefetch, "
        "because the thread that prefetches does not survive a fork. Begin a new iterator in the child, or use "
        "prefetch=0.\n"
    ) in goes_on.stderr
    anew = run(program.replace("BODY", "torch.set_num_threads(1); assert len([*loader]) == len(loader)"))
    assert (anew.returncode, anew.stderr) == (0, "")


@pytest.mark.host("it has a device of its own")
@pytest.mark.device
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_on_an_accelerator_are_those_of_the_cpu(prefetch: int, accelerator: torch.device) -> None:
    host = list(ts.Loader(windows(2000), 64, shuffle=True))
    device = list(ts.Loader(windows(2000), 64, shuffle=True, device=accelerator, prefetch=prefetch))
    for one, two in zip(host, device, strict=True):
        assert {tensor.device.type for tensor in two.values()} == {accelerator.type}
        assert all(oracle.same(one[name], two[name].cpu()) for name in one)


@pytest.mark.host("it has a device of its own")
def test_batches_move_to_another_device() -> None:
    """The meta device stands for those that are neither the CPU nor CUDA."""
    batch = next(iter(ts.Loader(windows(), 8, device="meta", tail="pad")))
    assert {tensor.device.type for tensor in batch.values()} == {"meta"}
    assert batch["pack"].shape == (8, 6, 3)
    assert batch["flag"].dtype == torch.bool


def with_static() -> ts.Stash:
    """Five entities; every static column tells the entity."""
    entity = np.repeat(np.arange(5), [4, 6, 3, 7, 5])
    columns = {f"s_{name}": torch.from_numpy(entity).to(dtype) for name, dtype in DTYPES.items()}
    columns["s_pair"] = torch.from_numpy(np.stack([entity, entity + 0.5], 1))
    data = {"e": entity, "y": np.arange(25.0), **columns, "s_text": [f"name {k}" for k in entity]}
    return ts.load(data, ["y"], entity="e", static=[*columns, "s_text"])


@pytest.mark.parametrize("gaps", [{}, {"min_history": 1}])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("horizon", [0, 1])  # without one, the anchor of the last window stands in the next entity
def test_batches_carry_static_columns(gaps: dict[str, Any], prefetch: int, horizon: int) -> None:
    stash = with_static()
    windows = ts.Windows(stash, history=2, horizon=horizon, **gaps)
    loader = ts.Loader(windows, 4, shuffle=True, with_ids=True, prefetch=prefetch)
    for batch in loader:
        ids, entities = batch["window"], batch["entity"]
        for one in (batch, windows[ids]):
            for name, tensor in stash.static.items():
                assert oracle.same(one[name], torch.stack([tensor[entity] for entity in entities.tolist()]))
        assert oracle.same(windows[int(ids[0])]["s_pair"], stash.static["s_pair"][entities[0]])


def test_static_batches_are_never_the_stash() -> None:
    stash = with_static()
    batch = ts.Windows(stash, history=2)[[0, 1]]
    batch["s_f32"] += 100
    assert stash.static["s_f32"].tolist() == [0, 1, 2, 3, 4]


def test_a_span_has_no_name_of_a_static_column() -> None:
    message = "static column ... got 's_f32'"
    with pytest.raises(ts.errors.SchemaError, match=like(message)):
        ts.Windows(with_static(), spans={"s_f32": ("y", -2, 0)})


def test_lanes_follow_the_past_whatever_lags_there_are() -> None:
    stash = ts.load({"y": np.arange(40.0)})
    spans = {"past": ("y", -4, 0), "lag": ("y", -8, -6), "target": ("y", 0, 2)}
    batches = [*ts.Loader(ts.Windows(stash, spans=spans, stride=4), 2, order=ts.Lanes(2))]
    assert [batch["past"][:, 0].tolist() for batch in batches] == [[4, 20], [8, 24], [12, 28], [16, 32]]
    assert [batch["reset"].tolist() for batch in batches] == [[True, True]] + [[False, False]] * 3
