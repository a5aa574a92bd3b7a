"""Trainings over a slow link between hosts; writes ``results.json``, ``slow_link.png`` and the tables of the README.

    python experiments/slow_link/slow_link.py --data mnist.h5 [--only NAME …] [--print]
    python experiments/slow_link/slow_link.py --data mnist.h5 --muon      # the rows with Muon; writes ``muon.json``
    python experiments/slow_link/slow_link.py --data mnist.h5 --tuning    # learning rates of downpour, without network

Needs root on Linux: see ``network.py``. Runs in ``results.json`` with the same settings are not repeated.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import h5py
import numpy as np
from network import SUBNET, Network, slow_network
from runs import MUON, N_RANKS, N_TRAINING, ROWS, TUNING, WARM_UP, Run, seeds
from tables import show, with_spread

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags

HERE = Path(__file__).resolve().parent
RESULTS, MUON_RESULTS = HERE / "results.json", HERE / "muon.json"
N_VALIDATION = 10_000
LATENCY_S, BANDWIDTH_MBIT_S = 0.010, 100.0


def write_images(folder: Path, source: Path, *, is_tuning: bool = False, n_training: int = N_TRAINING) -> None:
    """Writes ``train.h5``, the first images of MNIST, and ``validation.h5``, as 784 numbers between 0 and 1.

    Args:
        source: The training images of MNIST, with the test set beside it.
        is_tuning: Whether the validation data are the next 10,000 training images, and not the test set.
    """
    test = source.with_name(f"{source.stem}_test{source.suffix}")
    others = (source, slice(n_training, n_training + N_VALIDATION)) if is_tuning else (test, slice(None))
    for name, (file, part) in {"train": (source, slice(n_training)), "validation": others}.items():
        with h5py.File(file) as images, h5py.File(folder / f"{name}.h5", "w") as written:
            written["X"] = np.asarray(images["X"][part], np.float32).reshape(-1, 784) / 255
            written["y"] = np.asarray(images["y"][part], np.int64)


def mpirun(network: Network | None, n_ranks: int = N_RANKS, n_coordinators: int = 0) -> list[str]:
    """The command that starts `n_ranks` ranks, evenly on the hosts of `network`; None: on this machine.

    The hosts share the cores of this machine, which Open MPI cannot know, so that a rank that waits in a collective has
    to yield. Open MPI's two-level collectives (han) send a vector in many small pieces, each of which takes a latency.
    The plain ring is six times as fast here and is used instead.

    Args:
        n_coordinators: Further ranks on the first host, before the others.
    """
    program = find_mpirun()
    flags = [*launch_flags(program), "--mca", "coll", "^han", "--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"]
    n = ["-np", str(n_ranks + n_coordinators)]
    if network is None:
        return [program, *flags, *n]
    agent, per_host = f"{HERE}/agent.sh", n_ranks // len(network.hosts)
    slots = [per_host + n_coordinators, *[per_host] * (len(network.hosts) - 1)]
    flags += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1", "--map-by", "slot"]
    flags += ["--host", ",".join(f"{host}:{n_slots}" for host, n_slots in zip(network.hosts, slots, strict=True))]
    flags += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
    flags += ["--mca", "btl_tcp_if_include", SUBNET, "--prtemca", "prte_if_include", SUBNET]
    return [agent, network.hosts[0], program, *flags, *n]


def train(network: Network | None, runs: list[Run], data: Path, *, is_tuning: bool = False) -> Iterator[dict]:
    """Makes some trainings one after the other; returns the history and the samples per second of each."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), data, is_tuning=is_tuning)
        yield from trained(network, [configuration(run, folder) for run in runs], Path(folder))


def trained(network: Network | None, contents: list[dict], folder: Path, n_ranks: int = N_RANKS) -> Iterator[dict]:
    """Trains with each content of a training.yaml, in one start of `n_ranks` ranks; returns what `ranks.py` prints."""
    lines = folder / "trainings.jsonl"
    lines.write_text("\n".join(map(json.dumps, contents)))
    environment = launch_environment() | {"OMP_NUM_THREADS": "1"}
    command = [*mpirun(network, n_ranks), sys.executable, f"{HERE}/ranks.py", str(lines)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        for line in running.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if running.returncode:
        raise SystemExit(running.returncode)


def configuration(run: Run, folder: str) -> dict:
    """The training.yaml of a run."""
    name = run.optimizer["name"]
    optimizer = run.optimizer | {"name": f"{HERE}/muon.py:MuonAdam" if name == "muon" else name}
    files = {"train": [f"{folder}/train.h5"], "validation": [f"{folder}/validation.h5"]}
    return {
        "model": f"{HERE}/model.py:mlp",
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "data": files | {"features": "X", "labels": "y"},
        "algorithm": run.algorithm,
        "optimizer": optimizer | {"learning_rate": run.learning_rate, "schedule": {"name": run.schedule}},
        "batch_size": run.batch_size,
        "epochs": run.epochs,
        "seed": run.seed,
    }


def measure(n_hosts: int, runs: list[Run], data: Path) -> Iterator[dict]:
    """Makes some runs on `n_hosts` hosts, after one that is not reported."""
    with slow_network(n_hosts, LATENCY_S, BANDWIDTH_MBIT_S) as network:
        found = train(network, [WARM_UP, *runs], data)
        next(found)
        yield from found


def tune(data: Path) -> None:
    """Prints the loss of each learning rate of `TUNING` on this machine, on images other than those of the test set."""
    for name, runs in TUNING.items():
        losses = [found["history"]["val_loss"][-1] for found in train(None, runs, data, is_tuning=True)]
        print(f"| {name} | {len(losses)} | {with_spread(np.array(losses))} |", flush=True)


def known(file: Path) -> dict:
    """The present results. They are read again each time, because two of these programs may run at the same time."""
    return json.loads(file.read_text()) if file.exists() else {}


def by_name(rows: dict[str, Run], file: Path) -> dict[str, list[dict]]:
    """The results of the rows that have some."""
    results = known(file)
    found = {name: [results[one.key] for one in seeds(run) if one.key in results] for name, run in rows.items()}
    return {name: results for name, results in found.items() if results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--only", nargs="+", choices=ROWS | MUON, help="some rows of the tables")
    parser.add_argument("--muon", action="store_true", help="the rows with Muon; their results are in muon.json")
    parser.add_argument("--print", action="store_true", help="only README and picture, from results.json")
    parser.add_argument("--tuning", action="store_true", help="compare learning rates of downpour on this machine")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.tuning:
        tune(arguments.data)
        return
    rows, file = (MUON, MUON_RESULTS) if arguments.muon else (ROWS, RESULTS)
    names = [] if arguments.print else [name for name in rows if name in (arguments.only or rows)]
    missing = [run for name in names for run in seeds(rows[name]) if run.key not in known(file)]
    # the rows take turns
    missing.sort(key=lambda run: (run.hosts, run.seed))
    for n_hosts, group in groupby(missing, key=lambda run: run.hosts):
        runs = list(group)
        for run, found in zip(runs, measure(n_hosts, runs, arguments.data), strict=True):
            file.write_text(json.dumps(known(file) | {run.key: found}, indent=1))
            print(run.key, f"{found['samples_per_second']:,.0f} samples/s", found["history"]["val_loss"], flush=True)
    show(by_name(ROWS, RESULTS), by_name(MUON, MUON_RESULTS))


if __name__ == "__main__":
    main()
