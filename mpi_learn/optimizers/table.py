"""Every optimizer: name -> class."""

from __future__ import annotations

from mpi_learn.optimizers.adadelta import AdaptiveDelta
from mpi_learn.optimizers.adagrad import AdaptiveGradient
from mpi_learn.optimizers.adam import AdaptiveMoments
from mpi_learn.optimizers.lamb import LayerwiseAdaptiveMoments
from mpi_learn.optimizers.lars import LayerwiseAdaptiveRates
from mpi_learn.optimizers.optimizer import Optimizer
from mpi_learn.optimizers.rmsprop import RootMeanSquarePropagation
from mpi_learn.optimizers.sgd import StochasticGradientDescent

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": StochasticGradientDescent,
    "adam": AdaptiveMoments,
    "adamw": AdaptiveMoments,
    "rmsprop": RootMeanSquarePropagation,
    "adadelta": AdaptiveDelta,
    "adagrad": AdaptiveGradient,
    "lars": LayerwiseAdaptiveRates,
    "lamb": LayerwiseAdaptiveMoments,
}
