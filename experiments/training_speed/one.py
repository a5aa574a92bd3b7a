"""One measured program, on one rank or under mpirun. It takes turns with others (see `turns`).

    python one.py KIND MODEL DATA SAMPLES

KIND: ours-keras, ours-torch (`mpi_learn.train` with accuracy, validation, history and progress), bare-keras,
bare-torch, ddp (see `loops`). The environment variable CHANGES has further keys of the training.yaml for
``ours-…`` as JSON. At the end rank 0 prints the samples per second of each epoch and the memory of the ranks as JSON.
"""

import json
import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ[name] = os.environ.get("THREADS", "1")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import h5py  # noqa: E402 - after the number of threads is set
import numpy as np  # noqa: E402
from loops import BATCH, bare_keras, bare_torch, ddp, world  # noqa: E402
from turns import may_go_on  # noqa: E402

HERE = Path(__file__).parent
kind, model, data_file, n_samples = sys.argv[1:5]
n_samples = int(n_samples)


def arrays():
    with h5py.File(data_file) as file:
        x = np.asarray(file["X"][:n_samples], np.float32).reshape(-1, 28, 28) / 255
        return x, np.asarray(file["y"][:n_samples], np.int64)


def ours(framework):
    from mpi_learn import train
    from mpi_learn.data.samples.batches import Dataset
    from mpi_learn.data.samples.stored_samples import Samples

    x, y = arrays()
    n_validation = max(len(x) // 50, 200)
    data = Dataset(Samples((x,), (y,)), Samples((x[:n_validation],), (y[:n_validation],)))
    speeds = []
    configuration = {
        "model": f"{HERE}/{framework}_models.py:{model}",
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "batch_size": BATCH,
        "epochs": 1000,
    }
    train(
        configuration | json.loads(os.environ.get("CHANGES", "{}")),
        world,
        data=data,
        on_epoch=lambda epoch, metrics: not may_go_on(),
        progress=lambda report: speeds.append(report.samples_per_second),
    )
    return speeds


def memory_mib():
    """The proportional set size (PSS) of this process; memory shared by n processes counts 1/n."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


kinds = {
    "ours-keras": lambda: ours("keras"),
    "ours-torch": lambda: ours("torch"),
    "bare-keras": lambda: bare_keras(model, *arrays()),
    "bare-torch": lambda: bare_torch(model, *arrays()),
    "ddp": lambda: ddp(model, *arrays()),
}
speeds = kinds[kind]()
memory = world.gather(memory_mib())
if world.rank == 0:
    print(json.dumps({"samples_per_second": speeds[1:], "memory_mib": max(memory)}))
