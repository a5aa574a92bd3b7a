"""Keras models in stages, for tests."""

import os
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from mpi4py import MPI


def build(units=16):
    """A functional model with a skip connection, which no cut may divide."""
    x = inputs = keras.Input((12,))
    x = layers.Dense(units, activation="tanh")(x)
    x = layers.Add()([x, layers.Dense(units)(layers.Dense(units, activation="tanh")(x))])
    x = layers.Dense(units)(x)
    x = layers.ReLU()(x)
    x = layers.Dense(units, activation="tanh")(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax")(x))


def build_chain(units=16):
    """A sequential model."""
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(units, activation="tanh"),
            layers.Dense(units),
            layers.ReLU(),
            layers.Dense(3, activation="softmax"),
        ]
    )


class Slow(layers.Dense):
    """Takes 0.1 s if the environment says so."""

    def __init__(self, index, **options):
        super().__init__(12, **options)
        self.index = str(index)

    def call(self, x, training=None):
        if os.environ["SLOW"] == self.index:
            tf.py_function(lambda: time.sleep(0.1), [], [])
        return super().call(x)


def build_slow():
    """Four layers with equal numbers of operations, of which one is slow."""
    return keras.Sequential([keras.Input((12,)), *(Slow(index, activation="softmax") for index in range(4))])


def build_stages(n=2):
    """The same model, in a list."""
    model = build_chain()
    made = model.layers
    parts = {2: [made[:1], made[1:]], 4: [[layer] for layer in made]}[n]
    return [keras.Sequential([keras.Input(part[0].input.shape[1:]), *part]) for part in parts]


def build_functions():
    """Functions that build the stages; the second one has no input shape."""
    return [
        lambda: keras.Sequential([keras.Input((12,)), layers.Dense(16, activation="tanh")]),
        lambda: keras.Sequential([layers.Dense(3, activation="softmax")]),
    ]


def build_broken(how):
    """Functions that build the stages; that of the second one fails, or the call on the second rank."""

    def second():
        if how == "raises":
            raise RuntimeError("boom")

    if how == "host" and MPI.COMM_WORLD.rank == 1:
        raise ImportError("no such library here")
    return [lambda: keras.Sequential([keras.Input((12,)), layers.Dense(16)]), second]


def build_shared():
    """The first layer is used again behind the last cut."""
    x = inputs = keras.Input((12,))
    layer = layers.Dense(12, activation="tanh")
    x = layer(layers.Dense(12)(layer(x)))
    return keras.Model(inputs, layers.Softmax()(x))


def build_two_tensors():
    """Two tensors pass between the stages."""
    inputs = keras.Input((12,))
    return [
        keras.Model(inputs, [layers.Dense(12)(inputs), inputs]),
        keras.Sequential([keras.Input((12,)), layers.Dense(3, activation="softmax")]),
    ]


class Tangled(keras.Model):
    """No graph of layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(12), layers.Dense(3, activation="softmax")

    def call(self, x):
        return self.b(x + self.a(x))


def build_tangled():
    return Tangled()


def build_normalised():
    """Batch normalisation in both stages."""
    output = layers.Dense(3, activation="softmax")
    return [
        keras.Sequential([keras.Input((12,)), layers.Dense(16), layers.BatchNormalization(), layers.ReLU()]),
        keras.Sequential([keras.Input((16,)), layers.Dense(16), layers.BatchNormalization(), output]),
    ]


class Failing(keras.layers.Layer):
    """Raises in a late call in training, or in evaluation."""

    def __init__(self, training):
        super().__init__()
        self.dense, self.when, self.n = layers.Dense(16), training, 0

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x, training=False):
        def counted(values):
            self.n += 1
            if self.n == 30:  # the model is tried in fewer calls
                raise RuntimeError("boom")
            return values

        if bool(training) == self.when and not isinstance(x, keras.KerasTensor):
            shape = x.shape
            x = x + 0.0 * tf.numpy_function(counted, [tf.stop_gradient(x)], tf.float32)
            x = tf.ensure_shape(x, shape)
        return self.dense(x)


def build_failing(stage, training):
    """A model that raises in one of two stages."""
    failing = Failing(training)
    return [
        keras.Sequential([keras.Input((12,)), layers.Dense(16), *([failing] if stage == 0 else [])]),
        keras.Sequential([keras.Input((16,)), *([failing] if stage == 1 else []), layers.Dense(3)]),
    ]


def build_penalised():
    """A regularizer in the first stage."""
    return [
        keras.Sequential([keras.Input((12,)), layers.Dense(16, kernel_regularizer="l2")]),
        keras.Sequential([keras.Input((16,)), layers.Dense(3, activation="softmax")]),
    ]


def plain_losses(x, y, batch, epochs, rate, seed):
    """The mean loss of each epoch in `fit` with SGD, with the samples in their order."""
    keras.utils.set_random_seed(seed)
    model = build()
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
    return np.array(model.fit(x, y, batch, epochs, shuffle=False, verbose=0).history["loss"], float).tolist()
