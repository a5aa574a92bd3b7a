"""How step vectors are summed over ranks: exactly, or with fewer bytes on the network."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from mpi_learn.devices.device_vector import DeviceVector, Vector
from mpi_learn.devices.host_staging import HostStaging
from mpi_learn.flat_layout import WEIGHT, FlatLayout
from mpi_learn.mpi.communicators import Communicator, gathered, sum_in_place
from mpi_learn.optimizers.rules.rule import fused


class Reduction(ABC):
    """Sums step vectors over ranks. The counts and sums behind the gradient are always exact."""

    @abstractmethod
    def sum(self, comm: Communicator, step: Any) -> None:
        """Replaces `step`, (n + sums,) float32 or float64, by its sum over all ranks. Collective over `comm`.

        A rank that has failed takes part with a `failed_step`. Only exact sums take a `DeviceVector`.
        """

    def state(self) -> dict[str, np.ndarray]:
        """As `Algorithm.state`: arrays that are the same on all ranks."""
        return {}

    def rank_state(self) -> dict[str, np.ndarray]:
        """The arrays that belong to this rank, such as remainders for later steps: to be read or filled."""
        return {}

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Ends connections of its own. Collective."""


class ExactSum(Reduction):
    """One Allreduce in place, for a vector on a device through memory of the host."""

    def __init__(self) -> None:
        self._staging = HostStaging()

    def sum(self, comm: Communicator, step: Vector) -> None:
        if isinstance(step, DeviceVector):
            self._staging.sum(comm, step)
        else:
            sum_in_place(comm, step)


class TopFraction(Reduction):
    """Only the largest elements are sent; the others are added to the next gradient (error feedback).

    After Lin et al. 2018, "Deep gradient compression", without its momentum correction. What is held back is a mean
    over samples, not a sum: otherwise the last step of an epoch, with few samples, would be dominated by the remainders
    of steps with many samples. A rank sends elements of an array only in steps in which its batch uses this array,
    because the optimizer does not update arrays that no rank has used.

    Args:
        fraction: Fraction of the elements that is sent.
        layout: Layout of the gradient, with or without counts.
    """

    def __init__(self, fraction: float, layout: FlatLayout) -> None:
        n = layout.without_counts.size
        self._layout, self.n_sent, self._weight = layout, max(1, int(fraction * n)), layout.size + WEIGHT
        self._held_back = np.zeros(n, np.float32)

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        if comm.size == 1:
            return
        held_back, k = self._held_back, self.n_sent
        n = held_back.size
        own = step[self._weight]
        mean = held_back + step[:n] / own if own != 0 else held_back
        magnitudes = self._magnitudes(mean, step)
        places = np.argpartition(magnitudes, n - k)[n - k :].astype(np.int32)
        is_sent = magnitudes[places] != 0  # if fewer than k elements differ from zero, others fill the message
        values = own * np.where(is_sent, mean[places], np.float32(0))
        all_places, all_values = gathered(comm, places), gathered(comm, np.concatenate([values, step[n:]]))
        step[:n] = 0
        for theirs, values in zip(all_places, all_values, strict=True):
            step[theirs] += values[:k]
        step[n:] = all_values[:, k:].sum(0)
        if own != 0 and step[self._weight] != 0:  # otherwise the step changes nothing: all is held back as before
            held_back[:] = mean
            held_back[places[is_sent]] = 0

    def rank_state(self) -> dict[str, np.ndarray]:
        return {"held_back": self._held_back}

    def _magnitudes(self, mean: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The magnitude of each element, (n,); 0 in the arrays that the batch of this rank has not used."""
        magnitudes: np.ndarray = np.abs(mean)
        magnitudes[self._layout.resting(step)] = 0
        return magnitudes


class LowRank(Reduction):
    """Matrices are sent as products of two narrow ones; the rest is added to the next gradient (error feedback).

    PowerSGD (Vogels, Karimireddy & Jaggi 2019, algorithms 1 and 2). With the sum over ranks M = Σ Mᵢ of a matrix, one
    power iteration is ``P ← orthonormal(Σ Mᵢ Q)``, ``Q ← Σ Mᵢᵀ P``, and the approximation is ``P Qᵀ``. The next step
    begins with this Q. An array with more than two axes becomes the matrix with the smallest sum of rows and columns.
    Vectors, and matrices that would not become smaller, are summed exactly.

    As in `TopFraction`, the remainder that a rank holds back is a mean over samples. The sum of an array that no rank
    has used is zero, and its remainder does not change.

    Every rank orthonormalises P in the same order of operations. The products that follow are computed by BLAS, and may
    differ in their last digits between different processors.

    Args:
        matrix_rank: Rank of the approximations, the number of columns of P and Q.
        layout: Layout of the gradient, with or without counts.
    """

    def __init__(self, matrix_rank: int, layout: FlatLayout) -> None:
        self._layout, bounds = layout, layout.bounds.tolist()
        self._held_back = np.zeros(layout.without_counts.size, np.float32)
        self._shapes = {
            index: (rows, columns)
            for index, (rows, columns) in enumerate(map(_matrix_shape, layout.without_counts.shapes))
            if matrix_rank * (rows + columns) < rows * columns
        }
        self._places = {index: slice(bounds[index], bounds[index + 1]) for index in self._shapes}
        # what is between the matrices and behind the last one: vectors, counts and sums
        edges = [0, *(edge for place in self._places.values() for edge in (place.start, place.stop))]
        self._exact = [slice(*pair) for pair in zip(edges[::2], [*edges[1::2], None], strict=True)]
        columns = FlatLayout(tuple((columns, matrix_rank) for _, columns in self._shapes.values()))
        self._right_factors = np.random.default_rng(0).standard_normal(columns.size, np.float32)
        self._right_matrices = dict(zip(self._shapes, columns.views(self._right_factors), strict=True))

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        if comm.size == 1:
            return
        own = float(step[self._layout.size + WEIGHT])
        means = {index: self._mean(index, step, own) for index in self._shapes}
        # P = Σ Mᵢ Q: the message of the first collective also has the arrays that are summed exactly, and the weights
        left_factors = [own * (mean @ self._right_matrices[index]) for index, mean in means.items()]
        *left_factors, exact = _summed(comm, [*left_factors, np.concatenate([step[place] for place in self._exact])])
        self._write_exact(step, exact)
        for left in left_factors:
            orthonormalize(left)
        # Q = Σ Mᵢᵀ P, and with it the approximation P Qᵀ of the sum
        products = [own * (mean.T @ left) for mean, left in zip(means.values(), left_factors, strict=True)]
        right_factors = _summed(comm, products)
        total = float(step[self._layout.size + WEIGHT])
        used = self._layout.without_counts.used(step[: self._layout.size])
        for index, left, right in zip(means, left_factors, right_factors, strict=True):
            place, approximation = self._places[index], left @ right.T
            step[place] = approximation.ravel() if used[index] else 0
            if used[index] and total != 0:
                has_direction = right.any(axis=0)  # a gradient of zeros has no direction
                self._right_matrices[index][:, has_direction] = right[:, has_direction]
                if own != 0:
                    self._held_back[place] = (means[index] - approximation / total).ravel()

    def rank_state(self) -> dict[str, np.ndarray]:
        return {"held_back": self._held_back, "right_factors": self._right_factors}

    def _mean(self, index: int, step: np.ndarray, weight: float) -> np.ndarray:
        """This rank's mean gradient of a matrix and what it has held back."""
        place = self._places[index]
        mean = self._held_back[place] + step[place] / weight if weight != 0 else self._held_back[place]
        matrix: np.ndarray = mean.reshape(self._shapes[index])
        return matrix

    def _write_exact(self, step: np.ndarray, values: np.ndarray) -> None:
        """Replaces everything but the matrices in `step`."""
        first = 0
        for place in self._exact:
            part = step[place]
            part[:] = values[first : first + part.size]
            first += part.size


class ExactFirstSteps(Reduction):
    """Exact sums in the first exchanges of a training, in which the weights change most; then another reduction.

    As `start_powerSGD_iter` of PyTorch's PowerSGD hook. All exchanges are counted, also those without samples, so that
    all ranks change to the other reduction in the same one.

    Args:
        n_exact: Number of exact exchanges.
        reduction: Sums the later steps.
    """

    def __init__(self, n_exact: int, reduction: Reduction) -> None:
        self._n_exact, self._exact, self._reduction = n_exact, ExactSum(), reduction
        self._n_exchanges = np.zeros(1, np.int64)  # an array, so that a checkpoint can fill it

    def sum(self, comm: Communicator, step: np.ndarray) -> None:
        reduction = self._exact if self._n_exchanges[0] < self._n_exact else self._reduction
        self._n_exchanges += 1
        reduction.sum(comm, step)

    def state(self) -> dict[str, np.ndarray]:
        return {"n_exchanges": self._n_exchanges, **self._reduction.state()}

    def rank_state(self) -> dict[str, np.ndarray]:
        return self._reduction.rank_state()


MOST_PASSES = 4
"""The largest number of times that a column is orthogonalised. Nearly always one or two are enough."""


def _orthonormalize(matrix: np.ndarray) -> None:
    """Makes the columns of a float32 matrix orthonormal in place, by the modified Gram-Schmidt process.

    A column that becomes much shorter is orthogonalised again: little but rounding errors is left of a column that
    depends on the others (Giraud and Langou, IMA J. Numer. Anal. 22, 2002). Columns of zeros stay.

    The order of the sums is fixed, unlike that of `numpy.linalg.qr`. Ranks with different processors would otherwise
    use different columns where the matrix has a lower rank.
    """
    n_rows, n_columns = matrix.shape
    columns = matrix.T.copy()
    for j in range(n_columns):
        # sums in float64: in float32, rounding would hide what is left of a column that depends on the others
        column, square = columns[j], 0.0
        for row in range(n_rows):
            square += float(column[row]) * float(column[row])
        for _ in range(MOST_PASSES):
            before, square = square, 0.0
            for i in range(j):
                product = 0.0
                for row in range(n_rows):
                    product += float(columns[i, row]) * float(column[row])
                for row in range(n_rows):
                    column[row] -= np.float32(product) * columns[i, row]
            for row in range(n_rows):
                square += float(column[row]) * float(column[row])
            if square >= 0.25 * before:  # half of the length is left: rounding errors are small beside it
                break
        if square > 0:
            scale = np.float32(1 / math.sqrt(square))
            for row in range(n_rows):
                column[row] *= scale
    matrix[:] = columns.T


orthonormalize = fused(_orthonormalize)


def _matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of an array as the matrix with the smallest sum of both; (size, 1) of a vector."""
    cuts = [(math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in range(1, len(shape))]
    return min(cuts, key=sum, default=(math.prod(shape), 1))


def _summed(comm: Communicator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Each float32 array's sum over all ranks, in one collective over `comm`."""
    message = np.concatenate([np.ravel(array) for array in arrays]) if arrays else np.zeros(0, np.float32)
    sum_in_place(comm, message)
    return FlatLayout.of(arrays).views(message)
