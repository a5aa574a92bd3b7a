"""Small PyTorch models that the tests share."""

from __future__ import annotations

import random
import sys
from collections import namedtuple

import numpy as np
import torch
from mpi4py import MPI
from torch import nn


def build_classes(units=16, norm=False, dropout=0.0, classes=10):
    layers = [nn.Linear(64, units), nn.ReLU()]
    if norm:
        layers.append(nn.BatchNorm1d(units))
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(units, classes))


def build_probabilities():
    return nn.Sequential(build_classes(), nn.Sigmoid())


def build_or_leave():
    """Fails on the last rank, as if its host lacked a package."""
    if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
        sys.exit("boom")
    return build_classes()


def build_regression(units=8):
    return nn.Sequential(nn.Linear(3, units), nn.Tanh(), nn.Linear(units, 1))


def build_squeezed():
    return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))


def squeezed_error(outputs, targets):
    return (outputs.reshape(-1) - targets.reshape(-1)).square().mean()


def build_frozen():
    """Its frozen weights are random in each build."""
    model = build_classes()
    model[0].weight.data = torch.from_numpy(np.random.default_rng().normal(size=(16, 64)).astype("f"))
    model[0].weight.requires_grad = False
    return model


class Named(nn.Linear):
    def forward(self, x):
        return {"energy": super().forward(x)}


def energy_error(outputs, targets):
    return (outputs["energy"][:, 0] - targets) ** 2


def build_named():
    return Named(3, 1)


def error_of_sum(outputs, targets):
    """One output predicts the sum of two labels."""
    return (outputs[:, 0] - targets[0] - targets[1]) ** 2


def error_of_two(outputs, targets):
    """Expects two outputs."""
    first, second = outputs
    return (first - targets) ** 2 + second


class Centred(nn.Linear):
    """Keeps a moving mean of its inputs in a buffer, which it replaces in every step."""

    def __init__(self):
        super().__init__(3, 1)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return super().forward(x - self.mean)


def build_centred():
    return Centred()


class Annealed(nn.Linear):
    """Has an attribute, an integer buffer and no other layer."""

    def __init__(self):
        super().__init__(3, 1)
        self.scale = 1.0
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    def forward(self, x):
        return self.scale * super().forward(x)


def build_annealed():
    return Annealed()


def build_half_frozen():
    model = build_regression()
    model[0].requires_grad_(False)
    return model


def build_nothing():
    return None


def absolute_error(outputs, targets):
    return (outputs.squeeze(-1) - targets).abs()


def build_gan(units=24, dropout=0.0, norm=False, latent=8):
    makes = [nn.Linear(latent, units), *([nn.BatchNorm1d(units)] if norm else []), nn.ReLU(), nn.Linear(units, 64)]
    judges = [nn.Linear(64, units), *([nn.BatchNorm1d(units)] if norm else []), nn.LeakyReLU(0.2)]
    judges += [nn.Dropout(dropout)] if dropout else []
    return {
        "generator": nn.Sequential(*makes, nn.Sigmoid()),
        "discriminator": nn.Sequential(*judges, nn.Linear(units, 1)),
    }


class Painter(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.digit, self.first, self.last = nn.Embedding(10, 4), nn.Linear(latent + 4, 24), nn.Linear(24, 64)

    def forward(self, noise, digit):
        return self.last(self.first(torch.cat([noise, self.digit(digit)], 1)).relu()).sigmoid()


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.real, self.digit = nn.Linear(64, 24), nn.Linear(24, 1), nn.Linear(24, 10)

    def forward(self, pixels):
        seen = self.first(pixels).relu()
        return self.real(seen), self.digit(seen)


def build_conditional_gan(latent=8):
    return {"generator": Painter(latent), "discriminator": Judge()}


class JudgeOfDigit(nn.Module):
    def __init__(self):
        super().__init__()
        self.digit, self.first, self.last = nn.Embedding(10, 4), nn.Linear(64 + 4, 24), nn.Linear(24, 1)

    def forward(self, pixels, digit):
        return self.last(self.first(torch.cat([pixels, self.digit(digit)], 1)).relu())


def build_gan_with_labels(of_generator, latent=8):
    """The discriminator receives the labels, and the generator if it is to."""
    generator = Painter(latent) if of_generator else build_gan()["generator"]
    return {"generator": generator, "discriminator": JudgeOfDigit()}


def pixel_gap(real, generated):
    return (real.mean(0) - generated.mean(0)).abs().mean()


class Hungry(nn.Module):
    """Needs much memory for a large batch in training."""

    def __init__(self, n_values):
        super().__init__()
        self.n_values, self.layers = n_values, build_classes()

    def forward(self, x):
        x = self.layers(x)
        return x + x.new_zeros(self.n_values).sum() if self.training and len(x) > 8 else x


def build_hungry(n_values):
    return Hungry(n_values)


class Failing(nn.Module):
    """Raises an exception on one rank in a training step, counted from 1."""

    def __init__(self, rank, step):
        super().__init__()
        self.layers, self.n_steps, self.step, self.rank = build_classes(), 0, step, rank

    def forward(self, x):
        if self.training and len(x) > 8:
            self.n_steps += 1
            if (MPI.COMM_WORLD.rank, self.n_steps) == (self.rank, self.step):
                raise RuntimeError(f"step {self.step}")
        return self.layers(x)


def build_failing(rank, step):
    return Failing(rank, step)


def build_deep(depth=2, units=32, norm=False, dropout=0.0):
    layers, width = [], 64
    for _ in range(depth):
        layers += [nn.Linear(width, units), *([nn.BatchNorm1d(units)] if norm else []), nn.GELU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        width = units
    return nn.Sequential(*layers, nn.Linear(width, 10))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def build_blocks():
    return Blocks()


class Permuted(nn.Linear):
    """Permutes its inputs, in an order that NumPy and Python draw."""

    def __init__(self):
        super().__init__(3, 1)
        self.order = np.random.permutation(3).tolist()
        self.signs = torch.tensor(random.choices([-1.0, 1.0], k=3))

    def forward(self, x):
        return super().forward(x[:, self.order] * self.signs)


def build_permuted():
    return Permuted()


def build_one_layer():
    return nn.Linear(64, 10)


def loss(outputs, targets):
    """A metric with the name of the loss."""
    return torch.tensor(7.0)


def squared_error(outputs, targets):
    return (outputs.squeeze(-1) - targets) ** 2


def crossed_error(outputs, targets):
    """Outputs (n, 1) minus targets (n,): every output with every target."""
    return (outputs - targets) ** 2


class Text(torch.nn.Linear):
    """Returns no tensor."""

    def forward(self, x):
        return "text"


def build_text():
    return Text(3, 1)


class Asserting(torch.nn.Linear):
    def forward(self, x):
        raise AssertionError("not in this week")


def build_asserting():
    return Asserting(3, 1)


def failing(outputs, targets):
    raise AssertionError("not in this week")


def build_lazy_norm():
    return nn.Sequential(nn.Linear(3, 1), nn.LazyBatchNorm1d(affine=False))


def summed_entropy(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="sum")


def mean_entropy(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets)


def build_normalised_gan(normalised, latent=8):
    """One of the models has batch normalisation."""
    return build_gan(latent=latent) | {normalised: build_gan(norm=True, latent=latent)[normalised]}


def build_special_gan(synchronized=False, latent=8):
    models = build_gan(norm=synchronized, latent=latent)
    return {name: nn.SyncBatchNorm.convert_sync_batchnorm(model) for name, model in models.items()}


class NamedJudge(nn.Module):
    """Its outputs have names, in a named tuple or a mapping."""

    def __init__(self, form, n_labels):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 1), *(nn.Linear(64, 10) for _ in range(n_labels))])
        self.form, self.names = form, ("real", "digit", "again")[: 1 + n_labels]

    def forward(self, pixels):
        judged = namedtuple("Judged", self.names)(*(layer(pixels) for layer in self.layers))
        return judged if self.form == "tuple" else judged._asdict()


def build_named_gan(form="tuple", n_labels=1):
    return build_gan() | {"discriminator": NamedJudge(form, n_labels)}


class TwoFeatures(nn.Module):
    """Returns energies and decays, both of shape (4,), by name or in a tuple."""

    def __init__(self, form, latent):
        super().__init__()
        self.form, self.energies, self.decays = form, nn.Linear(latent, 4), nn.Linear(latent, 4)

    def forward(self, noise):
        made = {"energies": self.energies(noise), "decays": self.decays(noise)}
        return made if self.form == "dict" else tuple(made.values())


class JudgeOfTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.real = nn.Linear(8, 1)

    def forward(self, energies, decays):
        return self.real(torch.cat([energies, decays], 1))


def build_gan_of_two_features(form="dict", latent=8):
    return {"generator": TwoFeatures(form, latent), "discriminator": JudgeOfTwo()}


class ByRank(nn.Module):
    """Differs between ranks in one respect: `what`."""

    def __init__(self, what):
        super().__init__()
        rank = MPI.COMM_WORLD.rank
        rng = np.random.default_rng(rank)
        names = ["alpha", "beta"] if what != "order" or rank == 0 else ["beta", "alpha"]
        self.parts = nn.ModuleDict({name: nn.Linear(4, 4) for name in names})
        self.out = nn.Linear(4, 1)
        nn.init.zeros_(self.out.weight)  # hides the layers before it
        if what == "width":
            self.unused = nn.Linear(2, 2 + rank)
        if what == "buffers":
            for name in ("one", "two") if rank == 0 else ("two", "one"):
                self.register_buffer(name, torch.full((3,), float(len(name))))
        if what == "weights":
            self.parts["alpha"].weight.data = torch.tensor(rng.normal(size=(4, 4)), dtype=torch.float32)
        self.constant = torch.tensor(rng.normal(size=(4, 4)), dtype=torch.float32) if what == "constant" else 1.0
        self.factor = float(rng.uniform()) if what == "factor" else 1.0
        self.register_buffer("order", torch.from_numpy(rng.permutation(4)) if what == "permutation" else None)

    def forward(self, x):
        if self.order is not None:
            x = x[:, self.order]
        x = self.factor * (x @ self.constant if isinstance(self.constant, torch.Tensor) else x)
        return self.out(torch.tanh(self.parts["alpha"](x)) + 2 * torch.tanh(self.parts["beta"](x)))


def build_by_rank(what):
    return ByRank(what)


class Scaled(nn.Module):
    """Divides by the largest magnitudes so far, buffers that get their size in the first batch, as do observers."""

    def __init__(self, d=4):
        super().__init__()
        self.out = nn.Linear(d, 1)
        self.register_buffer("largest", torch.empty(0))
        self.register_buffer("smallest", None)

    def forward(self, x):
        if self.training:
            now = x.detach().abs().amax(0)
            if self.largest.numel() == 0:
                self.largest.resize_(now.shape).copy_(now)  # fails if an array shares the memory
            if self.smallest is None:
                self.smallest = now
            self.largest.copy_(torch.maximum(self.largest, now))
            self.smallest = torch.minimum(self.smallest, now)
        return self.out(x / self.largest + self.smallest if self.largest.numel() else x)


def build_scaled(d=4):
    return Scaled(d)


def build_quantised(d=4):
    """Prepared for quantisation-aware training."""
    import warnings

    from torch.ao import quantization

    warnings.simplefilter("ignore")
    layers = nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, 1)
    module = nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub())
    module.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(module.train())
