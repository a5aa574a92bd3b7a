"""Whether `split: time` makes the stages of a model more equal than estimates do.

python experiments/pipeline/split_by_time.py [--smoke]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "common"))

from markdown_tables import markdown_table, with_quartiles  # noqa: E402
from run_ranks import run_ranks  # noqa: E402

MODELS = {"recurrent": [50, 8], "attention": [100, 8], "perceptron": [784]}
"""Function in `networks` -> shape of a sample."""
SPLITS = ("balanced", "parameters", "time")
BATCH, N_STEPS = 128, 4


def train_all(wanted: dict[str, Any]) -> None:
    """On each rank: a training for each way to divide; rank 0 writes the CPU times of the stages."""
    import torch
    from mpi4py import MPI

    from mpi_learn import train
    from mpi_learn.data.samples.batches import Dataset
    from mpi_learn.data.samples.stored_samples import Samples
    from mpi_learn.models.torch_.stages import TorchStage

    world, used = MPI.COMM_WORLD, [0.0]
    torch.set_num_threads(1)

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.thread_time()
            found = method(*arguments)
            used[0] += time.thread_time() - started
            return found

        return call

    TorchStage.forward, TorchStage.backward = timed(TorchStage.forward), timed(TorchStage.backward)  # type: ignore[method-assign]
    n = BATCH * N_STEPS
    x = np.random.default_rng(0).normal(size=(n, *wanted["shape"])).astype(np.float32)
    samples = Samples((x,), (np.arange(n) % 4,))
    dataset = Dataset(samples, samples, np.arange(n), np.arange(0))
    for _ in range(wanted["turns"]):
        turn = {}
        for split in SPLITS:
            of_epochs: list[float] = []

            def after_epoch(epoch: int, metrics: dict[str, float], into: list[float] = of_epochs) -> bool:
                into.append(used[0])
                return False

            configuration = {
                "model": f"{HERE / 'networks.py'}:{wanted['model']}",
                "loss": "cross_entropy",
                "batch_size": BATCH,
                "epochs": 2,
                "pipeline": {"stages": 2, "micro_batches": 4, "split": split},
            }
            train(configuration, world, data=dataset, on_epoch=after_epoch)
            of_stages = world.gather((of_epochs[1] - of_epochs[0]) / N_STEPS)
            if world.rank == 0:
                turn[split] = of_stages
        if world.rank == 0:
            with Path("turns.jsonl").open("a") as file:
                file.write(json.dumps(turn) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short form")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--ranks", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranks:
        train_all(json.loads(options.ranks))
        return
    rows = []
    for model, shape in list(MODELS.items())[-1 if options.smoke else 0 :]:
        wanted = {"model": model, "shape": shape, "turns": 1 if options.smoke else options.turns}
        with tempfile.TemporaryDirectory() as folder:
            run_ranks(2, HERE / "split_by_time.py", "--ranks", json.dumps(wanted), folder=Path(folder))
            turns = [json.loads(line) for line in Path(folder, "turns.jsonl").read_text().splitlines()]
        for split in SPLITS:
            times = np.array([turn[split] for turn in turns])
            longest = 100 * times.max(1) / times.sum(1)  # other programs make all stages of a turn slower
            shown = ", ".join(f"{milliseconds:.0f}" for milliseconds in np.median(times, axis=0) * 1e3)
            rows.append((model, split, len(turns), shown, with_quartiles(longest)))
    titles = ("model", "split", "turns", "CPU time of the stages in a step, ms", "share of the longest stage, %")
    print(markdown_table(titles, rows))


if __name__ == "__main__":
    main()
