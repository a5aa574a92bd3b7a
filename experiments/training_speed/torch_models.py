"""The three models of the benchmark in PyTorch, and a larger one for GPUs."""

from itertools import pairwise

from torch import nn


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def cnn():
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 250),
        nn.ReLU(),
        nn.Linear(250, 10),
    )


class LastOfLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(28, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def lstm():
    return LastOfLSTM()


class Residual(nn.Module):
    """Two convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.shortcut = nn.Identity() if n_in == n_out else nn.Conv2d(n_in, n_out, 1, stride, bias=False)

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def resnet():
    """18 layers and 11 million parameters."""
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Residual(n_in, n_out, 1 if n_in == n_out else 2) for n_in, n_out in pairwise(widths)]
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
