"""Networks 784-32-10 trained side by side, by plain stochastic gradient descent, each with its own learning rate.

All networks get the same batches, so that their first layers are computed as one matrix product. On one core this is
several times faster than one network after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy, softmax

N_PIXELS, N_HIDDEN, N_CLASSES = 784, 32, 10

Weights = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Images:
    """Pixels from -0.5 to 0.5, shape (n, 784), float32, and classes 0 … 9, shape (n,), int64."""

    pixels: torch.Tensor
    classes: torch.Tensor

    def part(self, indices: torch.Tensor) -> Images:
        """The images with these indices."""
        return Images(self.pixels[indices], self.classes[indices])


class Networks:
    """`n` networks with uniformly distributed weights, as in PyTorch's layers.

    Args:
        n: The number of networks.
        seed: Seed of the weights.
    """

    def __init__(self, n: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def drawn(n_inputs: int, *shape: int) -> torch.Tensor:
            return (2 * torch.rand(*shape, generator=generator) - 1) / n_inputs**0.5

        self.n = n
        self._first, self._first_bias = drawn(N_PIXELS, N_PIXELS, n * N_HIDDEN), drawn(N_PIXELS, 1, n * N_HIDDEN)
        self._second, self._second_bias = drawn(N_HIDDEN, n, N_HIDDEN, N_CLASSES), drawn(N_HIDDEN, n, 1, N_CLASSES)

    def weights(self, index: int) -> Weights:
        """A copy of the weights of network `index`."""
        return tuple(view.clone() for view in self._of(index))

    def set_weights(self, index: int, weights: Weights) -> None:
        """Replaces the weights of one network by those of another."""
        for view, values in zip(self._of(index), weights, strict=True):
            view.copy_(values)

    def train_epoch(self, images: Images, rates: np.ndarray, batch_size: int, seed: int) -> None:
        """One epoch. `rates` has a learning rate for each network; `seed` determines the order of the images."""
        rate = torch.as_tensor(rates, dtype=torch.float32)[:, None, None] / batch_size
        one_hot = torch.eye(N_CLASSES)[images.classes]
        order = torch.randperm(len(images.classes), generator=torch.Generator().manual_seed(seed))
        for batch in order.split(batch_size):
            self._step(images.pixels[batch], one_hot[batch], rate)

    def evaluate(self, images: Images) -> tuple[np.ndarray, np.ndarray]:
        """The mean cross-entropy of each network, and the fraction of images that it classifies wrongly."""
        outputs = self._outputs(self._hidden(images.pixels))
        losses = [float(cross_entropy(output, images.classes)) for output in outputs]
        return np.array(losses), (outputs.argmax(2) != images.classes).float().mean(1).numpy()

    def _of(self, index: int) -> Weights:
        columns = slice(index * N_HIDDEN, (index + 1) * N_HIDDEN)
        first = self._first[:, columns], self._first_bias[:, columns]
        return *first, self._second[index], self._second_bias[index]

    def _hidden(self, pixels: torch.Tensor) -> torch.Tensor:
        """Shape (n, n_images, 32)."""
        flat = torch.addmm(self._first_bias, pixels, self._first).relu_()
        return flat.view(len(pixels), self.n, N_HIDDEN).transpose(0, 1)

    def _outputs(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self._second_bias, hidden, self._second)

    def _step(self, pixels: torch.Tensor, one_hot: torch.Tensor, rate: torch.Tensor) -> None:
        hidden = self._hidden(pixels)
        change = softmax(self._outputs(hidden), -1).sub_(one_hot).mul_(rate)  # rate times the gradient at the outputs
        back = torch.bmm(change, self._second.transpose(1, 2)).mul_(hidden > 0)
        below = back.transpose(0, 1).reshape(len(pixels), -1)
        self._second.sub_(torch.bmm(hidden.transpose(1, 2), change))
        self._second_bias.sub_(change.sum(1, keepdim=True))
        self._first.addmm_(pixels.t(), below, alpha=-1)
        self._first_bias.sub_(below.sum(0, keepdim=True))
