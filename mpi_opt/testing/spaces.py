"""Every kind of space that strategies support."""

from mpi_opt.core.search_space.space import Categorical, Integer, Real, Space

SPACES = {
    "real": Space({"x": Real(-5, 10), "y": Real(0, 1)}),
    "log": Space({"rate": Real(1e-5, 1e-1, prior="log-uniform"), "width": Integer(1, 4096, prior="log-uniform")}),
    "integer": Space({"n": Integer(-3, 60), "m": Integer(0, 2)}),
    "step": Space({"units": Integer(16, 256, step=16), "dropout": Real(0, 0.8, step=0.1)}),
    "categorical": Space({"kind": Categorical(("a", "b", None, True, 1)), "size": Categorical((32, 64, 128, 256))}),
    "conditional": Space(
        {
            "optimizer": Categorical(("sgd", "adam")),
            "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
            "nesterov": Categorical((True, False), when={"optimizer": "sgd"}),
            "beta": Real(0.8, 0.999, when={"optimizer": ["adam"]}),
            "schedule": Categorical(("none", "cosine"), when={"nesterov": True}),
        }
    ),
    "tiny": Space({"a": Integer(0, 1), "b": Categorical(("x", "y")), "c": Integer(1, 3, when={"b": "x"})}),
    "branching": Space(
        {
            "penalty": Real(0, 1, when={"kind": "machine"}),
            "kind": Categorical(("linear", "tree", "machine")),
            "depth": Integer(1, 6, when={"kind": "tree"}),
        }
    ),
    "single": Space({"only": Categorical(("one",))}),
    "mixed": Space(
        {
            "rate": Real(1e-4, 1, prior="log-uniform"),
            "x": Real(-1, 1),
            "units": Integer(8, 128, step=8),
            "depth": Integer(1, 5),
            "activation": Categorical(("relu", "tanh", "elu")),
            "optimizer": Categorical(("sgd", "adam")),
            "momentum": Real(0, 0.99, when={"optimizer": "sgd"}),
        }
    ),
}
N_POINTS = {"tiny": 8, "single": 1, "categorical": 20, "step": 144, "integer": 192}
"""How many different points the finite ones have."""
