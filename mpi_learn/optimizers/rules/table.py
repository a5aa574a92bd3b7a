"""Every update rule: name -> class."""

from __future__ import annotations

from mpi_learn.optimizers.rules.adadelta import AdaptiveDelta
from mpi_learn.optimizers.rules.adagrad import AdaptiveGradient
from mpi_learn.optimizers.rules.adam import AdaptiveMoments
from mpi_learn.optimizers.rules.lamb import LayerwiseAdaptiveMoments
from mpi_learn.optimizers.rules.lars import LayerwiseAdaptiveRates
from mpi_learn.optimizers.rules.rmsprop import RootMeanSquarePropagation
from mpi_learn.optimizers.rules.rule import Rule
from mpi_learn.optimizers.rules.sgd import StochasticGradientDescent

RULES: dict[str, type[Rule]] = {
    "sgd": StochasticGradientDescent,
    "adam": AdaptiveMoments,
    "adamw": AdaptiveMoments,
    "rmsprop": RootMeanSquarePropagation,
    "adadelta": AdaptiveDelta,
    "adagrad": AdaptiveGradient,
    "lars": LayerwiseAdaptiveRates,
    "lamb": LayerwiseAdaptiveMoments,
}
