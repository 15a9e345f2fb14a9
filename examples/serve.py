"""Serve a trained model: forecasts over HTTP from the last rows alone, checked against the whole data.

A small model is trained on the weather at three airports until the last day. It saves its weights, its scaler, the
reference of its columns, and the last rows of each airport. Another process serves them: a client of each airport sends
every hour's row and gets the forecast of the next day. At the end each forecast is compared, bit for bit, with that of
the whole data.

    python examples/serve.py
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
import torch
from dlinear import DLinear

import tensorstash as ts

SOURCE = Path(__file__).parent / "data" / "nyc_weather.parquet"
HISTORY, HORIZON = 96, 24  # hours
COLUMNS = {"x": ["temp"], "damp": pl.col("humid") / 100, "hour": ts.calendar("hour", cyclic=True)}
SPANS = {"past": ("x", -HISTORY, 0), "damp": ("damp", -HISTORY, 0), "hour": ("hour", -HISTORY, HORIZON)}
# what training and service have in common
WINDOWS: dict[str, Any] = {"gaps": "mask", "min_history": HISTORY // 2}
KEYS = ["origin", "time_hour"]


def main() -> None:
    """Train and ask; with a folder as argument, serve what stands in it."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        serve(Path(sys.argv[1]))
        return
    weather = pl.read_parquet(SOURCE, columns=[*KEYS, "temp", "humid"]).sort("time_hour")
    last_day = weather["time_hour"].max() - timedelta(days=1)  # type: ignore[operator]
    before, day = weather.filter(pl.col("time_hour") <= last_day), weather.filter(pl.col("time_hour") > last_day)
    with tempfile.TemporaryDirectory() as name:
        train(before, Path(name))
        served = ask(Path(name), day)
        check(Path(name), weather, served)


def train(rows: pl.DataFrame, folder: Path) -> None:
    """Fit a model and save all that a service needs."""
    torch.manual_seed(0)
    stash = ts.load(rows, COLUMNS, entity="origin", time="time_hour", dtype=torch.float32, progress=False)
    spans = SPANS | {"target": ("x", 0, HORIZON)}
    windows = ts.Windows(stash, spans=spans, require=["target"], stride=6, **WINDOWS)
    scaler, model = ts.Scaler.fit(windows, ["x"], by="entity"), DLinear(HISTORY, HORIZON)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for batch in ts.Loader(scaler.transform(windows), 64, shuffle=True, seed=0):
        loss = (model(batch["past"].nan_to_num(0)) - batch["target"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), folder / "weights.pt")
    (folder / "scaler.json").write_text(json.dumps(scaler.state_dict()))
    stash.without_rows().save(folder / "reference.safetensors")
    slots = windows.needs()["slots"]
    (folder / "service.json").write_text(json.dumps({"slots": slots}))
    rows.group_by("origin", maintain_order=True).tail(slots).write_parquet(folder / "rows.parquet")
    size = (folder / "reference.safetensors").stat().st_size
    print(f"trained on {stash.rows:,} rows; the reference has {size / 1e3:.0f} kB, the service keeps {slots} rows each")


@dataclass
class Service:
    """A model and the last rows of each series."""

    model: DLinear
    scaler: ts.Scaler
    reference: ts.Stash
    slots: int
    rows: pl.DataFrame
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def open(cls, folder: Path) -> "Service":
        """What `train` has saved."""
        model = DLinear(HISTORY, HORIZON)
        model.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
        scaler = ts.Scaler.from_state(json.loads((folder / "scaler.json").read_text()))
        slots = json.loads((folder / "service.json").read_text())["slots"]
        reference, rows = ts.open(folder / "reference.safetensors"), pl.read_parquet(folder / "rows.parquet")
        return cls(model, scaler, reference, slots, rows)

    def forecast(self, new: list[dict[str, Any]]) -> pl.DataFrame:
        """Append the new rows of an airport, and forecast its next hours. A row that comes again replaces the first."""
        texts = self.rows.schema | {"time_hour": pl.String}
        time = pl.col("time_hour").str.to_datetime(time_unit="us", time_zone="UTC")
        added = pl.DataFrame(new, schema=texts).with_columns(time)
        with self.lock:
            rows = pl.concat([self.rows, added]).unique(KEYS, keep="last", maintain_order=True).sort("time_hour")
            kept = rows.group_by("origin", maintain_order=True).tail(self.slots)
            own = kept.filter(pl.col("origin") == added["origin"][0])
            stash = ts.load(own, like=self.reference, unknown="error", progress=False)
            self.rows = kept  # rows that cannot be loaded are not kept
        newest = ts.Windows(stash, spans=SPANS | {"target": ("x", 0, HORIZON)}, min_horizon=0, **WINDOWS).latest()
        return predicted(self.model, self.scaler, newest, 0)


@torch.no_grad()
def predicted(model: DLinear, scaler: ts.Scaler, windows: ts.Windows, which: int) -> pl.DataFrame:
    """The forecast of one window in degrees."""
    bound, entity = scaler.bind(windows), windows.anchors([which])["entity"]
    batch = bound(windows[[which]] | {"entity": entity})
    forecast = bound.inverse(model(batch["past"].nan_to_num(0)), "x", entity=entity)
    return windows.to_frame([which], forecast, names=["temp"])


def serve(folder: Path) -> None:
    """Answer each POST of rows with the forecast of their airport, and print the port."""
    service = Service.open(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                status, answer = 200, service.forecast(json.loads(body)).write_json()
            except (ValueError, TypeError, LookupError) as error:  # the sender's: an unknown airport, a column too few
                status, answer = 400, json.dumps({"error": str(error)})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def ask(folder: Path, day: pl.DataFrame) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The answers to a client for each airport, all at the same time, by airport and hour."""
    texts = day.with_columns(pl.col("time_hour").dt.strftime("%FT%T"))

    def client(airport: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
        answers = {}
        for row in texts.filter(pl.col("origin") == airport).iter_rows(named=True):
            status, answers[airport, row["time_hour"]] = post(port, [row])
            assert status == 200, answers
            assert post(port, [row]) == (200, answers[airport, row["time_hour"]])  # as if the answer had been lost
        return answers

    process = subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with ThreadPoolExecutor() as pool:
            answers = [*pool.map(client, day["origin"].unique().sort())]
        status, answer = post(port, [{"origin": "XXX", "time_hour": "2013-12-30T00:00:00", "temp": 1.0, "humid": 1.0}])
        print(f"an unknown airport: {status}, {answer}")
    finally:
        process.terminate()
        process.communicate()
    return {key: value for part in answers for key, value in part.items()}


def post(port: int, rows: list[dict[str, Any]]) -> tuple[int, Any]:
    """Send rows to the service; the status and the answer."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/", json.dumps(rows))
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def check(folder: Path, weather: pl.DataFrame, served: dict[tuple[str, str], list[dict[str, Any]]]) -> None:
    """Compare all answers with the forecasts of the whole data at their hour."""
    service = Service.open(folder)
    spans = SPANS | {"target": ("x", 0, HORIZON)}
    windows = ts.Windows(ts.load(weather, like=service.reference, progress=False), spans=spans, **WINDOWS)
    same = 0
    for (airport, hour), answer in served.items():
        moment = pl.lit(hour).str.to_datetime(time_unit="us", time_zone="UTC")
        rows = weather.filter(pl.col("time_hour") <= moment, pl.col("origin") == airport)
        newest = windows.on(ts.load(rows, like=service.reference, progress=False)).latest()
        same += json.loads(predicted(service.model, service.scaler, newest, 0).write_json()) == answer
    print(f"{same} of {len(served)} forecasts are those of the whole data")


if __name__ == "__main__":
    main()
