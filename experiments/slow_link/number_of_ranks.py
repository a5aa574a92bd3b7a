"""Training time against the number of ranks over the slow link, divided into computation and communication.

    python experiments/slow_link/number_of_ranks.py --data mnist.h5 [--print]    # as root on Linux
    python experiments/slow_link/number_of_ranks.py --smoke                      # short form, without a network

Each host has two ranks. Writes `number_of_ranks.json` and `number_of_ranks.png`, and prints the table of the README.
Computation and communication are measured by the workers' timelines (key `trace`). The first training of each algorithm
is a warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy as np
from network import slow_network
from runs import ALLREDUCE, N_TRAINING, Run, clusters
from slow_link import BANDWIDTH_MBIT_S, HERE, LATENCY_S, configuration, trained, write_images
from tables import with_spread

from mpi_learn.training.timing.tracing import COMMUNICATION, COMPUTE, read_traces

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table

FILE = HERE / "number_of_ranks.json"
HOSTS = (1, 2, 3, 4)
RANKS_PER_HOST = 2
RUNS = {
    "downpour": (Run({"name": "downpour"}, 0.001, epochs=1), 1_280),
    "allreduce": (Run(ALLREDUCE, 0.003, epochs=1), 2_560),
    "clusters": (Run(clusters(), 0.002, epochs=1), N_TRAINING),
}
"""Name -> training, and its number of images. Slow algorithms train with fewer images."""
N_RUNS = 3
N_SMOKE = 256


def measure(n_hosts: int, data: Path, *, smoke: bool) -> dict[str, list[dict[str, float]]]:
    """Seconds per `N_TRAINING` images, and their parts, for each run of each algorithm on `n_hosts` hosts."""
    network = nullcontext() if n_hosts == 1 else slow_network(n_hosts, LATENCY_S, BANDWIDTH_MBIT_S)
    with network as hosts, tempfile.TemporaryDirectory() as name:
        contents = []
        for algorithm, (run, n_images) in RUNS.items():
            folder = Path(name) / algorithm
            folder.mkdir()
            write_images(folder, data, is_tuning=True, n_training=N_SMOKE if smoke else n_images)
            content = configuration(run, str(folder))
            del content["data"]["validation"]
            contents += [
                content | {"seed": seed, "trace": f"{folder}/{seed}"} for seed in range(1 if smoke else 1 + N_RUNS)
            ]
        results = list(trained(hosts, contents, Path(name), RANKS_PER_HOST * n_hosts))
        found: dict[str, list[dict[str, float]]] = {algorithm: [] for algorithm in RUNS}
        for content, result in zip(contents, results, strict=True):
            if smoke or content["seed"] > 0:
                folder = Path(content["trace"])
                found[folder.parent.name].append(parts(N_TRAINING / result["samples_per_second"], folder))
    return found


def parts(seconds: float, folder: Path) -> dict[str, float]:
    """The time of a training, and the parts of it in which the workers compute and communicate, by their timelines."""
    workers = [trace.seconds() for trace in read_traces(folder) if trace.role == "worker"]
    fraction = {kind: np.mean([one[kind] / sum(one.values()) for one in workers]) for kind in (COMPUTE, COMMUNICATION)}
    return {"seconds": seconds} | {kind: float(seconds * value) for kind, value in fraction.items()}


def table(results: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """As Markdown: mean and sample standard deviation over runs."""
    head = ["algorithm", "ranks", "hosts", "runs", f"seconds per {N_TRAINING:,} images"]
    rows = []
    for algorithm in RUNS:
        for n_hosts, found in results.items():
            runs = found[algorithm]
            cells = [with_spread([run[key] for run in runs], 1) for key in ("seconds", COMPUTE, COMMUNICATION)]
            rows.append([algorithm, RANKS_PER_HOST * int(n_hosts), n_hosts, len(runs), *cells])
    return markdown_table([*head, "computation, s", "communication, s"], rows)


def draw(results: dict[str, dict[str, list[dict[str, float]]]], file: Path) -> None:
    """The time of each algorithm against the number of ranks; dashed: its communication."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    ranks = [RANKS_PER_HOST * int(n_hosts) for n_hosts in results]
    for number, algorithm in enumerate(RUNS):
        for key, style, label in (("seconds", "o-", algorithm), (COMMUNICATION, "--", f"{algorithm}, communication")):
            means = [np.mean([run[key] for run in found[algorithm]]) for found in results.values()]
            axes.plot(ranks, means, style, color=f"C{number}", label=label)
    axes.set(xlabel="ranks, two per host", ylabel=f"seconds per {N_TRAINING:,} images", yscale="log", xticks=ranks)
    figure.legend(loc="outside right center", fontsize="small")
    figure.savefig(file, dpi=90)


def random_images(file: Path) -> Path:
    """Writes images for the short form."""
    rng = np.random.default_rng(0)
    with h5py.File(file, "w") as images:
        images["X"], images["y"] = rng.integers(0, 256, (2 * N_SMOKE, 28, 28)), rng.integers(0, 10, 2 * N_SMOKE)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the file that `mpi-learn prepare mnist --to` wrote")
    parser.add_argument("--print", action="store_true", help="only table and picture, from number_of_ranks.json")
    parser.add_argument("--smoke", action="store_true", help="one short training per algorithm on one host")
    arguments = parser.parse_args()
    if arguments.smoke:
        with tempfile.TemporaryDirectory() as folder:
            print(table({"1": measure(1, random_images(Path(folder) / "random.h5"), smoke=True)}))
        return
    if not arguments.print:
        results = {str(n_hosts): measure(n_hosts, arguments.data, smoke=False) for n_hosts in HOSTS}
        FILE.write_text(json.dumps(results, indent=1))
    results = json.loads(FILE.read_text())
    print(table(results))
    draw(results, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
