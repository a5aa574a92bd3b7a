"""Searches cluster size, exchanges, learning rate and batch size over the slow link, for the shortest time to a loss.

    python experiments/slow_link/search.py --data mnist.h5 [--work FOLDER]    # as root on Linux
    python experiments/slow_link/search.py --smoke                            # two short trials, without a network

One block of eight ranks on four hosts runs one trial after the other, so that the trials do not share the network. The
coordinator is a ninth rank on the first host. With the same folder, an interrupted search continues. All trials are
written to ``search.json``, except in the short form.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
from network import Network, slow_network
from runs import N_RANKS
from slow_link import BANDWIDTH_MBIT_S, HERE, LATENCY_S, mpirun, write_images

from mpi_learn.job.launch import launch_environment
from mpi_learn.settings.yaml_file import dumped, read_yaml

FILES = ("search.yaml", "model.py", "time_to_target.py")
FORMATS = ("table", "json")
N_SMOKE = 1024
"""Images of the short form."""


def search(work: Path, network: Network | None, n_ranks: int) -> dict[str, str]:
    """Runs the search with `n_ranks` ranks for training; returns its trials in the formats of `FORMATS`."""
    command = [*mpirun(network, n_ranks, n_coordinators=1), sys.executable, "-m", "mpi_opt", "search", "search.yaml"]
    subprocess.run(command, cwd=work, env=launch_environment() | {"OMP_NUM_THREADS": "1"}, check=True)
    listed = [sys.executable, "-m", "mpi_opt", "results", "--study", "slow_link", "--store", "slow_link.db", "--format"]
    return {
        name: subprocess.run([*listed, name], cwd=work, check=True, capture_output=True, text=True).stdout
        for name in FORMATS
    }


def shorten(work: Path) -> Path:
    """Makes the search in `work` one of two trials of one epoch; returns a file with few random images."""
    content = read_yaml(work / "search.yaml")
    content["search"] |= {"strategy": "random", "trials": 2}
    content["space"]["size"]["categories"] = [1, 2, 4]
    content["training"]["epochs"] = 1
    (work / "search.yaml").write_text(dumped(content))
    rng, file = np.random.default_rng(0), work / "random.h5"
    with h5py.File(file, "w") as images:
        images["X"], images["y"] = rng.integers(0, 256, (2 * N_SMOKE, 28, 28)), rng.integers(0, 10, 2 * N_SMOKE)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the file that `mpi-learn prepare mnist --to` wrote")
    parser.add_argument("--work", type=Path, help="folder for data and study; default: a temporary one")
    parser.add_argument("--smoke", action="store_true", help="two short trials on four ranks, without a network")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for file in FILES:
            shutil.copy(HERE / file, work)
        if arguments.smoke:
            write_images(work, shorten(work), is_tuning=True, n_training=N_SMOKE)
            print(search(work, None, 4)["table"])
            return
        write_images(work, arguments.data, is_tuning=True)
        with slow_network(4, LATENCY_S, BANDWIDTH_MBIT_S) as network:
            found = search(work, network, N_RANKS)
        print(found["table"])
        (HERE / "search.json").write_text(found["json"])


if __name__ == "__main__":
    main()
