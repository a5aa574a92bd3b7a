"""Optimizers as users write them."""

from __future__ import annotations


def with_schedule(learning_rate=0.05):
    import keras

    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(learning_rate, 2, 0.5))


def with_averages(frequency=None, is_one_of_two=False):
    import keras

    def make(momentum):
        return keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=momentum, ema_overwrite_frequency=frequency)

    if not is_one_of_two:
        return make(0.8)
    of_variables = keras.optimizers.OptimizerMap(make(0.5))
    of_variables[".*bias"] = keras.optimizers.SGD(0.05)
    return keras.optimizers.MultiOptimizer(of_variables)


def with_own_end():
    import keras

    class Halved(keras.optimizers.SGD):
        def finalize_variable_values(self, var_list):
            for variable in var_list:
                variable.assign(0.5 * variable)

    return Halved(0.1)


def nothing(*parameters):
    return 3


def counting(parameters, lr=0.1):
    """Numbers that are no tensors, in the state of parameters and of groups: the steps become shorter."""
    import torch

    class Counting(torch.optim.Optimizer):
        def __init__(self):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                group["n_steps"] = group.get("n_steps", 0) + 1
                for one in group["params"]:
                    state = self.state[one]
                    state["factor"] = 0.9 * state.get("factor", 1.0)
                    one.sub_(one.grad, alpha=group["lr"] * state["factor"] / group["n_steps"])

    return Counting()


def listing(parameters):
    """A state that is a list."""
    optimizer = counting(parameters)
    step = optimizer.step

    def step_and_list():
        step()
        optimizer.state[parameters[0]]["gradients"] = [parameters[0].grad]

    optimizer.step = step_and_list
    return optimizer
