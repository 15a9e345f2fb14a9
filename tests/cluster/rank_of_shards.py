"""One rank of a job over shards, under torchrun: writes which windows it was given, and where it stands."""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist

import tensorstash as ts


def main(path: str, out: Path, run: str, batch_size: int, stop: int) -> None:
    """Train from where the last run stood, for so many steps."""
    dist.init_process_group("gloo")
    shards = ts.cluster.open(path, share="shards")
    # a table is whole on each node, in one copy for its ranks
    rates = ts.load({"t": range(99), "rate": [*map(float, range(99))]}, ["rate"], time="t", share="rates")
    rate = ts.During("rate", -1, 0, max_rows=1, table="rates")
    spans = {"past": ("y", -2, 0), "next": ("y", 0, 1), "rate": rate}
    windows = ts.cluster.windows(shards, spans=spans, tables={"rates": rates})
    train, _ = windows.split(30)
    train = ts.cluster.exchange_counts(train)
    scaler = ts.cluster.fit_scaler(train, ["y"])
    loader = ts.Loader(train, batch_size, shuffle=True, with_ids=True, transform=[scaler])
    if (out / "state.json").exists():
        loader.load_state_dict(json.loads((out / "state.json").read_text()))
    seen, sizes = [], []
    for step, batch in enumerate(loader, 1):
        sizes.append(len(batch["past"]))
        named = [shards.entities[entity] for entity in batch["entity"].tolist()]
        values = scaler.inverse(batch)["past"][:, 0].round().int().tolist()
        assert (batch["rate"][:, 0] == batch["anchor"] - 1).all()
        rows = zip(named, batch["anchor"].tolist(), values, batch["valid"].tolist())
        seen += [row[:3] for row in rows if row[3]]
        if step == stop:
            break
    told = {
        "seen": seen,
        "sizes": sizes,
        "state": loader.state_dict(),
        "scaler": scaler.state_dict(),
        "held": list(shards.held),
        "here": sorted(os.listdir(os.environ["TENSORSTASH_DIR"])),
        "length": len(train),
    }
    (out / f"{run}-{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
