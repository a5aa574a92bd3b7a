"""A small `LightningModule`, which behaves as that of PyTorch Lightning without a trainer; modules derived from it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class LightningModule(nn.Module):
    """Has the methods and properties of PyTorch Lightning 2 that modules of users need or override."""

    def __init__(self):
        super().__init__()
        self._trainer, self.automatic_optimization = None, True

    @property
    def trainer(self):
        if self._trainer is None:
            raise RuntimeError("it is not attached to a `Trainer`.")
        return self._trainer

    @trainer.setter
    def trainer(self, trainer):
        self._trainer = trainer

    @property
    def current_epoch(self):
        return self.trainer.current_epoch if self._trainer else 0

    @property
    def global_step(self):
        return self.trainer.global_step if self._trainer else 0

    def log(self, name, value, **options):
        """Without a trainer, a warning."""

    def log_dict(self, values, **options):
        for name, value in values.items():
            self.log(name, value, **options)

    def optimizers(self):
        return self.trainer.strategy.optimizers

    def training_step(self, *arguments): ...

    def validation_step(self, *arguments): ...

    def configure_optimizers(self): ...

    def on_train_epoch_end(self): ...

    def on_test_epoch_end(self): ...

    def train_dataloader(self): ...


LightningModule.__module__ = "pytorch_lightning.core.module"


def module(base=LightningModule, kind="", batch_penalty=0.1):
    """A module whose steps compute a loss that no configuration names.

    Args:
        kind: What the module does besides, or what it lacks.
    """

    class Module(base):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
            if kind == "manual":
                self.automatic_optimization = False

        def forward(self, x):
            return self.net(x)

        def _losses(self, batch):
            x, y = batch
            outputs = self(x).squeeze(-1)
            return functional.mse_loss(outputs, y) + batch_penalty * outputs.abs().mean(), (outputs - y).abs().mean()

        def training_step(self, batch, batch_idx):
            loss, error = self._losses(batch)
            if kind == "epoch" and self.current_epoch > 0:
                loss = 2 * loss
            if kind == "step" and self.global_step % 2:
                loss = 2 * loss
            if kind == "index" and batch_idx % 2 == 0:
                loss = 2 * loss
            if kind == "small":
                loss = 1e-9 * loss
            if kind == "optimizers":
                self.optimizers().zero_grad()
            if kind == "no loss":
                return None
            self.log("train_loss", loss, on_epoch=True)
            self.log("train_mae", error.item(), prog_bar=True)
            if kind == "array":
                self.log("train_tensor", torch.zeros(3))
            return {"loss": loss}

        def validation_step(self, batch, batch_idx):
            loss, error = self._losses(batch)
            self.log_dict({"val_loss": loss, "val_mae": error} if kind != "no val_loss" else {"val_mae": error})

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

        def train_dataloader(self):
            raise AssertionError("the data are those of the file")

        def on_test_epoch_end(self):
            raise AssertionError("there is no test")

    if kind == "hook":
        Module.on_train_epoch_end = lambda self: None
    if kind == "no validation":
        del Module.validation_step
    return Module()


class WithStep(nn.Linear):
    """A module with a `training_step` that is not of Lightning."""

    def training_step(self, batch):
        raise AssertionError


def with_step():
    return WithStep(5, 1)
