"""Generator and discriminator in PyTorch: their parameters are views of one flat vector."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpi_learn.errors import ModelError
from mpi_learn.flat_layout import N_WORDS, FlatLayout, aligned_empty
from mpi_learn.models.configuration import Computing, Gan, Turn
from mpi_learn.models.gan import (
    DISCRIMINATOR,
    GENERATOR,
    GanSums,
    Rounds,
    check_generated,
    joint_layout,
    weights_of,
)
from mpi_learn.models.model import Arrays, Model
from mpi_learn.models.torch_.torch_checkpointing import Tensors, TorchCalls, resting
from mpi_learn.models.torch_.torch_losses import check_label_range, make_losses
from mpi_learn.models.torch_.torch_model import check_parameters, fill, state_of
from mpi_learn.settings.user_code import load_function


class TorchGan(Model):
    """Two PyTorch modules that train each other, as one flat vector; see `mpi_learn.models.gan`.

    In a module's turn its buffers (moving means and variances) move on, the other's rest.

    Args:
        pair: ``discriminator`` and ``generator``; their parameters are float32.
        options: Who moves when.
        loss, metrics: As in the configuration, with absolute paths.
        x: A few samples, for shapes and types: the features, and noise as the last of them.
        y: Labels, maybe none.
        seed: Of dropout: give each rank its own.
        computing: In which precision, and whether activations are computed again.

    Raises:
        ModelError, ConfigurationError: Modules, loss, metrics and samples do not fit together.
    """

    def __init__(
        self,
        pair: dict[str, torch.nn.Module],
        options: Gan,
        loss: Any,
        metrics: Any,
        x: Arrays,
        y: Arrays,
        seed: int,
        computing: Computing,
    ) -> None:
        self.options, self._rounds = options, Rounds(options.turns)
        self.discriminator, self.generator = pair[DISCRIMINATOR], pair[GENERATOR]
        self._judged, self._generated = (TorchCalls(one, computing) for one in (self.discriminator, self.generator))
        self._parameters = [trainable(one) for one in (self.discriminator, self.generator)]
        self.layout = joint_layout(*(FlatLayout(tuple(tuple(p.shape) for p in own)) for own in self._parameters))
        outputs = self._tried(x, y)
        self._loss_weights = weights_of(options, len(outputs), len(y))
        labels = y if len(outputs) > 1 else ()
        self._losses = make_losses(loss, outputs, (np.ones(outputs[0], np.float32), *labels))
        self._metrics = [load_function(one) for one in metrics]
        self.sums = GanSums(metrics)
        self.n_sums = self.sums.n
        self.weights, self._step = aligned_empty(self.layout.size), aligned_empty(self.layout.size + self.n_sums)
        self.weights[:] = 0
        self._gradients = [list(map(torch.from_numpy, views)) for views in self._views(self._step)]
        for parameters, views in zip(self._parameters, self._views(self.weights), strict=True):
            for parameter, view in zip(parameters, views, strict=True):
                view[...] = parameter.detach().numpy()
                parameter.data = torch.from_numpy(view)
        self._moving, self._whole = state_of(self.discriminator, self.generator)
        torch.manual_seed(seed)

    def gradient(self, x: Arrays, y: Arrays) -> np.ndarray:
        """The step of whose turn it is; the other's part is zero, and so is its number of samples."""
        turn, n = self._rounds.next(), len(x[0])
        self._step[:] = 0
        if n == 0:
            return self._step
        self.discriminator.train()
        self.generator.train()
        fake, losses = self._losses_of(x, y, turn)
        places = [place for place, _ in self.layout.places()]
        for i, (moves, loss, place) in enumerate(zip(turn, losses, places, strict=True)):
            if not moves:
                continue
            found = torch.autograd.grad(loss, self._parameters[i], retain_graph=i == 0, allow_unused=True)
            for view, gradient in zip(self._gradients[i], found, strict=True):
                if gradient is not None:
                    view.copy_(gradient)
            self._step[place.stop] = n
        self._step[self.layout.size :] = self._sums(turn, losses, x, fake)
        return self._step

    def evaluate(self, x: Arrays, y: Arrays) -> np.ndarray:
        """See `Model.evaluate`."""
        self.discriminator.eval()
        self.generator.eval()
        turn = Turn(True, True)
        with torch.no_grad():
            fake, losses = self._losses_of(x, y, turn)
        return self._sums(turn, losses, x, fake)

    def check_labels(self, y: Arrays) -> None:
        """Those that the discriminator predicts; see `Model.check_labels`."""
        check_label_range(self._losses[1:], y[: len(self._losses) - 1])

    def metrics(self, sums: np.ndarray) -> dict[str, float]:
        """See `GanSums.results`."""
        return self.sums.results(sums)

    def predict(self, x: Arrays) -> tuple[np.ndarray, ...]:
        """Generated samples; `x` is what the generator takes: noise, and labels if it is given any."""
        self.generator.eval()
        with torch.no_grad():
            return tuple(one.numpy() for one in self._generated(list(map(torch.from_numpy, x))))

    def moving(self) -> np.ndarray:
        """See `Model.moving`."""
        parts = [one.float().numpy().ravel() for one in self._moving]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def set_moving(self, values: np.ndarray) -> None:
        """See `Model.set_moving`."""
        fill(self._moving, values)

    def counters(self) -> np.ndarray:
        """See `Model.counters`: whose turn it is, whole-number buffers, the state of the random generator."""
        parts = [one.numpy().astype(np.int64).ravel() for one in self._whole]
        return np.concatenate([[self._rounds.place], *parts, torch.get_rng_state().numpy()]).astype(np.int64)

    def set_counters(self, values: np.ndarray) -> None:
        """See `Model.set_counters`."""
        self._rounds.place = int(values[0])
        used = fill(self._whole, values[1:])
        torch.set_rng_state(torch.from_numpy(values[1 + used :].astype(np.uint8)))

    def finish(self) -> dict[str, torch.nn.Module]:
        """Both modules, as the user's function returned them."""
        return {GENERATOR: self.generator.eval(), DISCRIMINATOR: self.discriminator.eval()}

    def save(self, path: Path) -> Path:
        """Writes the state dicts, ``NAME_discriminator.pt`` and ``NAME_generator.pt``; returns the latter."""
        for name, module in reversed(self.finish().items()):
            file = path.with_name(f"{path.stem}_{name}.pt")
            aside = path.with_name(f".{file.stem}.writing.pt")
            torch.save({key: value.clone() for key, value in module.state_dict().items()}, aside)
            aside.rename(file)
        return file

    def _views(self, vector: np.ndarray) -> list[list[np.ndarray]]:
        """Each module's arrays in `vector`."""
        return [part.views(vector[place]) for place, part in self.layout.places()]

    def _tried(self, x: Arrays, y: Arrays) -> list[tuple[int, ...]]:
        """The shapes of the discriminator's outputs, by calling both modules on a few samples."""
        *real, noise = map(torch.from_numpy, x)
        labels = list(map(torch.from_numpy, y))
        self.discriminator.eval()
        self.generator.eval()
        problem, where = "the generator does not take its noise", "gan.latent"
        try:
            with torch.no_grad():
                generated = self._generated([noise, *self._given(GENERATOR, labels)])
                check_generated([tuple(one.shape[1:]) for one in generated], x[:-1])
                problem, where = "the discriminator does not take the samples", "data.features"
                outputs = self._judged([*real, *self._given(DISCRIMINATOR, labels)])
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ModelError(f"{problem}: {error}", where=where) from error
        return [tuple(one.shape) for one in outputs]

    def _given(self, name: str, y: Tensors) -> Tensors:
        return y if name in self.options.condition else []

    def _loss(self, outputs: Tensors, target: float, y: Tensors) -> torch.Tensor:
        """Of the discriminator's outputs, summed over the samples, where the first should say `target`."""
        labels = torch.full_like(outputs[0], target), *y
        losses = zip(self._loss_weights, self._losses, labels, outputs, strict=False)
        return sum(weight * loss.summed(*of_output) for weight, loss, *of_output in losses)

    def _losses_of(self, x: Arrays, y: Arrays, turn: Turn) -> tuple[Tensors, Tensors]:
        """Generated samples, and the summed losses of discriminator and generator; 0 of one that rests."""
        *real, noise = map(torch.from_numpy, x)
        labels = list(map(torch.from_numpy, y))
        d_loss = g_loss = torch.zeros(())
        wants_gradient = turn.generator and torch.is_grad_enabled()
        with nullcontext() if turn.generator else resting(self.generator), torch.set_grad_enabled(wants_gradient):
            fake = self._generated([noise, *self._given(GENERATOR, labels)])
        given = self._given(DISCRIMINATOR, labels)
        with nullcontext() if turn.discriminator else resting(self.discriminator):
            if turn.discriminator:
                outputs = self._judged([*real, *given])
                d_loss = 0.5 * self._loss(outputs, 1.0 - self.options.smoothing, labels)
            outputs = self._judged([*fake, *given])
        if turn.discriminator:
            d_loss = d_loss + 0.5 * self._loss(outputs, 0.0, labels)
        if turn.generator:
            g_loss = self._loss(outputs, 1.0, labels)
        return fake, [d_loss, g_loss]

    def _sums(self, turn: Turn, losses: Tensors, x: Arrays, fake: Tensors) -> np.ndarray:
        n, totals = len(x[-1]), [loss.item() for loss in losses]
        of_models = [one for moves, loss in zip(turn, totals, strict=True) for one in (n if moves else 0, loss)]
        *real, _ = map(torch.from_numpy, x)
        measured = []
        with torch.no_grad():
            for metric in self._metrics:
                value = metric(real[0] if len(real) == 1 else real, fake[0] if len(fake) == 1 else fake)
                measured.append(value.item() * n if value.ndim == 0 else value.reshape(n, -1).mean(1).sum().item())
        return np.array([n, sum(totals), *of_models, *measured, *([0.0] * N_WORDS)])


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that want a gradient.

    Raises:
        ModelError: See `check_parameters`.
    """
    check_parameters(module)
    return [one for one in module.parameters() if one.requires_grad]
