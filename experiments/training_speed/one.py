"""One measurement, on one rank or under mpirun: prints the samples per second of each epoch as JSON from rank 0.

    python one.py KIND MODEL DATA SAMPLES EPOCHS

KIND: ours-keras, ours-torch (`mpi_learn.train` with validation, history and progress), bare-keras, bare-torch (a loop
written by hand: flat gradient, Allreduce in place, fused Adam, nothing else), ddp (PyTorch's: gloo, bucket views, fused
Adam). The environment variable ALGORITHM, as JSON, makes ours another one.
"""

import json
import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ[name] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import h5py  # noqa: E402 - the number of threads must be known before
import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

HERE = Path(__file__).parent
BATCH = 128
world = MPI.COMM_WORLD
kind, model, data_file, n_samples, n_epochs = sys.argv[1:6]
n_samples, n_epochs = int(n_samples), int(n_epochs)
sys.path.insert(0, str(HERE))


def arrays():
    with h5py.File(data_file) as file:
        x = np.asarray(file["X"][:n_samples], np.float32).reshape(-1, 28, 28) / 255
        return x, np.asarray(file["y"][:n_samples], np.int64)


def batches(x, y, epoch):
    """This rank's batches of an epoch, shuffled alike on all ranks; whole batches only."""
    order = np.random.default_rng([0, epoch]).permutation(len(x))
    width = BATCH * world.size
    for first in range(0, len(x) - width + 1, width):
        mine = order[first + world.rank * BATCH : first + (world.rank + 1) * BATCH]
        yield x[mine], y[mine]


def timed(epoch):
    """Samples per second of `epoch()`, which returns the number of this rank's samples, for each of the epochs."""
    speeds = []
    for number in range(n_epochs):
        world.Barrier()
        start = time.perf_counter()
        n = epoch(number)
        world.Barrier()
        speeds.append(n * world.size / (time.perf_counter() - start))
    return speeds


def ours(framework):
    from mpi_learn import train
    from mpi_learn.data import Dataset, Samples

    x, y = arrays()
    n_validation = max(len(x) // 50, 200)
    data = Dataset(Samples((x,), (y,)), Samples((x[:n_validation],), (y[:n_validation],)))
    speeds = []
    train(
        {
            "model": f"{HERE}/{framework}_models.py:{model}",
            "loss": "sparse_categorical_crossentropy",
            "metrics": ["accuracy"],
            "batch_size": BATCH,
            "epochs": n_epochs,
            "algorithm": json.loads(os.environ.get("ALGORITHM", '{"name": "allreduce"}')),
        },
        world,
        data=data,
        progress=lambda report: speeds.append(report.samples_per_second),
    )
    return speeds


def bare_keras():
    import keras
    import keras_models
    import tensorflow as tf

    from mpi_learn.flat import FlatLayout, aligned_empty
    from mpi_learn.optimizers import make_optimizer
    from mpi_learn.optimizers.configuration import Adam

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    network = getattr(keras_models, model)()
    layout = FlatLayout(tuple(tuple(one.shape) for one in network.trainable_variables))
    weights = aligned_empty(layout.size)
    for view, variable in zip(layout.views(weights), network.trainable_variables, strict=True):
        view[...] = np.asarray(variable)
    flat = tf.experimental.dlpack.from_dlpack(weights.__dlpack__())
    sizes, shapes = np.diff(layout.bounds).tolist(), layout.shapes

    @tf.function(autograph=False)
    def step(flat, x, y):
        parts = [tf.reshape(part, shape) for part, shape in zip(tf.split(flat, sizes), shapes, strict=True)]
        with tf.GradientTape() as tape:
            tape.watch(parts)
            outputs, _ = network.stateless_call(parts, network.non_trainable_variables, x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, outputs))
        return tf.concat([tf.reshape(one, [-1]) for one in tape.gradient(loss, parts)], 0)

    optimizer = make_optimizer(Adam(), layout)
    x, y = arrays()

    def epoch(number):
        n = 0
        for bx, by in batches(x, y, number):
            gradient = step(flat, tf.convert_to_tensor(bx), tf.convert_to_tensor(by))._numpy()
            world.Allreduce(MPI.IN_PLACE, gradient)
            optimizer.update(weights, gradient, 1 / world.size)
            n += len(bx)
        return n

    return timed(epoch)


def bare_torch():
    import torch
    import torch_models

    from mpi_learn.flat import FlatLayout, aligned_empty
    from mpi_learn.optimizers import make_optimizer
    from mpi_learn.optimizers.configuration import Adam

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = getattr(torch_models, model)()
    parameters = list(module.parameters())
    layout = FlatLayout(tuple(tuple(one.shape) for one in parameters))
    weights, gradient = aligned_empty(layout.size), aligned_empty(layout.size)
    for one, weight, slope in zip(parameters, layout.views(weights), layout.views(gradient), strict=True):
        weight[...] = one.detach().numpy()
        one.data, one.grad = torch.from_numpy(weight), torch.from_numpy(slope)
    optimizer = make_optimizer(Adam(), layout)
    x, y = arrays()

    def epoch(number):
        n = 0
        for bx, by in batches(x, y, number):
            gradient[:] = 0
            torch.nn.functional.cross_entropy(module(torch.from_numpy(bx)), torch.from_numpy(by)).backward()
            world.Allreduce(MPI.IN_PLACE, gradient)
            optimizer.update(weights, gradient, 1 / world.size)
            n += len(bx)
        return n

    return timed(epoch)


def ddp():
    import torch
    import torch.distributed as distributed
    import torch_models
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29611")
    distributed.init_process_group("gloo", rank=world.rank, world_size=world.size)
    torch.manual_seed(0)
    module = DistributedDataParallel(getattr(torch_models, model)(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    x, y = (torch.from_numpy(one) for one in arrays())

    def epoch(number):
        n = 0
        order = torch.from_numpy(np.random.default_rng([0, number]).permutation(len(x)))
        width = BATCH * world.size
        for first in range(0, len(x) - width + 1, width):
            mine = order[first + world.rank * BATCH : first + (world.rank + 1) * BATCH]
            optimizer.zero_grad(set_to_none=False)
            torch.nn.functional.cross_entropy(module(x[mine]), y[mine]).backward()
            optimizer.step()
            n += len(mine)
        return n

    speeds = timed(epoch)
    distributed.destroy_process_group()
    return speeds


kinds = {
    "ours-keras": lambda: ours("keras"),
    "ours-torch": lambda: ours("torch"),
    "bare-keras": bare_keras,
    "bare-torch": bare_torch,
    "ddp": ddp,
}
speeds = kinds[kind]()
if world.rank == 0:
    print(json.dumps({"kind": kind, "model": model, "ranks": world.size, "samples_per_second": speeds}))
