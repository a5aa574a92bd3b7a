"""A jet tagger in PyTorch: convolutions on the graph of neighbouring particles."""

import torch
from torch import Tensor, nn

FAR = 1e3
"""Added to the squared distance of padding, so that particles are nearer than padding."""


def build_particle_net(
    units: int = 16, depth: int = 2, neighbours: int = 7, dense: int = 64, dropout: float = 0.1, classes: int = 2
) -> nn.Module:
    """A small ParticleNet (Qu & Gouskos, arXiv:1902.08570).

    Args:
        units: Channels of the first edge convolution; each further one has twice as many.
        depth: The number of edge convolutions.
        neighbours: How many nearest particles each one is compared with.
        dense: Neurons between the mean over the particles and the classes.
        dropout: The fraction of these that is left out in training.
        classes: The number of classes.
    """
    return ParticleNet([units * 2**i for i in range(depth)], neighbours, dense, dropout, classes)


class ParticleNet(nn.Module):
    """Edge convolutions, the mean and maximum over the particles, and dense layers; returns logits."""

    def __init__(self, channels: list[int], neighbours: int, dense: int, dropout: float, classes: int) -> None:
        super().__init__()
        before = [6, *channels[:-1]]
        self.blocks = nn.ModuleList(EdgeConvolution(*pair, neighbours) for pair in zip(before, channels, strict=True))
        layers = [nn.Linear(2 * channels[-1], dense), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dense, classes)]
        self.head = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        is_particle = x[..., :1] > 0
        place = x[..., 2:4]
        for block in self.blocks:
            x = block(x, place, is_particle)
            place = x  # from the second block on, distances are those of the learnt features
        count = is_particle.sum(1).clamp(min=1)
        return self.head(torch.cat([x.sum(1) / count, x.amax(1)], -1))


class EdgeConvolution(nn.Module):
    """For each particle the mean over its neighbours of ReLU(A particle + B neighbour), then a dense layer.

    ParticleNet has three layers for each pair; here both linear maps act on particles before pairs are formed, and the
    last layer after the mean, which takes a tenth of the time.
    """

    def __init__(self, n_in: int, n_out: int, neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.own, self.other = nn.Linear(n_in, n_out), nn.Linear(n_in, n_out, bias=False)
        self.after, self.shortcut = nn.Linear(n_out, n_out), nn.Linear(n_in, n_out)
        self.norm = nn.LayerNorm(n_out)

    def forward(self, x: Tensor, place: Tensor, is_particle: Tensor) -> Tensor:
        index = nearest(place, is_particle, self.neighbours)
        row = torch.arange(len(x))[:, None, None]
        is_there = is_particle[row, index]  # (n, particles, neighbours, 1)
        edges = torch.relu(self.own(x).unsqueeze(2) + self.other(x)[row, index]) * is_there
        mean = edges.sum(2) / is_there.sum(2).clamp(min=1)
        return torch.relu(self.norm(self.shortcut(x) + self.after(mean))) * is_particle


def nearest(place: Tensor, is_particle: Tensor, count: int) -> Tensor:
    """The indices of the `count` nearest other particles, shape (n, particles, count).

    Args:
        place: (n, particles, any number of coordinates).
        is_particle: (n, particles, 1), false for padding, which is far from everything.
        count: At most the number of particles less one.
    """
    with torch.no_grad():
        is_padding = ~is_particle.squeeze(-1)
        squared = place.square().sum(-1)
        distance = squared.unsqueeze(1) + squared.unsqueeze(2) - 2 * place @ place.transpose(1, 2)
        distance = distance + FAR * is_padding.unsqueeze(1) + FAR * torch.eye(place.shape[1])
        return distance.topk(min(count, place.shape[1] - 1), largest=False).indices
