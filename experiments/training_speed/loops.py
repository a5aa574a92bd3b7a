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


def batches(x, y, epoch):
    """The whole batches of this rank in an epoch, from an order that is the same on all ranks."""
    order = np.random.default_rng([0, epoch]).permutation(len(x))
    width = BATCH * world.size
    for first in range(0, len(x) - width + 1, width):
        mine = order[first + world.rank * BATCH : first + (world.rank + 1) * BATCH]
        yield x[mine], y[mine]


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


def bare_keras(model, x, y):
    import keras
    import keras_models
    import tensorflow as tf

    from mpi_learn.flat_layout import FlatLayout, aligned_empty
    from mpi_learn.optimizers.configuration import Adam
    from mpi_learn.optimizers.make_optimizer import make_optimizer

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

    def epoch(number):
        n = 0
        for bx, by in batches(x, y, number):
            gradient = step(flat, tf.convert_to_tensor(bx), tf.convert_to_tensor(by))._numpy()
            if not IS_APART:
                world.Allreduce(MPI.IN_PLACE, gradient)
            optimizer.update(weights, gradient, 1 / world.size)
            n += len(bx)
        return n

    return timed(epoch)


def bare_torch(model, x, y):
    import torch
    import torch_models

    from mpi_learn.flat_layout import FlatLayout, aligned_empty
    from mpi_learn.optimizers.configuration import Adam
    from mpi_learn.optimizers.make_optimizer import make_optimizer

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

    def epoch(number):
        n = 0
        for bx, by in batches(x, y, number):
            gradient[:] = 0
            torch.nn.functional.cross_entropy(module(torch.from_numpy(bx)), torch.from_numpy(by)).backward()
            if not IS_APART:
                world.Allreduce(MPI.IN_PLACE, gradient)
            optimizer.update(weights, gradient, 1 / world.size)
            n += len(bx)
        return n

    return timed(epoch)


def ddp(model, x, y):
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
