"""Two ranks, of which one takes twice as long for each sample: how fast is a training with equal and balanced shares?

Run it in the project's folder: python experiments/width/balance.py
The time of a sample is a pause, so that other programs on the machine do not change the result.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from settings import SHARDS, TOTAL, training

from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "common"))
PAUSE_S, SLOWNESS, EPOCHS = 0.001, 2.0, 4
BATCHES: dict[str, dict[str, Any]] = {
    "equal": {"total": TOTAL},
    "balanced": {"total": TOTAL, "balance": True},
    "equal, 12 shards": {"total": TOTAL, "shards": SHARDS},
    "balanced, 12 shards": {"total": TOTAL, "shards": SHARDS, "balance": True},
}


def train_once(data: Path, batch_size: dict[str, Any], out: Path) -> None:
    """Trains on all ranks of the world; rank 0 writes the speed of each epoch and the losses."""
    from mpi4py import MPI

    from mpi_learn import train

    parameters = {"is_random": "shards" in batch_size, "pause_s": PAUSE_S, "slowness": SLOWNESS}
    changes = {"batch_size": batch_size, "epochs": EPOCHS, "parameters": parameters}
    speeds: list[float] = []
    configuration = training("torch", data, **changes)
    result = train(configuration, MPI.COMM_WORLD, progress=lambda report: speeds.append(report.samples_per_second))
    if MPI.COMM_WORLD.rank == 0:
        out.write_text(json.dumps({"speeds": speeds, "losses": result.history["loss"]}))


def main() -> None:
    """Trains with each kind of shares and prints the table of the README."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--smoke", action="store_true", help="has no effect: the program takes less than a minute")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # arguments of `train_once` as JSON
    options = parser.parse_args()
    if options.one:
        data, batch_size, out = json.loads(options.one)
        train_once(Path(data), batch_size, Path(out))
        return
    from markdown_tables import markdown_table
    from run_ranks import run_ranks

    ideal, rows, losses = (1 + 1 / SLOWNESS) / PAUSE_S, [], {}
    with tempfile.TemporaryDirectory() as name:
        prepare("digits", data := Path(name, "digits.h5"))
        for shares, batch_size in BATCHES.items():
            out = Path(name, "out.json")
            run_ranks(2, __file__, "--one", json.dumps([str(data), batch_size, str(out)]), folder=HERE)
            found = json.loads(out.read_text())
            losses[shares] = found["losses"]
            other = losses[shares.replace("balanced", "equal")]
            difference = max(abs(a - b) for a, b in zip(found["losses"], other, strict=True))
            first, *later = found["speeds"]
            speed = sum(later) / len(later)
            rows.append([shares, f"{first:.0f}", f"{speed:.0f}", f"{speed / ideal:.0%}", f"{difference:.1e}"])
    head = ["shares", "samples/s, first epoch", "later", "of the ideal", "largest difference of losses"]
    print(markdown_table(head, rows))


if __name__ == "__main__":
    main()
