"""Training over a slow link between hosts; writes ``results.json``, ``slow_link.png`` and the tables of the README.

    python experiments/slow_link/slow_link.py --data mnist.h5 [--only clusters …] [--print]

As root on Linux: see ``network.py``. A run that stands in ``results.json`` with the same settings is not made again.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from network import SUBNET, Network, slow_network
from tables import show

from mpi_learn.cli.launch import find_mpirun, launch_environment, launch_flags

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
N_RANKS, N_TRAINING = 8, 10_240
LATENCY_S, BANDWIDTH_MBIT_S = 0.010, 100.0

COMMON = {
    "model": f"{HERE}/model.py:mlp",
    "loss": "sparse_categorical_crossentropy",
    "metrics": ["accuracy"],
}


def clusters(size: int, **options: object) -> dict:
    """An algorithm section."""
    return {"name": "clusters", "size": size, **options}


RUNS = {
    "allreduce": (4, {"name": "allreduce"}, 0.002, 32),
    "downpour": (4, {"name": "downpour"}, 0.001, 32),
    "clusters": (4, clusters(2), 0.002, 32),
    "clusters, rate 0.004": (4, clusters(2), 0.004, 32),
    "clusters, batch 16": (4, clusters(2), 0.002, 16),
    "clusters, batch 16, rate 0.004": (4, clusters(2), 0.004, 16),
    "clusters, batch 16, 4 epochs": (4, clusters(2), 0.002, 16),
    "clusters, batch 8": (4, clusters(2), 0.002, 8),
    "clusters, batch 8, rate 0.001": (4, clusters(2), 0.001, 8),
    "clusters of 1": (4, clusters(1), 0.002, 32),
    "clusters of 4": (4, clusters(4), 0.002, 32),
    "clusters of 8": (4, clusters(8), 0.002, 32),
    "8 hosts": (8, clusters(1), 0.002, 32),
    "2 hosts": (2, clusters(4), 0.002, 32),
    "1 host": (1, clusters(8), 0.002, 32),
}
"""Name -> (hosts that share the ranks, algorithm, learning rate, batch of a rank)."""
EPOCHS = {"clusters, batch 16, 4 epochs": 4}
"""Of runs that are longer than the others."""
SHORT = {"allreduce": 10_240, "downpour": 2_560, "clusters of 4": 10_240, "clusters of 8": 10_240}
"""Samples of the one epoch of which a slow run's speed may be measured, on a machine that has to be quiet meanwhile."""


def write_data(folder: Path, source: Path, n_training: int) -> None:
    """The first `n_training` images of MNIST and its test set, as 784 numbers between 0 and 1."""
    test = source.with_name(f"{source.stem}_test{source.suffix}")
    for name, file, n in (("train", source, n_training), ("validation", test, None)):
        with h5py.File(file) as images, h5py.File(folder / f"{name}.h5", "w") as written:
            written["X"] = np.asarray(images["X"][:n], np.float32).reshape(-1, 784) / 255
            written["y"] = np.asarray(images["y"][:n], np.int64)


def mpirun(network: Network | None) -> list[str]:
    """The command that starts `N_RANKS` ranks, evenly on the hosts of a network, or here without one.

    The hosts share this machine's cores, which Open MPI cannot know: a rank that waits in a collective has to yield.
    Open MPI's own two-level collectives (han) cut a vector in many small pieces and wait a latency for each: its plain
    ring is six times as fast here, so that is what runs.
    """
    program = find_mpirun()
    flags = [*launch_flags(program), "--mca", "coll", "^han", "--mca", "mpi_yield_when_idle", "1"]
    flags += ["--bind-to", "none", "-np", str(N_RANKS)]
    if network is None:
        return [program, *flags]
    agent, per_host = f"{HERE}/agent.sh", N_RANKS // len(network.hosts)
    flags += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
    flags += ["--host", ",".join(f"{host}:{per_host}" for host in network.hosts), "--map-by", f"ppr:{per_host}:node"]
    flags += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
    flags += ["--mca", "btl_tcp_if_include", SUBNET, "--prtemca", "prte_if_include", SUBNET]
    return [agent, network.hosts[0], program, *flags]


def train(network: Network | None, names: list[str], data: Path, n_short: int | None) -> Iterator[dict]:
    """Some trainings on the same hosts, one after the other: history and samples per second of each as it ends."""
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), data, n_short or N_TRAINING)
        lines = Path(folder) / "trainings.jsonl"
        lines.write_text("\n".join(json.dumps(configuration(name, Path(folder), n_short)) for name in names))
        environment = launch_environment() | {"OMP_NUM_THREADS": "1"}
        command = [*mpirun(network), sys.executable, f"{HERE}/ranks.py", str(lines)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
            for line in running.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        if running.returncode:
            raise SystemExit(running.returncode)


def configuration(name: str, folder: Path, n_short: int | None) -> dict:
    """The training.yaml of a run."""
    _, algorithm, rate, batch = RUNS[name]
    files = {"train": [f"{folder}/train.h5"], "validation": [f"{folder}/validation.h5"], "features": "X", "labels": "y"}
    settings = {"data": files, "algorithm": algorithm, "optimizer": {"name": "adam", "learning_rate": rate}}
    settings |= {"batch_size": batch}
    return COMMON | settings | {"epochs": n_epochs(name, n_short)}


def n_epochs(name: str, n_short: int | None) -> int:
    """How many epochs a run has."""
    return 1 if n_short else EPOCHS.get(name, 2)


def measure(names: list[str], data: Path, n_short: int | None) -> Iterator[dict]:
    """Some runs of the table, all on as many hosts."""
    n_hosts = RUNS[names[0]][0]
    if n_hosts == 1:
        yield from train(None, names, data, n_short)
        return
    with slow_network(n_hosts, LATENCY_S, BANDWIDTH_MBIT_S) as network:
        yield from train(network, names, data, n_short)


def key_of(name: str, n_short: int | None = None) -> str:
    """What a run is found again by: everything that determines it."""
    amount = [n_short or N_TRAINING, n_epochs(name, n_short)]
    return json.dumps([*RUNS[name], *amount, LATENCY_S, BANDWIDTH_MBIT_S], sort_keys=True)


def known() -> dict:
    """What was measured so far; read anew each time, for two of these programs may run at once."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def found_for(name: str, results: dict) -> dict | None:
    """A line of the table: the whole run, with the better speed of the two where there is a short one."""
    whole, short = results.get(key_of(name)), results.get(key_of(name, SHORT.get(name)), {})
    if whole is None:
        return None
    return whole | {"samples_per_second": max(whole["samples_per_second"], short.get("samples_per_second", 0.0))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="what `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="some lines of the table")
    parser.add_argument("--short", action="store_true", help="only the speed, on fewer samples, of the slow ones")
    parser.add_argument("--print", action="store_true", help="only README and picture, from results.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    groups: dict[tuple[int, int | None], list[str]] = {}
    for name in [] if arguments.print else arguments.only:
        n_short = SHORT.get(name) if arguments.short else None
        if (n_short or not arguments.short) and key_of(name, n_short) not in known():
            groups.setdefault((RUNS[name][0], n_short), []).append(name)
    for (_, n_short), names in groups.items():
        for name, found in zip(names, measure(names, arguments.data, n_short), strict=True):
            RESULTS.write_text(json.dumps(known() | {key_of(name, n_short): found}, indent=1))
            print(name, f"{found['samples_per_second']:,.0f} samples/s", found["history"]["val_loss"], flush=True)
    lines = {name: found_for(name, known()) for name in RUNS}
    show({name: line for name, line in lines.items() if line is not None})


if __name__ == "__main__":
    main()
