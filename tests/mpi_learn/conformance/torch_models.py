"""Small PyTorch modules of every kind that a plain loop trains, as users write them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tests.mpi_learn.conformance import lightning
from tests.mpi_learn.conformance.torch_elsewhere import Imported


def dense(units: int = 8):
    return nn.Sequential(nn.Linear(5, units), nn.Tanh(), nn.Linear(units, 1))


def rates():
    return nn.Sequential(*dense(), nn.Softplus())


def make_groups(parameters, lr: float = 0.1, momentum: float = 0.0):
    """An optimizer as users write it: biases are trained with a tenth of the learning rate."""
    groups = [
        {"params": [one for one in parameters if one.ndim > 1]},
        {"params": [one for one in parameters if one.ndim == 1], "lr": 0.1 * lr},
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


def classes(norm: bool = False, dropout: float = 0.0, synchronized: bool = False):
    parts = [nn.Linear(5, 8), nn.Tanh()]
    parts += [nn.SyncBatchNorm(8) if synchronized else nn.BatchNorm1d(8)] if norm else []
    parts += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*parts, nn.Linear(8, 3))


def imported():
    return Imported()


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.conv(x.permute(0, 3, 1, 2) / 255).relu().mean((2, 3)))


def images():
    return Images()


class Segmentation(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x.permute(0, 3, 1, 2))


def segmentation():
    return Segmentation()


class Words(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.embedding = nn.Embedding(20, 4, sparse=sparse)
        self.cells, self.last = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, ids):
        return self.last(self.cells(self.embedding(ids))[1][0])


def words(sparse=False):
    return Words(sparse)


class Experts(nn.Module):
    """Each sample has one expert; an expert without samples is not called. One layer is never called."""

    def __init__(self):
        super().__init__()
        self.gate, self.unused = nn.Linear(5, 4), nn.Linear(5, 5)
        self.experts = nn.ModuleList([nn.Linear(5, 1) for _ in range(4)])

    def forward(self, x):
        shares, numbers = (9 * self.gate(x)).softmax(1).max(1)
        outputs = x.new_zeros(len(x), 1)
        for number, expert in enumerate(self.experts):
            mine = torch.nonzero(numbers == number).squeeze(1)
            if len(mine):
                outputs = outputs.index_add(0, mine, shares[mine, None] * expert(x[mine]))
        return outputs


def experts():
    return Experts()


class Rotating(nn.Module):
    """Attention with a complex buffer, and an infinite one as the mask."""

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(20, 4), nn.Linear(4, 1)
        angles = torch.arange(4.0)[:, None] * torch.tensor([1.0, 0.1])
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, ids):
        x = self.embedding(ids)
        turned = torch.view_as_real(torch.view_as_complex(x.unflatten(2, (2, 2))) * self.rotation).flatten(2)
        return self.last(((turned @ turned.mT + self.mask).softmax(-1) @ x)[:, -1])


def rotating():
    return Rotating()


class Bounded(nn.Module):
    """PyTorch scales the rows of its embedding in each call."""

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(20, 4, max_norm=0.5), nn.Linear(4, 1)

    def forward(self, ids):
        return self.last(self.embedding(ids).mean(1))


def bounded():
    return Bounded()


class Squeezing(nn.Module):
    """Cannot be called with one sample."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.first(x[:, None]).squeeze().relu().flip(1))


def squeezing():
    return Squeezing()


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(1, 4), nn.Linear(1, 4)

    def forward(self, age, weight):
        return (self.first(age) * self.second(weight)).sum(1, keepdim=True)


def by_keyword():
    return ByKeyword()


class ByMapping(ByKeyword):
    def forward(self, batch):
        return super().forward(batch["age"], batch["weight"])


def by_mapping():
    return ByMapping()


class TwoByTwo(nn.Module):
    """Two positional inputs, a tuple of outputs."""

    def __init__(self):
        super().__init__()
        self.energy, self.kind = nn.Linear(7, 1), nn.Linear(7, 3)

    def forward(self, a, b):
        joined = torch.cat([a, b], 1)
        return self.energy(joined), self.kind(joined)


def two_by_two():
    return TwoByTwo()


class Named(nn.Module):
    """A mapping of outputs."""

    def __init__(self):
        super().__init__()
        self.z, self.a = nn.Linear(5, 1), nn.Linear(5, 1)

    def forward(self, x):
        return {"z": self.z(x), "a": self.a(x)}


def named():
    return Named()


@dataclass
class Found:
    logits: torch.Tensor
    hidden: list[torch.Tensor]
    attention: torch.Tensor | None = None


class Structured(nn.Module):
    """Returns its outputs in a data class; with `has_auxiliary` others in training than in evaluation."""

    def __init__(self, has_auxiliary: bool):
        super().__init__()
        self.first, self.last, self.has_auxiliary = nn.Linear(5, 8), nn.Linear(8, 3), has_auxiliary

    def forward(self, x):
        hidden = self.first(x).tanh()
        found = Found(self.last(hidden), [hidden])
        if not self.has_auxiliary:
            return found
        return (found.logits, self.last(hidden.sin())) if self.training else found.logits


def structured(has_auxiliary: bool = False):
    return Structured(has_auxiliary)


class Tied(nn.Module):
    """A language model whose last layer has the weights of its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.cells = nn.Embedding(20, 4, padding_idx=0), nn.LSTM(4, 4, batch_first=True)
        self.last = nn.Linear(4, 20, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, ids):
        return self.last(self.cells(self.embedding(ids))[0]).transpose(1, 2)


def tied():
    return Tied()


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3))


class Autoencoder(nn.Module):
    """Reconstruction, mean and logarithm of the variance."""

    def __init__(self):
        super().__init__()
        self.mean, self.logvar, self.decode = nn.Linear(5, 2), nn.Linear(5, 2), nn.Linear(2, 5)

    def forward(self, x):
        mean, logvar = self.mean(x), self.logvar(x)
        return self.decode(mean), mean, logvar


def autoencoder():
    return Autoencoder()


def evidence(outputs, x):
    """One loss over several outputs."""
    reconstruction, mean, logvar = outputs
    divergence = -0.5 * torch.mean(1 + logvar - mean.square() - logvar.exp())
    return functional.mse_loss(reconstruction, x) + 0.1 * divergence


def frozen():
    module = dense()
    module[0].weight.requires_grad = False
    return module


def weighted_entropy(outputs, targets, weight=(1.0, 5.0, 0.5)):
    """Class numbers stay integers."""
    return functional.cross_entropy(outputs, targets, weight=torch.tensor(weight, device=outputs.device))


def of_each(outputs, targets):
    """One value per sample."""
    return (outputs.squeeze(-1) - targets).abs()


class Focal(nn.Module):
    def __init__(self, gamma: float = 1.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, outputs, targets):
        chosen = torch.gather(outputs.log_softmax(1), 1, targets[:, None]).squeeze(1)
        return (-((1 - chosen.exp()) ** self.gamma) * chosen).mean()


class Learned(nn.Module):
    """A loss with a parameter."""

    def __init__(self):
        super().__init__()
        self.width = nn.Parameter(torch.zeros(()))

    def forward(self, outputs, targets):
        return ((outputs.squeeze(-1) - targets).square() * torch.exp(-self.width) + self.width).mean()


class Centring(nn.Module):
    """A loss with a moving mean."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, outputs, targets):
        self.mean = 0.9 * self.mean + 0.1 * outputs.detach().mean(0)
        return functional.cross_entropy(outputs - self.mean, targets)


def of_mapping(outputs, targets):
    return functional.mse_loss(outputs["z"].squeeze(-1), targets["z"]) + 0.5 * functional.mse_loss(
        outputs["a"].squeeze(-1), targets["a"]
    )


def bias(outputs, targets):
    """A metric: one number."""
    return (outputs.squeeze(-1) - targets).mean()


def summed(outputs, targets):
    return functional.mse_loss(outputs.squeeze(-1), targets, reduction="sum")


def with_a_sum(outputs, targets):
    """A mean and a small sum over the batch."""
    return functional.mse_loss(outputs.squeeze(-1), targets) + 0.01 * outputs.square().sum()


def crossed(outputs, targets):
    """Shapes (n, 1) and (n,), by accident."""
    return functional.mse_loss(outputs, targets)


class Speaking(nn.Linear):
    def forward(self, x):
        return super().forward(x), "and that was it"


def speaking():
    return Speaking(5, 1)


def in_double():
    return dense().double()


def elsewhere():
    return nn.Linear(5, 1, device="meta")


def clipped():
    """Hooks limit the gradients of its parameters."""
    module = dense()
    for parameter in module.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
    return module


class Annealed(nn.Module):
    """Counts its steps in an attribute."""

    def __init__(self):
        super().__init__()
        self.layer, self.steps = nn.Linear(5, 1), 0

    def forward(self, x):
        if not self.training:
            return self.layer(x)
        self.steps += 1
        return self.layer(x) * (1 - 0.5**self.steps)


def annealed():
    return Annealed()


class SharedMemory(nn.Module):
    """Its decoder's weights are in the memory of its encoder's, transposed."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(5, 3), nn.Linear(3, 5)
        self.decode.weight.data = self.encode.weight.data.t()

    def forward(self, x):
        return self.decode(self.encode(x).tanh())


def shared_memory():
    return SharedMemory()


class Graph(nn.Module):
    """Has a sparse matrix as a buffer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)
        self.register_buffer("adjacency", (torch.eye(5) + torch.eye(5).roll(1, 0)).to_sparse())

    def forward(self, x):
        return self.layer(torch.sparse.mm(self.adjacency, x.T).T)


def graph():
    return Graph()


def scripted():
    return torch.jit.script(dense())


class Oscillator(nn.Module):
    """A physics-informed network: the time is the input, the residual of the differential equation an output."""

    def __init__(self, is_enabled: bool):
        super().__init__()
        self.net, self.is_enabled = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), is_enabled

    def forward(self, t):
        with torch.set_grad_enabled(self.is_enabled or torch.is_grad_enabled()):
            t = t.requires_grad_(True)
            u = self.net(t)
            du = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
            ddu = torch.autograd.grad(du.sum(), t, create_graph=True)[0]
            return u, ddu + 0.4 * du + 4 * u


def oscillator(is_enabled: bool = True):
    return Oscillator(is_enabled)


def of_equation(outputs, labels, weight=0.1):
    """A loss with a default argument."""
    u, residual = outputs
    return ((u.squeeze(-1) - labels) ** 2).mean() + weight * (residual**2).mean()


class ComplexWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(5, 1, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(torch.complex64) @ self.w).abs()


def complex_weights():
    return ComplexWeights()


class Density(nn.Module):
    """Calling it returns a distribution, as a flow of zuko, or raises an exception, as a flow of nflows."""

    def __init__(self, is_of_nflows: bool):
        super().__init__()
        self.mean, self.is_of_nflows = nn.Parameter(torch.zeros(5)), is_of_nflows

    def forward(self, x):
        if self.is_of_nflows:
            raise RuntimeError("Forward method cannot be called for a Distribution object.")
        return torch.distributions.Normal(self.mean, 1.0)


def density(is_of_nflows: bool = False):
    return Density(is_of_nflows)


class Misspelt(nn.Linear):
    def forward(self, x):
        return self.forwards(x)


def misspelt():
    return Misspelt(5, 1)


def of_lightning(kind: str = ""):
    return lightning.module(kind=kind)


def with_step():
    return lightning.with_step()
