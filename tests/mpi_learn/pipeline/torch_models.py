"""PyTorch models in stages, for tests."""

import os
import time
from itertools import pairwise

import torch
from mpi4py import MPI
from torch import nn


def build(units=16):
    """A sequence; the in-place activation may be at the beginning of a stage."""
    return nn.Sequential(
        nn.Linear(12, units),
        nn.Tanh(),
        nn.Linear(units, units),
        nn.ReLU(inplace=True),
        nn.Linear(units, units),
        nn.Tanh(),
        nn.Linear(units, 3),
    )


build_chain = build


class Slow(nn.Linear):
    """Takes 0.1 s if the environment says so."""

    def __init__(self, index):
        super().__init__(12, 12)
        self.index = str(index)

    def forward(self, x):
        if os.environ["SLOW"] == self.index:
            time.sleep(0.1)
        return super().forward(x)


def build_slow():
    """Four layers with equal numbers of operations, of which one is slow."""
    return nn.Sequential(*map(Slow, range(4)))


def build_stages(n=2):
    """The same model, in a list of two or four stages."""
    model = build()
    cuts = {2: [0, 3, 7], 4: [0, 2, 3, 5, 7]}[n]
    return [model[first:stop] for first, stop in pairwise(cuts)]


def build_functions():
    """Functions that build the stages."""
    return [lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh()), lambda: nn.Linear(16, 3)]


def build_broken(how):
    """Functions that build the stages; that of the second one fails, or the call on the second rank."""

    def second():
        if how == "raises":
            raise RuntimeError("boom")

    if how == "host" and MPI.COMM_WORLD.rank == 1:
        raise ImportError("no such library here")
    return [lambda: nn.Linear(12, 16), second]


def build_shared():
    """The first layer is used again in the second stage."""
    layer = nn.Linear(12, 12)
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), layer, nn.Tanh(), nn.Linear(12, 3))


def build_two_tensors():
    """Two tensors pass between the stages."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 12)

        def forward(self, x):
            return self.layer(x), x

    return [Both(), nn.Linear(12, 3)]


def build_tangled():
    """No sequence of layers."""

    class Tangled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 3)

        def forward(self, x):
            return self.b(x + self.a(x))

    return Tangled()


def build_normalised():
    """Batch normalisation in both stages."""
    return [
        nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU()),
        nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)),
    ]


class Failing(nn.Module):
    """Raises in a late call in training, or in evaluation."""

    def __init__(self, training):
        super().__init__()
        self.layer, self.when, self.n = nn.Linear(16, 16), training, 0

    def forward(self, x):
        self.n += self.training == self.when
        if self.n == 30:  # the model is tried in fewer calls
            raise RuntimeError("boom")
        return self.layer(x)


def build_failing(stage, training):
    """A model that raises in one of two stages."""
    stages = [[nn.Linear(12, 16)], [nn.Linear(16, 3)]]
    stages[stage].insert(1 - stage, Failing(training))
    return [nn.Sequential(*modules) for modules in stages]


class Rounded(torch.autograd.Function):
    """Rounds to bfloat16 in both passes."""

    @staticmethod
    def forward(context, x):
        return x.bfloat16().float()

    @staticmethod
    def backward(context, gradient):
        return gradient.bfloat16().float()


def rounded_losses(x, y, batch, epochs, rate, seed):
    """As `plain_losses`, for three micro-batches that are rounded between two stages."""
    torch.manual_seed(seed)
    stages = build_stages()
    steps = torch.optim.SGD([value for stage in stages for value in stage.parameters()], lr=rate)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for first in range(0, len(x), batch):
            inputs, labels = torch.from_numpy(x[first : first + batch]), torch.from_numpy(y[first : first + batch])
            bounds = [len(inputs) * index // 3 for index in range(4)]
            steps.zero_grad()
            for part in map(slice, bounds, bounds[1:]):
                outputs = stages[1](Rounded.apply(stages[0](inputs[part])))
                loss = nn.functional.cross_entropy(outputs, labels[part], reduction="sum")
                loss.backward()
                total += float(loss.detach())
            for value in steps.param_groups[0]["params"]:
                value.grad /= len(inputs)
            steps.step()
        losses.append(total / len(x))
    return losses


def plain_losses(x, y, batch, epochs, rate, seed):
    """The mean loss of each epoch in a plain loop of PyTorch with SGD, with the samples in their order."""
    torch.manual_seed(seed)
    model = build()
    steps = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for first in range(0, len(x), batch):
            inputs, labels = torch.from_numpy(x[first : first + batch]), torch.from_numpy(y[first : first + batch])
            loss = nn.functional.cross_entropy(model(inputs), labels)
            steps.zero_grad()
            loss.backward()
            steps.step()
            total += float(loss.detach()) * len(inputs)
        losses.append(total / len(x))
    return losses
