"""Speed, speed-up and share of communication on 1, 2 and 4 ranks, and a model of the step time.

    python experiments/scaling/measure.py --data mnist.h5          # as root on Linux, for the network; half an hour
    python experiments/scaling/measure.py --smoke                  # short form, writes no files

Writes ``results.json``, ``scaling.png`` and the tables of the README; ``--print`` only the last two. The programs of a
network take turns of one epoch, see ``turns.py`` of the experiment training_speed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "common"), str(HERE.parent / "training_speed"), str(HERE.parent / "slow_link")]

from network import SUBNET, Network, slow_network  # noqa: E402 - found by the path above
from report import BATCH, GRADIENT_BYTES, OF_MPI_LEARN, OF_OPEN_MPI, show  # noqa: E402
from turns import Program  # noqa: E402

from mpi_learn.job.launch import find_mpirun, launch_environment, launch_flags  # noqa: E402
from mpi_learn.mpi.library import EAGER_BYTES, EAGER_LIMIT  # noqa: E402
from mpi_learn.training.timing import tracing  # noqa: E402

RESULTS = HERE / "results.json"
N_SAMPLES = {"mlp": 38400, "cnn": 7680, "lstm": 7680}
PROGRAMS = {
    "Keras, 1 rank": ("ours-keras", 1, 1),
    "Keras, 1 rank of 2 threads": ("ours-keras", 1, 2),
    "Keras, 2 ranks": ("ours-keras", 2, 1),
    "Keras, 4 ranks": ("ours-keras", 4, 1),
    "Keras, 2 ranks, bare loop without Allreduce": ("bare-keras", 2, 1),
    "PyTorch, 1 rank": ("ours-torch", 1, 1),
    "PyTorch, 2 ranks": ("ours-torch", 2, 1),
    "PyTorch, 4 ranks": ("ours-torch", 4, 1),
    "PyTorch, 2 ranks, bare loop without Allreduce": ("bare-torch", 2, 1),
    "DDP, 1 rank": ("ddp", 1, 1),
    "DDP, 2 ranks": ("ddp", 2, 1),
    "DDP, 4 ranks": ("ddp", 4, 1),
}
"""Name -> (program, ranks, threads of a rank)."""
NETWORK = {"latency_s": 0.001, "bandwidth_mbit_s": 100.0}
HOSTS = (2, 4, 8)
EAGER_LIMITS = {OF_OPEN_MPI: 64 * 1024, OF_MPI_LEARN: EAGER_BYTES}
"""Name -> the longest message that Open MPI sends at once over TCP."""


def speeds(data: str, models: list[str], names: list[str], rounds: int, fraction: float) -> dict[str, Any]:
    """Samples per second of each turn, and the share of communication, of each program of each network."""
    found: dict[str, Any] = {}
    for model in models:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            programs = {}
            for number, name in enumerate(names):
                kind, ranks, threads = PROGRAMS[name]
                trace = folder / str(number)
                variables = {"THREADS": str(threads), "CHANGES": json.dumps({"trace": str(trace)})}
                if "without" in name:
                    variables["APART"] = "1"
                program = Program([kind, model, data, str(int(N_SAMPLES[model] * fraction))], ranks, variables)
                stack.callback(program.stop)
                program.wait_ready()
                programs[name] = program, trace
            for _ in range(rounds):
                for program, _ in programs.values():
                    program.run_epoch()
            found[model] = {}
            for name, (program, trace) in programs.items():
                found[model][name] = {"samples_per_second": program.end()["samples_per_second"]}
                if trace.is_dir():
                    found[model][name]["communication"] = communication(trace)
    return found


def communication(folder: Path) -> float:
    """The part of the time of the steps that ranks spend in communication, waiting for slower ranks included."""
    seconds = [trace.seconds() for trace in tracing.read_traces(folder)]
    spent = sum(one[tracing.COMMUNICATION] for one in seconds)
    return spent / max(spent + sum(one[tracing.COMPUTE] + one[tracing.DATA] for one in seconds), 1e-9)


def allreduces(network: Network | None, ranks: int, eager_bytes: int = EAGER_BYTES) -> list[list[float]]:
    """[ranks, bytes, seconds] for the gradient of each network, on a host or on the hosts of a network."""
    sizes = map(str, GRADIENT_BYTES.values())
    command = [*mpirun(network, ranks), sys.executable, str(HERE / "allreduce.py"), *sizes]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(eager_bytes), check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return [[ranks, int(n_bytes), seconds] for n_bytes, seconds in json.loads(line).items()]


def trainings(network: Network, data: Path, eager_bytes: int) -> dict[str, list[float]]:
    """Samples per second of epochs of 24 steps, of each network in PyTorch on the hosts of a network."""
    ranks = len(network.hosts)
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(data) as images, h5py.File(f"{folder}/train.h5", "w") as written:
            n = 24 * BATCH * ranks
            written["X"] = np.asarray(images["X"][:n], np.float32).reshape(-1, 28, 28) / 255
            written["y"] = np.asarray(images["y"][:n], np.int64)
        configurations = [
            {
                "model": f"{HERE.parent}/training_speed/torch_models.py:{model}",
                "loss": "sparse_categorical_crossentropy",
                "batch_size": BATCH,
                "epochs": 4,
                "data": {"train": [f"{folder}/train.h5"], "features": "X", "labels": "y"},
            }
            for model in GRADIENT_BYTES
        ]
        file = Path(folder) / "trainings.jsonl"
        file.write_text("\n".join(map(json.dumps, configurations)))
        command = [*mpirun(network, ranks), sys.executable, str(HERE / "trained.py"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(eager_bytes), check=True)
    found = [json.loads(line)["samples_per_second"] for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(GRADIENT_BYTES, found, strict=True))


def mpirun(network: Network | None, ranks: int) -> list[str]:
    """The command that starts `ranks` ranks here, or one on each host of a network."""
    program = find_mpirun()
    flags = [*launch_flags(program), "--mca", "coll", "^han", "--bind-to", "none", "-np", str(ranks)]
    if network is None:
        return [program, *flags]
    agent = str(HERE.parent / "slow_link" / "agent.sh")
    flags += ["--prtemca", "plm_ssh_agent", agent, "--prtemca", "plm_ssh_no_tree_spawn", "1"]
    flags += ["--host", ",".join(f"{host}:1" for host in network.hosts), "--map-by", "ppr:1:node"]
    flags += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp", "--mca", "mpi_yield_when_idle", "1"]
    flags += ["--mca", "btl_tcp_if_include", SUBNET, "--prtemca", "prte_if_include", SUBNET]
    return [agent, network.hosts[0], program, *flags]


def environment(eager_bytes: int) -> dict[str, str]:
    """Variables of the ranks: one thread each, and the longest message that Open MPI sends at once over TCP."""
    return launch_environment() | {"OMP_NUM_THREADS": "1", EAGER_LIMIT: str(eager_bytes)}


def over_network(data: Path) -> dict[str, Any]:
    """Allreduces and trainings on 2, 4 and 8 hosts of one rank each, with both eager limits."""
    found: dict[str, Any] = {name: {"allreduces": [], "samples_per_second": {}} for name in EAGER_LIMITS}
    for n_hosts in HOSTS:
        for name, eager_bytes in EAGER_LIMITS.items():
            with slow_network(n_hosts, **NETWORK) as network:
                found[name]["allreduces"] += allreduces(network, n_hosts, eager_bytes)
                found[name]["samples_per_second"][str(n_hosts)] = trainings(network, data, eager_bytes)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--only", nargs="+", choices=("here", "network"), default=("here", "network"), help="one part")
    parser.add_argument("--rounds", type=int, default=9, help="epochs of each program")
    parser.add_argument("--smoke", action="store_true", help="one small network, no host but this one, no files")
    parser.add_argument("--print", action="store_true", help="measure nothing; write tables and picture")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            data = f"{folder}/mnist.h5"
            with h5py.File(data, "w") as file:
                random = np.random.default_rng(0)
                file["X"], file["y"] = random.integers(0, 256, (2048, 28, 28), np.uint8), random.integers(0, 10, 2048)
            names = [
                "PyTorch, 1 rank",
                "PyTorch, 2 ranks",
                "PyTorch, 2 ranks, bare loop without Allreduce",
                "DDP, 2 ranks",
            ]
            found = {"speeds": speeds(data, ["mlp"], names, 2, 2048 / N_SAMPLES["mlp"]), "here": allreduces(None, 2)}
        print(show(found | {"machine": "short form"}, None))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.print:
        results["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
        data = options.data.resolve()
        if "network" in options.only:
            results["network"] = over_network(data) | NETWORK
        if "here" in options.only:
            results["here"] = allreduces(None, 2)
            results["speeds"] = speeds(str(data), list(N_SAMPLES), list(PROGRAMS), options.rounds, 1)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(show(results, HERE))


if __name__ == "__main__":
    main()
