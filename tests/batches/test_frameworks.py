"""The loops of other packages, with the packages themselves: they take the loader, its sampler, state and batches."""

import importlib.util
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorstash as ts
from tests import orders, processes
from tests.project.pages import OF_OTHERS, ROOT, blocks, pages

N = 61  # windows: 8 steps of 2 ranks x 4, of which the last is shared out 3 to 2

TORCHRUN = "from torch.distributed.run import main; main()"

# what accelerate, and through it Trainer, is told
REFUSAL = (
    "A ts.Loader is used as it is, because it knows its rank and continues from load_state_dict(). Leave out "
    "prepare_data_loader() and skip_first_batches(), and give transformers' Trainer ignore_data_skip=True."
)


def stash_of(rows: int = N + 5) -> ts.Stash:
    """One entity whose values are the numbers of its rows, so that window k begins with k."""
    y = torch.arange(rows)
    return ts.load({"t": y, "y": y.double(), "x": torch.stack([y, -y], 1).float()}, ["y", "x"], time="t")


def windows_of(stash: ts.Stash) -> ts.Windows:
    return ts.Windows(stash, spans={"x": ("x", -4, 0), "y": ("y", 0, 2)})


# what every script begins with: the same windows, from the file that its first argument names
BEGIN = """
import json, os, sys
import torch
import tensorstash as ts

def windows_of(stash):
    return ts.Windows(stash, spans={"x": ("x", -4, 0), "y": ("y", 0, 2)})

def note(path, rank, epoch, batch):
    ids = batch["window"][batch["valid"]] if "valid" in batch else batch["window"]
    assert torch.equal(batch["y"][:, 0].long() - 4, batch["window"])
    with open(f"{path}-{rank}", "a") as file:
        print(json.dumps([epoch, ids.tolist()]), file=file)
"""


def run_script(tmp_path: Path, source: str, *arguments: str, ranks: int = 1) -> str:
    """Run a script of its own, as these packages want it, in so many ranks, and return what it printed."""
    script = tmp_path / "script.py"
    script.write_text(BEGIN + source, "utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment["OMP_NUM_THREADS"] = "1"
    program, begin = (script, ()) if ranks == 1 else (TORCHRUN, ("--standalone", f"--nproc-per-node={ranks}", script))
    done = processes.run(program, *begin, *arguments, cwd=tmp_path, env=environment, warn="default", nested=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(package: str) -> pytest.MarkDecorator:
    """For what only a script imports: a package may warn when it is imported, and here warnings are errors."""
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: loops of it are not tested")


def seen(path: Path, rank: int) -> list[tuple[int, list[int]]]:
    """What a rank of a script noted: the epoch and the windows of each step."""
    return [tuple(json.loads(line)) for line in Path(f"{path}-{rank}").read_text().splitlines()]


def steps_of(size: int, seed: int, epoch: int) -> list[list[int]]:
    """The order of an epoch, cut into steps."""
    order = orders.shuffled(N, seed, epoch)
    return [order[first : first + size] for first in range(0, N, size)]


def expected(rank: int, epochs: int) -> list[tuple[int, list[int]]]:
    """What rank `rank` of 2 sees in so many epochs: its half of every step, the larger one for rank 0."""
    made = []
    for epoch in range(epochs):
        for step in steps_of(8, 7, epoch):
            half = -(-len(step) // 2)
            made.append((epoch, step[half:] if rank else step[:half]))
    return made


def assert_ranks_share_every_epoch(ranks: list[list[tuple[int, list[int]]]], epochs: int) -> None:
    """Each window once per epoch over all ranks, and another order in each."""
    orders = []
    for epoch in range(epochs):
        parts = [[k for at, ids in rank if at == epoch for k in ids] for rank in ranks]
        assert sorted(k for part in parts for k in part) == list(range(N))
        assert all(parts)
        orders.append(parts)
    assert all(one != two for k, one in enumerate(orders) for two in orders[:k])


# PyTorch's own loader

DATA_LOADER = """
if __name__ == "__main__":
    method, saved, path, out = sys.argv[1:]
    stash = ts.open(path)
    if saved == "private":
        stash = ts.load({"t": stash.time, "y": stash["y"], "x": stash["x"]}, ["y", "x"], time="t")
    windows = windows_of(stash)
    made = []
    for workers in (0, 2):
        # workers that stay cost no second start, and see another epoch of the same sampler
        kind = {"multiprocessing_context": method, "persistent_workers": method != "fork"} if workers else {}
        sampler = ts.Sampler(len(windows), batch_size=7, shuffle=True, seed=3)
        loader = torch.utils.data.DataLoader(windows, sampler=sampler, batch_size=None, num_workers=workers, **kind)
        passes = []
        for epoch in (0, 5):
            sampler.set_epoch(epoch)
            passes.append([{name: tensor.clone() for name, tensor in batch.items()} for batch in loader])
        made.append(passes)
    torch.save(made, out)
"""


def shared_memory() -> set[str]:
    """What torch names its own."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {name for name in names if name.startswith("torch_")}


def left_behind(before: set[str]) -> set[str]:
    """The names in shared memory that were not there before and stay; other programs' come and go."""
    new = shared_memory() - before
    for _ in range(50):
        if not new:
            break
        time.sleep(0.1)
        new &= shared_memory()
    return new


@pytest.mark.host("the processes that it starts take their own way")
@pytest.mark.parametrize("saved", ["private", "opened"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loader_gives_the_windows_of_the_samplers_ids(method: str, saved: str, tmp_path: Path) -> None:
    """With 0 and 2 workers: the windows of every step in order, `set_epoch` another order, no shared memory left."""
    stash = stash_of()
    stash.save(tmp_path / "stash")
    before = shared_memory()
    run_script(tmp_path, DATA_LOADER, method, saved, str(tmp_path / "stash"), str(tmp_path / "made"))
    assert left_behind(before) == set()
    windows = windows_of(stash)
    ids = [steps_of(7, 3, epoch) for epoch in (0, 5)]
    assert ids[0] != ids[1]
    for passes in torch.load(tmp_path / "made", weights_only=True):
        assert len(passes) == 2
        for batches, epoch_ids in zip(passes, ids):
            assert len(batches) == len(epoch_ids) == 9
            for batch, step in zip(batches, epoch_ids):
                exact = windows[step]
                assert list(batch) == list(exact)
                for name, tensor in exact.items():
                    assert batch[name].dtype == tensor.dtype
                    assert torch.equal(batch[name], tensor)


# States in the formats that checkpoints have


def loader_of(timed: bool = True) -> ts.Loader:
    stash = stash_of() if timed else ts.load({"y": torch.arange(N + 5).double(), "x": torch.ones(N + 5, 2)})
    return ts.Loader(windows_of(stash), 8, shuffle=True, seed=7, with_ids=True)


def through_json(loader: ts.Loader, other: ts.Loader, path: Path) -> None:
    path.write_text(json.dumps(loader.state_dict()))
    other.load_state_dict(json.loads(path.read_text()))


def through_torch_save(loader: ts.Loader, other: ts.Loader, path: Path) -> None:
    torch.save({"loader": loader.state_dict()}, path)
    other.load_state_dict(torch.load(path, weights_only=True)["loader"])


def through_distributed_checkpoint(loader: ts.Loader, other: ts.Loader, path: Path) -> None:
    """The dict of a state, which is loaded into the dict of another."""
    from torch.distributed.checkpoint.state_dict_loader import load  # takes seconds to import
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"loader": loader.state_dict()}, checkpoint_id=path, no_dist=True)
    state = {"loader": other.state_dict()}
    load(state, checkpoint_id=path, no_dist=True)
    other.load_state_dict(state["loader"])


def through_distributed_checkpoint_as_stateful(loader: ts.Loader, other: ts.Loader, path: Path) -> None:
    """The loader itself, which has what that package asks of a stateful object."""
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    save({"loader": loader}, checkpoint_id=path, no_dist=True)
    load({"loader": other}, checkpoint_id=path, no_dist=True)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize(
    "through",
    [
        through_json,
        through_torch_save,
        through_distributed_checkpoint,
        through_distributed_checkpoint_as_stateful,
    ],
)
def test_a_state_of_a_checkpoint_continues_with_exactly_the_remaining_windows(
    through: Any, timed: bool, tmp_path: Path
) -> None:
    whole = [[batch["window"].tolist() for batch in loader] for loader in [loader_of(timed)] for _ in range(3)]
    loader = loader_of(timed)
    for _ in loader:
        pass
    for step, _ in enumerate(loader):
        if step == 2:
            other = loader_of(timed)
            through(loader, other, tmp_path / "state")
            assert other.state_dict() == loader.state_dict()
            break
    assert [batch["window"].tolist() for batch in other] == whole[1][3:]
    assert [batch["window"].tolist() for batch in other] == whole[2]


@pytest.mark.host("the processes that it starts take their own way")
def test_distributed_checkpoint_in_a_process_group(tmp_path: Path) -> None:
    """Two ranks save one checkpoint together; one process alone takes up what is left of both."""
    source = """
import torch.distributed as dist
from torch.distributed import checkpoint

dist.init_process_group("gloo")
loader = ts.Loader(windows_of(ts.open(sys.argv[1])), 4, shuffle=True, seed=7, with_ids=True)
for step, batch in enumerate(loader):
    note(sys.argv[2], dist.get_rank(), 0, batch)
    if step == 2:
        checkpoint.save({"loader": loader}, checkpoint_id=sys.argv[3])
        break
dist.barrier()  # a rank that leaves first may abort the other
dist.destroy_process_group()
"""
    stash_of().save(tmp_path / "stash")
    arguments = (str(tmp_path / "stash"), str(tmp_path / "seen"), str(tmp_path / "checkpoint"))
    run_script(tmp_path, source, *arguments, ranks=2)
    taken = [k for rank in range(2) for _, ids in seen(tmp_path / "seen", rank) for k in ids]
    assert len(taken) == 24
    loader = loader_of()
    from torch.distributed.checkpoint.state_dict_loader import load

    with pytest.warns(UserWarning, match="torch.distributed is disabled, unavailable or uninitialized"):
        load({"loader": loader}, checkpoint_id=tmp_path / "checkpoint")
    left = [k for batch in loader for k in batch["window"].tolist()]
    assert sorted(taken + left) == list(range(N))


# The pages


@pytest.mark.host("the processes that it starts take their own way")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(package)) for name, package in OF_OTHERS.items() if package != "ray"]
)
def test_the_code_on_a_page_gives_the_values_it_states(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    (page,) = [path for path in pages() if path.name == name]
    printed = run_script(tmp_path, RUNS_A_PAGE, str(page))
    assert int(printed.splitlines()[-1]) >= 3
    shown = re.findall(r"^```text\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(shown) >= 3
    assert [text for text in shown if text not in printed] == []  # the packages print more


RUNS_A_PAGE = """
import warnings
warnings.simplefilter("ignore")
from pathlib import Path
from tests.project.pages import run

print(run(Path(sys.argv[1]))[1])
"""


# Lightning

# with the callback of the page
LIGHTNING = f"""
import warnings
warnings.simplefilter("ignore")
{blocks(ROOT / "docs" / "how-to" / "lightning.md")[0]}
"""
LIGHTNING += """
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, step):
        note(out, self.global_rank, self.current_epoch, batch)
        return (self.layer(batch["x"]).mean((1, 2)) - batch["y"].mean(1).float()).square().mean()

    def validation_step(self, batch, step):
        note(out + "-validation", self.global_rank, self.current_epoch, batch)

    def test_step(self, batch, step):
        note(out + "-test", self.global_rank, self.current_epoch, batch)

    def predict_step(self, batch, step):
        return batch["window"]

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 1e-6)
        steps = self.trainer.estimated_stepping_batches
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-6, total_steps=steps)
        return [optimizer], [{"scheduler": cycle, "interval": "step"}]

def trainer(devices, epochs, **more):
    return lightning.Trainer(
        accelerator="cpu", devices=devices, max_epochs=epochs, logger=False, enable_progress_bar=False,
        enable_model_summary=False, **more
    )
"""

LIGHTNING_FIT = """
if __name__ == "__main__":
    path, out, folder, resumed = sys.argv[1:]
    loader = ts.Loader(windows_of(ts.open(path)), 4, shuffle=True, seed=7, with_ids=True)
    save = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=4, save_top_k=-1)
    fit = trainer(2, 3, strategy="ddp", default_root_dir=folder, callbacks=[save, KeepLoaders(loader)])
    fit.fit(Module(), loader, ckpt_path=resumed or None)
    assert (fit.world_size, fit.global_step) == (2, 24)
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("lightning")
def test_lightning_fits_on_two_processes_and_resumes(tmp_path: Path) -> None:
    """Each rank takes its part, epochs differ, and a checkpoint brings exactly the windows that it leaves.

    The schedule asks for the steps of the run, so Lightning sets the data up before it restores states. One checkpoint
    is from the middle of an epoch, the other was saved with the last batch of an epoch in hand.
    """
    stash_of().save(tmp_path / "stash")

    def fit(name: str, resumed: Path | None = None) -> list[list[tuple[int, list[int]]]]:
        paths = (tmp_path / "stash", tmp_path / name, tmp_path / f"{name}-checkpoints", resumed or "")
        run_script(tmp_path, LIGHTNING + LIGHTNING_FIT, *map(str, paths))
        return [seen(tmp_path / name, rank) for rank in range(2)]

    whole = fit("whole")
    assert whole == [expected(rank, 3) for rank in range(2)]
    assert_ranks_share_every_epoch(whole, 3)
    for steps, state in ((12, (1, 4 * 2 * 4)), (16, (1, N))):
        saved = tmp_path / "whole-checkpoints" / f"step={steps}.ckpt"
        (found,) = torch.load(saved, weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        assert (found["epoch"], found["consumed"]) == state
        assert fit(f"rest-{steps}", saved) == [rank[steps:] for rank in whole]


LIGHTNING_RESUMES = """
from lightning.pytorch.utilities import CombinedLoader

class Both(Module):
    def training_step(self, batch, step):
        parts = [batch] if "window" in batch else [*batch.values()]
        self.seen.append([part["window"].tolist() for part in parts])
        return self.layer.weight.sum()

def fit(mode, steps, folder, resume=None):
    windows = windows_of(ts.open(path))
    loaders = [ts.Loader(windows, size, shuffle=True, seed=size, with_ids=True, steps=steps) for size in (8, 16)]
    if mode == "one":
        loaders = loaders[:1]
    given = loaders[0] if mode == "one" else CombinedLoader({"a": loaders[0], "b": loaders[1]}, mode)
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    keep = [KeepLoaders(*loaders)] if kept == "kept" else []
    model = Both()
    model.seen = []
    trainer(1, 2, callbacks=[save, *keep]).fit(model, given, ckpt_path=resume)
    return model.seen

path, out, folder, kept = sys.argv[1:]
wrong = []
for mode, steps in (("one", None), ("one", 5), ("min_size", None), ("max_size", 3), ("max_size_cycle", 3)):
    here = f"{folder}/{mode}-{steps}"
    whole = fit(mode, steps, here)
    for step in range(1, len(whole)):
        once = fit(mode, steps, f"{here}-{step}", f"{here}/step={step}.ckpt")
        if once != whole[step:]:
            wrong.append([mode, steps, step])
        if step in (2, 3) and kept == "kept":
            for again in (step + 1, len(whole) - 1):
                twice = fit(mode, steps, f"{here}-{step}-{again}", f"{here}-{step}/step={again}.ckpt")
                if twice != whole[again:]:
                    wrong.append([mode, steps, step, again])
print("wrong", json.dumps(wrong))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("lightning")
def test_lightning_resumes_at_every_step_of_one_loader_and_of_two(tmp_path: Path) -> None:
    """Also from a checkpoint of a run that was resumed. Without the callback the schedule loses the position."""
    stash_of().save(tmp_path / "stash")
    found = {}
    for kept in ("kept", "not kept"):
        paths = (tmp_path / "stash", tmp_path / "seen", tmp_path / kept)
        printed = run_script(tmp_path, LIGHTNING + LIGHTNING_RESUMES, *map(str, paths), kept)
        found[kept] = json.loads(printed.splitlines()[-1].removeprefix("wrong "))
    assert found["kept"] == []
    assert ["one", None, 3] in found["not kept"]


LIGHTNING_OWN = """
class Plain(Module):
    def training_step(self, batch, step):
        self.seen.append(batch["window"].tolist())
        return self.layer.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)

path, out, folder = sys.argv[1:]
windows = windows_of(ts.open(path))

def fit(loader, resume=None, **stop):
    model = Plain()
    model.seen = []
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    made = trainer(1, 3, callbacks=[save, KeepLoaders(loader)], **stop)
    made.fit(model, loader, ckpt_path=resume)
    made.save_checkpoint(folder + "/end.ckpt")
    return model.seen

def loader(shuffle=True):
    return ts.Loader(windows, 8, shuffle=shuffle, seed=7, with_ids=True)

fit(loader(), max_steps=3)
at_the_end, by_the_callback = (fit(loader(), f"{folder}/{name}.ckpt") for name in ("end", "step=3"))
print(json.dumps([at_the_end, by_the_callback, fit(loader(False), limit_train_batches=2)]))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("lightning")
def test_what_the_page_says_of_lightning_is_so(tmp_path: Path) -> None:
    """A checkpoint of a run that ended in an epoch leaves out its rest; how to see the same batches in each epoch."""
    stash_of().save(tmp_path / "stash")
    paths = (tmp_path / "stash", tmp_path / "seen", tmp_path / "checkpoints")
    printed = run_script(tmp_path, LIGHTNING + LIGHTNING_OWN, *map(str, paths))
    at_the_end, by_the_callback, limited = json.loads(printed.splitlines()[-1])
    whole = [step for epoch in range(3) for step in steps_of(8, 7, epoch)]
    assert at_the_end == whole[8:]
    assert by_the_callback == whole[3:]
    assert limited == [[*range(8)], [*range(8, 16)]] * 3


LIGHTNING_EVALUATION = """
if __name__ == "__main__":
    path, out, folder = sys.argv[1:]
    windows = windows_of(ts.open(path))
    train = ts.Loader(windows, 16, shuffle=True, seed=7, with_ids=True)
    rest = ts.Loader(windows, 16, with_ids=True)
    one = trainer(1, 2, default_root_dir=folder, enable_checkpointing=False, num_sanity_val_steps=0)
    one.fit(Module(), train, rest)
    one = trainer(1, 1, default_root_dir=folder)
    one.test(Module(), rest, verbose=False)
    print("predicted", json.dumps(torch.cat(one.predict(Module(), rest)).tolist()))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("lightning")
def test_lightning_validates_tests_and_predicts(tmp_path: Path) -> None:
    """A loader that is not shuffled gives every window in order, in each of these loops and again in every epoch."""
    stash_of().save(tmp_path / "stash")
    paths = (tmp_path / "stash", tmp_path / "seen", tmp_path)
    printed = run_script(tmp_path, LIGHTNING + LIGHTNING_EVALUATION, *map(str, paths))
    in_order = [list(range(first, min(first + 16, N))) for first in range(0, N, 16)]
    assert seen(tmp_path / "seen-validation", 0) == [(epoch, ids) for epoch in range(2) for ids in in_order]
    assert [ids for _, ids in seen(tmp_path / "seen-test", 0)] == in_order
    assert f"predicted {list(range(N))}\n" in printed


# Fabric

FABRIC = """
import warnings
warnings.simplefilter("ignore")
from lightning.fabric import Fabric

if __name__ == "__main__":
    path, out, checkpoint = sys.argv[1:]
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(2, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 1e-6))
    loader = ts.Loader(windows_of(ts.open(path)), 4, shuffle=True, seed=7, with_ids=True, device=fabric.device)
    state = {"model": model, "optimizer": optimizer, "loader": loader}
    try:
        fabric.setup_dataloaders(loader)
    except TypeError as error:
        assert str(error).startswith("Only PyTorch DataLoader are currently supported"), error
    resumed = os.path.exists(checkpoint)
    if resumed:
        fabric.load(checkpoint, state)
    for _ in range(2 if resumed else 3):
        for step, batch in enumerate(loader):
            epoch = loader.state_dict()["epoch"]
            note(out + "-rest" * resumed, fabric.global_rank, epoch, batch)
            loss = (model(batch["x"]).mean((1, 2)) - batch["y"].mean(1).float()).square().mean()
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (epoch, step) == (1, 3) and not resumed:
                fabric.save(checkpoint, state)
    fabric.barrier()  # a rank that leaves first may abort the other
    torch.distributed.destroy_process_group()
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("lightning")
def test_fabric_loops_over_a_loader_that_is_not_set_up_and_keeps_its_position(tmp_path: Path) -> None:
    stash_of().save(tmp_path / "stash")
    arguments = (str(tmp_path / "stash"), str(tmp_path / "seen"), str(tmp_path / "run.ckpt"))
    for _ in range(2):  # the second run finds the checkpoint
        run_script(tmp_path, FABRIC, *arguments, ranks=2)
    whole = [seen(tmp_path / "seen", rank) for rank in range(2)]
    assert whole == [expected(rank, 3) for rank in range(2)]
    assert [seen(tmp_path / "seen-rest", rank) for rank in range(2)] == [steps[12:] for steps in whole]


# Accelerate

ACCELERATE = """
from accelerate import Accelerator

path, out, folder = sys.argv[1:]
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-6))
loader = ts.Loader(windows_of(ts.open(path)), 4, shuffle=True, seed=7, with_ids=True, device=accelerator.device)
accelerator.register_for_checkpointing(loader)

def train(loader, out, epochs, save_at=None):
    for epoch in epochs:
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader):
            note(out, accelerator.process_index, epoch, batch)
            loss = (model(batch["x"]).mean((1, 2)) - batch["y"].mean(1).float()).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (epoch, step) == save_at:
                accelerator.save_state(folder)

train(loader, out + "-whole", range(3), save_at=(1, 3))
accelerator.load_state(folder)
train(loader, out + "-rest", range(1, 3))
accelerator.wait_for_everyone()  # a rank that leaves first may abort the other
accelerator.end_training()
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("accelerate")
def test_accelerate_loops_over_a_loader_that_is_not_prepared(tmp_path: Path) -> None:
    """Each rank takes its part without `prepare(loader)`, and a registered loader goes on where it was saved."""
    stash_of().save(tmp_path / "stash")
    arguments = (str(tmp_path / "stash"), str(tmp_path / "seen"), str(tmp_path / "state"))
    run_script(tmp_path, ACCELERATE, *arguments, ranks=2)
    whole = [seen(tmp_path / "seen-whole", rank) for rank in range(2)]
    assert whole == [expected(rank, 3) for rank in range(2)]
    assert_ranks_share_every_epoch(whole, 3)
    assert [seen(tmp_path / "seen-rest", rank) for rank in range(2)] == [steps[12:] for steps in whole]


ACCELERATE_PREPARES = """
from itertools import product
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import BatchSampler, DataLoader

path, out = sys.argv[1:]
made = []
for even, split in product((True, False), (False, True)):
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=even, split_batches=split)
    )
    for n, size, shuffle, tail in product((5, 61), (1, 4), (True, False), ("keep", "drop")):
        if split and size == 1:
            continue
        windows = windows_of(ts.open(path))
        if n == 5:
            windows = ts.Windows(windows.stash, spans={"x": ("x", -4, 0), "y": ("y", 0, 2)}, stride=15)
        assert len(windows) == n
        given = {"shuffle": shuffle, "num_replicas": 1, "rank": 0, "seed": 3}
        ids = [k for step in ts.Sampler(n, 1, **given) for k in step]
        seen = []
        for sampler in (ts.Sampler(n, size, tail=tail, **given), BatchSampler(ids, size, drop_last=tail == "drop")):
            loader = accelerator.prepare(DataLoader(windows, batch_sampler=sampler))
            assert len(loader) == len([*loader]) or not even
            sampler.set_epoch(0) if hasattr(sampler, "set_epoch") else None
            seen.append([batch["y"][:, 0].tolist() for batch in loader])
        made.append([[even, split, n, size, shuffle, tail], *seen])
with open(f"{out}-{accelerator.process_index}", "w") as file:
    json.dump(made, file)
accelerator.wait_for_everyone()
accelerator.end_training()
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("accelerate")
def test_accelerate_prepares_our_sampler_as_pytorchs_own(tmp_path: Path) -> None:
    """Also of few windows, where the package adds up batches of ids."""
    stash_of().save(tmp_path / "stash")
    run_script(tmp_path, ACCELERATE_PREPARES, str(tmp_path / "stash"), str(tmp_path / "made"), ranks=2)
    ranks = [json.loads(Path(f"{tmp_path}/made-{rank}").read_text()) for rank in range(2)]
    for (case, *first), (_, *second) in zip(*ranks, strict=True):
        for ours, theirs in (first, second):
            assert ours == theirs, case
        *_, n, _, _, tail = case
        if tail == "keep":
            assert len({value for rank in (first, second) for batch in rank[0] for value in batch}) == n, case


ACCELERATE_REFUSES = """
import numpy as np
from accelerate import Accelerator, skip_first_batches

windows = ts.Windows(ts.load({"y": np.arange(30.0)}), history=3)
loader, accelerator = ts.Loader(windows, 4, shuffle=True), Accelerator(cpu=True)
assert accelerator.prepare(loader) is loader
for wrong in (skip_first_batches, accelerator.skip_first_batches, accelerator.prepare_data_loader):
    try:
        wrong(loader)
    except TypeError as error:
        print(error)
whole = [batch["y"] for batch in ts.Loader(windows, 4, shuffle=True)]
for _ in zip(range(2), loader):
    pass
again = ts.Loader(windows, 4, shuffle=True)
again.load_state_dict(loader.state_dict())
assert all(one.equal(two["y"]) for one, two in zip(whole[2:], again, strict=True))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("accelerate")
def test_accelerate_neither_skips_nor_copies_a_loader(tmp_path: Path) -> None:
    """It would make a `DataLoader` of the windows, without the transforms, the device and the ranks of the loader."""
    printed = run_script(tmp_path, ACCELERATE_REFUSES).splitlines()
    assert len(printed) == 3
    (said,) = {*printed}
    assert said == REFUSAL


ACCUMULATING = """
from accelerate import Accelerator

path, out = sys.argv[1:]

def synced(steps=None):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-6))
    loader = ts.Loader(windows_of(ts.open(path)), 7, steps=steps)
    made = []
    for _ in range(2):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["x"]).mean())
                optimizer.step()
                optimizer.zero_grad()
                made.append(accelerator.sync_gradients)
    return made

print(json.dumps([synced(), synced(8)]))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("accelerate")
def test_accelerate_accumulates_over_the_end_of_an_epoch_of_a_loader(tmp_path: Path) -> None:
    """As the page says, and what it says to do helps: a whole number of groups in each pass."""
    stash_of().save(tmp_path / "stash")
    printed = run_script(tmp_path, ACCUMULATING, str(tmp_path / "stash"), str(tmp_path / "out"))
    over_the_end, at_the_end = json.loads(printed.splitlines()[-1])
    assert over_the_end == ([False] * 3 + [True]) * 4 + [False] * 2  # 9 steps in an epoch
    assert at_the_end == ([False] * 3 + [True]) * 4


# Trainer of transformers; `examples/huggingface_trainer.py` gives it a loader

TRAINER = """
import warnings
warnings.simplefilter("ignore")
from transformers import Trainer, TrainingArguments

path, out, folder = sys.argv[1:]
windows = windows_of(ts.open(path))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(2, 1), []

    def forward(self, x, y):
        self.seen.append((y[:, 0] - 4).long().tolist())
        return {"loss": (self.layer(x).mean((1, 2)) - y.mean(1).float()).square().mean()}

class OverSampler(Trainer):
    def get_train_dataloader(self):
        sampler = ts.Sampler(len(windows), 8, shuffle=True, seed=7)
        return self.accelerator.prepare(torch.utils.data.DataLoader(windows, batch_sampler=sampler))

def train(checkpoint=None):
    given = TrainingArguments(
        folder, save_steps=12, num_train_epochs=3, report_to=[], use_cpu=True, remove_unused_columns=False,
        learning_rate=1e-6, disable_tqdm=True,
    )
    model = Model()
    OverSampler(model, given, train_dataset=windows).train(resume_from_checkpoint=checkpoint)
    return model.seen

print(json.dumps([train(), train(folder + "/checkpoint-12")]))
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("transformers")
def test_trainer_resumes_over_a_data_loader_whose_batch_sampler_is_ours(tmp_path: Path) -> None:
    stash_of().save(tmp_path / "stash")
    printed = run_script(tmp_path, TRAINER, *(str(tmp_path / name) for name in ("stash", "seen", "checkpoints")))
    whole, rest = json.loads(printed.splitlines()[-1])
    assert whole == [step for epoch in range(3) for step in steps_of(8, 7, epoch)]
    assert rest == whole[12:]


TRAINER_OVER_LOADER = """
import shutil
from torch.utils.data import default_collate

class Noting(Trainer):
    def get_train_dataloader(self):
        return self.loader

def fit(name, accumulated, steps, state=None, resumed=None, skips=True):
    given = TrainingArguments(
        f"{folder}/{name}", save_steps=1, num_train_epochs=3, report_to=[], use_cpu=True, remove_unused_columns=False,
        disable_tqdm=True, ignore_data_skip=skips, gradient_accumulation_steps=accumulated, learning_rate=1e-6,
    )
    trainer = Noting(Model(), given)
    trainer.loader = ts.Loader(windows, 8, shuffle=True, seed=7, steps=steps)
    if state is not None:
        trainer.loader.load_state_dict(state)
    trainer.train(resume_from_checkpoint=resumed and f"{folder}/{resumed}")
    return trainer

def after(steps, batches):
    loader = ts.Loader(windows, 8, shuffle=True, seed=7, steps=steps)
    for _ in zip(range(batches), loader):
        pass
    return loader.state_dict()

print(json.dumps({
    f"{accumulated} of {steps}": [
        [trainer.state.global_step, trainer.model.seen]
        for trainer in (
            fit(f"{accumulated}-{steps}", accumulated, steps),
            fit("again", accumulated, steps, after(steps, 2 * accumulated), f"{accumulated}-{steps}/checkpoint-2"),
        )
    ]
    for accumulated, steps in ((2, None), (3, None), (3, 6))
}))
try:
    fit("refused", 1, None, resumed="2-None/checkpoint-2", skips=False)
except TypeError as error:
    print(error)
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("transformers")
def test_trainer_resumes_over_a_loader_with_gradients_that_are_accumulated(tmp_path: Path) -> None:
    """Every window comes; a step is missing at the end unless the steps of an epoch are a multiple of a group."""
    stash_of().save(tmp_path / "stash")
    arguments = (str(tmp_path / name) for name in ("stash", "seen", "checkpoints"))
    source = TRAINER.partition("class OverSampler")[0] + TRAINER_OVER_LOADER
    found, refusal = run_script(tmp_path, source, *arguments).splitlines()[-2:]
    assert refusal == REFUSAL
    runs = json.loads(found)
    for name, taken, missing in (("2 of None", 4, 0), ("3 of 6", 6, 0), ("3 of None", 6, 1)):  # an epoch has 8 steps
        (whole_steps, whole), (steps, rest) = runs[name]
        assert (steps, rest) == (whole_steps - missing, whole[taken:])


EVALUATION = """
import os
import warnings
warnings.simplefilter("ignore")
from torch.utils.data import default_collate
from transformers import Trainer, TrainingArguments

path, out, folder = sys.argv[1:]
windows = windows_of(ts.open(path))
scaler = ts.Scaler.fit(windows, ["x"])

class Same(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, y):
        return {"loss": self.factor, "logits": self.factor * x[:, -1:]}

given = TrainingArguments(
    folder, report_to=[], use_cpu=True, remove_unused_columns=False, disable_tqdm=True, label_names=["y"],
    per_device_eval_batch_size=8,
)
trainer = Trainer(Same(), given, data_collator=lambda items: scaler(default_collate(items)))
found = trainer.predict(windows)
with open(f"{out}-{os.environ.get('RANK', 0)}", "w") as file:
    json.dump([scaler.inverse(torch.from_numpy(found.predictions), "x").tolist(), found.label_ids.tolist()], file)
trainer.accelerator.end_training()
"""


@pytest.mark.host("the processes that it starts take their own way")
@needs("transformers")
@pytest.mark.parametrize("ranks", [1, 2])
def test_trainer_predicts_windows_in_their_order(ranks: int, tmp_path: Path) -> None:
    """Each once, also where the last step of two ranks is filled; a scaler works in the collator."""
    stash_of().save(tmp_path / "stash")
    run_script(tmp_path, EVALUATION, *(str(tmp_path / name) for name in ("stash", "made", "out")), ranks=ranks)
    for rank in range(ranks):
        predicted, labels = json.loads((tmp_path / f"made-{rank}").read_text())
        assert labels == [[k + 4.0, k + 5.0] for k in range(N)]
        torch.testing.assert_close(torch.tensor(predicted)[:, 0], stash_of()["x"][3 : N + 3])


# TensorDict


def test_a_batch_is_a_tensordict_without_a_copy() -> None:
    """Every column and id is in it, the memory is the batch's, and indexing takes rows of all."""
    tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed: its dict is not tested")
    for batch in loader_of():
        made = tensordict.TensorDict(batch, batch_size=len(batch["y"]))
        assert set(made.keys()) == {"x", "y", "window", "entity", "anchor", "window.key"}
        assert made.batch_size == batch["y"].shape[:1]
        for name, tensor in batch.items():
            assert made[name].data_ptr() == tensor.data_ptr()
            assert torch.equal(made[name], tensor)
            assert torch.equal(made[1:3][name], tensor[1:3])
