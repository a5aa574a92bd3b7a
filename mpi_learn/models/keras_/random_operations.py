"""Random operations of TensorFlow whose state a checkpoint cannot hold."""

from __future__ import annotations

from itertools import chain
from typing import Any

UNSAVED = frozenset({
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal"),
    *("RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "RandomCrop", "Multinomial"),
    *("SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2", "FractionalMaxPool", "FractionalAvgPool"),
    *("UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler"),
    *("FixedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler", "AllCandidateSampler"),
    *("RngReadAndSkip", "RngSkip", "NonDeterministicInts", "StatefulStandardNormalV2", "StatefulTruncatedNormal"),
    *("StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt", "StatefulRandomBinomial"),
})  # fmt: skip
"""Types of operations. Their kernels hold the state, or a `tf.random.Generator`, which is no variable of Keras."""


def draws_unsaved(traced: Any) -> bool:
    """Whether a function of TensorFlow, `traced`, or one that it calls, has such an operation."""
    graph = traced.graph.as_graph_def()
    nodes = chain(graph.node, chain.from_iterable(function.node_def for function in graph.library.function))
    return any(node.op in UNSAVED for node in nodes)
