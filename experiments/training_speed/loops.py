"""The loops with which `mpi_learn.train` is compared: a minimal one for each framework, and PyTorch's DDP."""

import os
import time

import numpy as np
from mpi4py import MPI
from turns import may_go_on

BATCH = 128
IS_APART = "APART" in os.environ
"""Whether the bare loops omit the Allreduce, to measure the speed without any exchange."""
world = MPI.COMM_WORLD


def bare_keras(model, x, y):
    """Samples per second of each epoch of the bare loop in Keras on TensorFlow."""
    import keras
    import keras_models
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    network = getattr(keras_models, model)()
    layout, weights = flat_weights([np.asarray(variable) for variable in network.trainable_variables])
    flat = tf.experimental.dlpack.from_dlpack(weights.__dlpack__())
    step = keras_step(network, layout)

    def gradient(x, y):
        return step(flat, tf.convert_to_tensor(x), tf.convert_to_tensor(y))._numpy()

    return train_bare(gradient, layout, weights, x, y)


def keras_step(network, layout):
    """The compiled function that computes the flat gradient from flat weights and a batch."""
    import keras
    import tensorflow as tf

    sizes, shapes = np.diff(layout.bounds).tolist(), layout.shapes

    @tf.function(autograph=False)
    def step(flat, x, y):
        parts = [tf.reshape(part, shape) for part, shape in zip(tf.split(flat, sizes), shapes, strict=True)]
        with tf.GradientTape() as tape:
            tape.watch(parts)
            outputs, _ = network.stateless_call(parts, network.non_trainable_variables, x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, outputs))
        return tf.concat([tf.reshape(one, [-1]) for one in tape.gradient(loss, parts)], 0)

    return step


def bare_torch(model, x, y):
    """Samples per second of each epoch of the bare loop in PyTorch."""
    import torch
    import torch_models

    from mpi_learn.flat_layout import aligned_empty

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module = getattr(torch_models, model)()
    parameters = list(module.parameters())
    layout, weights = flat_weights([one.detach().numpy() for one in parameters])
    slopes = aligned_empty(layout.size)
    for one, weight, slope in zip(parameters, layout.views(weights), layout.views(slopes), strict=True):
        one.data, one.grad = torch.from_numpy(weight), torch.from_numpy(slope)

    def gradient(x, y):
        slopes[:] = 0
        torch.nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        return slopes

    return train_bare(gradient, layout, weights, x, y)


def flat_weights(arrays):
    """The layout of some arrays, and a flat vector with their values."""
    from mpi_learn.flat_layout import FlatLayout, aligned_empty

    layout = FlatLayout.of(arrays)
    weights = aligned_empty(layout.size)
    for view, array in zip(layout.views(weights), arrays, strict=True):
        view[...] = array
    return layout, weights


def train_bare(gradient, layout, weights, x, y):
    """Samples per second of each epoch of a loop of gradient, Allreduce and Adam.

    `gradient` computes the flat gradient of a batch, with respect to `weights`.
    """
    from mpi_learn.optimizers.configuration import Adam
    from mpi_learn.optimizers.optimizer import make_optimizer

    optimizer = make_optimizer(Adam(), layout)

    def epoch(number):
        n = 0
        for mine in batches(len(x), number):
            summed = gradient(x[mine], y[mine])
            if not IS_APART:
                world.Allreduce(MPI.IN_PLACE, summed)
            optimizer.update(weights, summed, 1 / world.size)
            n += len(mine)
        return n

    return timed(epoch)


def ddp(model, x, y):
    """Samples per second of each epoch of PyTorch's DistributedDataParallel."""
    import torch
    import torch.distributed as distributed
    import torch_models
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(world.bcast(20_000 + os.getpid() % 10_000)))
    distributed.init_process_group("gloo", rank=world.rank, world_size=world.size)
    torch.manual_seed(0)
    module = DistributedDataParallel(getattr(torch_models, model)(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    x, y = torch.from_numpy(x), torch.from_numpy(y)

    def epoch(number):
        n = 0
        for mine in map(torch.from_numpy, batches(len(x), number)):
            optimizer.zero_grad(set_to_none=False)
            torch.nn.functional.cross_entropy(module(x[mine]), y[mine]).backward()
            optimizer.step()
            n += len(mine)
        return n

    speeds = timed(epoch)
    distributed.destroy_process_group()
    return speeds


def batches(n, epoch):
    """The sample numbers of each whole batch of this rank in an epoch, from an order that is the same on all ranks."""
    order = np.random.default_rng([0, epoch]).permutation(n)
    width = BATCH * world.size
    for first in range(0, n - width + 1, width):
        yield order[first + world.rank * BATCH : first + (world.rank + 1) * BATCH]


def timed(epoch):
    """Samples per second of each call of `epoch`, which returns the number of samples of this rank."""
    speeds = []
    while not speeds or may_go_on():
        world.Barrier()
        start = time.perf_counter()
        n = epoch(len(speeds))
        world.Barrier()
        speeds.append(n * world.size / (time.perf_counter() - start))
    return speeds
