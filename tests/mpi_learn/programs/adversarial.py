"""Run under mpirun: trains small GANs synchronously, or by all other algorithms; rank 0 prints what every rank saw.

Arguments: ``synchronous`` or ``others``.
"""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from tests.mpi_learn.models_for_tests import digits

HERE = Path(__file__).parents[1]
KERAS = {"model": f"{HERE / 'models_for_tests.py'}:build_gan", "loss": "binary_crossentropy"}
TORCH = {"model": f"{HERE / 'torch_models_for_tests.py'}:build_gan", "loss": "binary_cross_entropy_with_logits"}
METRIC = {"metrics": [f"{HERE / 'torch_models_for_tests.py'}:pixel_gap"], "epochs": 12}
FEW = {"epochs": 2, "seed": 3}
ROUND = {"latent": 8, "steps": {"discriminator": 1, "generator": 2}}
BATCHWISE = ROUND | {"exchange": "batch"}
GLOBAL_BATCH = 120
SYNCHRONOUS = {
    "keras model": KERAS | FEW | {"gan": ROUND},
    "keras batch": KERAS | FEW | {"gan": BATCHWISE},
    "torch model": TORCH | FEW | {"gan": ROUND},
    "torch batch": TORCH | FEW | {"gan": BATCHWISE},
    "accumulated": TORCH | FEW | {"gan": BATCHWISE, "algorithm": {"name": "allreduce", "accumulate": 2}},
}
ADAM = {"name": "adam", "learning_rate": 0.003}
OTHERS = {
    "downpour": {"algorithm": "downpour"},
    "synchronous": {"algorithm": {"name": "downpour", "synchronous": True, "sync_every": 2}},
    "easgd": {"algorithm": {"name": "easgd", "sync_every": 3}},
    "gem": {"algorithm": "gem", "optimizer": {"name": "sgd", "learning_rate": 0.05}},  # its energies are of plain steps
    "clusters": {"algorithm": {"name": "clusters", "size": 1, "exchange_every": 4}},
    "2-bit": {"algorithm": {"name": "allreduce", "compression": "2-bit"}},
    "dynamic": {"algorithm": "downpour", "data": {"train": ["none.h5"], "features": "X", "labels": None}},
}
OTHERS["dynamic"]["data"]["share"] = "dynamic"


def main() -> None:
    world = MPI.COMM_WORLD
    bunch = digits()
    samples = Samples(bunch.training.x, ())
    dataset = Dataset(samples, samples, bunch.training_indices[:960], bunch.validation_indices)
    if sys.argv[1] == "synchronous":
        cases = {name: case | {"batch_size": GLOBAL_BATCH // world.size} for name, case in SYNCHRONOUS.items()}
    else:
        common = TORCH | METRIC | {"gan": {"latent": 8}, "optimizer": ADAM, "batch_size": 32}
        cases = {name: common | case for name, case in OTHERS.items()}
    seen = {}
    for name, case in cases.items():
        result = train(case, world, data=dataset)
        weights = []
        for model in result.model.values() if name in SYNCHRONOUS else ():
            arrays = (
                model.get_weights() if name.startswith("keras") else [p.detach().numpy() for p in model.parameters()]
            )
            weights += [float(abs(one).sum()) for one in arrays]
        history = {key: values for key, values in result.history.items() if "staleness" not in key}
        seen[name] = world.gather({"history": history, "weights": weights})
    if world.rank == 0:
        print(json.dumps(seen))


main()
