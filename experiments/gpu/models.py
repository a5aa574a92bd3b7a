"""The models of the benchmark. MPI Learn builds them by the name of the function."""

from torch import nn

WIDTH = 784


def mlp():
    """10,020,874 parameters."""
    return nn.Sequential(
        nn.Linear(WIDTH, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
        nn.Linear(2048, 10),
    )  # fmt: skip


def cnn():
    """421,576 parameters: the CNN of `experiments/training_speed`."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 250), nn.ReLU(), nn.Linear(250, 10),
    )  # fmt: skip
