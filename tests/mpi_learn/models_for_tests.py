"""Small models and data that the tests of the training share."""

from __future__ import annotations

import numpy as np

from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples


def build_model(units=16, activation="relu", dropout=0.0, norm=False, penalty=0.0, classes=10):
    import keras

    regularizer = keras.regularizers.L2(penalty) if penalty else None
    layers = [keras.layers.Input((64,)), keras.layers.Dense(units, activation, kernel_regularizer=regularizer)]
    if norm:
        layers.append(keras.layers.BatchNormalization())
    if dropout:
        layers.append(keras.layers.Dropout(dropout))
    return keras.Sequential([*layers, keras.layers.Dense(classes, activation="softmax")])


def build_regression(units=8):
    import keras

    layers = keras.layers
    return keras.Sequential([layers.Input((3,)), layers.Dense(units, "tanh"), layers.Dense(1)])


def build_binary():
    import keras

    layers = keras.layers
    return keras.Sequential([layers.Input((3,)), layers.Dense(8, "tanh"), layers.Dense(1, "sigmoid")])


def build_named_pair():
    """Two outputs of one shape, so that shapes do not show which loss belongs to which."""
    import keras

    inputs = keras.Input((3,))
    return keras.Model(inputs, [keras.layers.Dense(1, name=name)(inputs) for name in ("energy", "angle")])


def build_nothing():
    return None


def build_raising():
    raise RuntimeError("no such layer")


def absolute_error(labels, outputs):
    import keras

    labels = keras.ops.reshape(keras.ops.cast(labels, outputs.dtype), keras.ops.shape(outputs))
    return keras.ops.abs(labels - outputs)


def digits(n_validation=360):
    """The 1,797 handwritten digits of scikit-learn, the last validated on."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    samples = Samples(((bunch.data / 16).astype(np.float32),), (bunch.target.astype(np.int64),))
    order = np.random.default_rng(0).permutation(len(samples))
    return Dataset(samples, samples, order[n_validation:], order[:n_validation])


def line(n=200, seed=0):
    """Three numbers and their weighted sum, with a little noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5]) + 0.01 * rng.normal(size=n)).astype(np.float32)
    return Dataset(Samples((x,), (y,)), Samples((x[:50],), (y[:50],)))


def build_gan(units=24, dropout=0.0, norm=False, latent=8):
    """A generator and a discriminator of the 64 pixels of a digit."""
    import keras

    layers = keras.layers
    makes = [layers.Input((latent,)), layers.Dense(units, "relu")]
    makes += [layers.BatchNormalization()] if norm else []
    seen = layers.Dense(units, "leaky_relu")
    judges = [layers.Input((64,)), keras.Sequential([seen, layers.Dropout(dropout)]) if dropout else seen]
    judges += [layers.BatchNormalization()] if norm else []
    return {
        "generator": keras.Sequential([*makes, layers.Dense(64, "sigmoid")]),
        "discriminator": keras.Sequential([*judges, layers.Dense(1, "sigmoid")]),
    }


def build_special_gan(synchronized=False, penalty=False, latent=8):
    """The generator synchronises its batch statistics, or the discriminator has a penalty that is a sum."""
    import keras

    class Penalised(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.sum(keras.ops.square(x)))
            return x

    models, layers = build_gan(latent=latent), keras.layers
    makes = [models["generator"], *([layers.BatchNormalization(synchronized=True)] if synchronized else [])]
    judges = [*([Penalised()] if penalty else []), models["discriminator"]]
    return {
        "generator": keras.Sequential([layers.Input((latent,)), *makes]),
        "discriminator": keras.Sequential([layers.Input((64,)), *judges]),
    }


def build_named_gan(form="tuple", n_labels=1):
    """The discriminator's outputs have names, as layers or in a mapping."""
    import keras

    pixels, layers = keras.Input((64,)), keras.layers
    outputs = [layers.Dense(1, name="real")(pixels)]
    outputs += [layers.Dense(10, "softmax", name=name)(pixels) for name in ("digit", "again")[:n_labels]]
    names = ("real", "digit", "again")
    judged = outputs if form == "tuple" else dict(zip(names, outputs, strict=False))
    return build_gan() | {"discriminator": keras.Model(pixels, judged)}


def build_gan_of_two_features(form="dict", latent=8):
    """The generator returns energies and decays, both of shape (4,), by name or in a tuple."""
    import keras

    layers, noise = keras.layers, keras.Input((latent,))
    made = {"energies": layers.Dense(4, name="energies")(noise), "decays": layers.Dense(4, name="decays")(noise)}
    real = [keras.Input((4,)), keras.Input((4,))]
    return {
        "generator": keras.Model(noise, made if form == "dict" else tuple(made.values())),
        "discriminator": keras.Model(real, layers.Dense(1, "sigmoid")(layers.Concatenate()(real))),
    }


def build_conditional_gan(latent=8):
    """Both models get the digit as an input; the discriminator also predicts it."""
    import keras

    layers = keras.layers
    noise, digit, pixels = keras.Input((latent,)), keras.Input((1,), dtype="int64"), keras.Input((64,))
    known = layers.Flatten()(layers.Embedding(10, 4)(digit))
    made = layers.Dense(64, "sigmoid")(layers.Dense(24, "relu")(layers.Concatenate()([noise, known])))
    seen = layers.Dense(24, "relu")(pixels)
    judged = [layers.Dense(1, "sigmoid")(seen), layers.Dense(10, "softmax")(seen)]
    return {"generator": keras.Model([noise, digit], made), "discriminator": keras.Model(pixels, judged)}


def pixel_gap(real, generated):
    """The distance between the mean pixels."""
    import keras

    return keras.ops.mean(keras.ops.abs(keras.ops.mean(real, 0) - keras.ops.mean(generated, 0)))


def build_shower_gan(latent=16):
    """A generator and a discriminator of showers of 24 × 24 × 24 cells."""
    import keras

    layers = keras.layers
    makes = [layers.Input((latent,)), layers.Dense(6**3 * 4, "relu"), layers.Reshape((6, 6, 6, 4))]
    makes += [layers.Conv3DTranspose(4, 4, 4, "same", activation="relu"), layers.Conv3D(1, 1, activation="softplus")]
    judges = [layers.Input((24, 24, 24)), layers.Reshape((24, 24, 24, 1)), layers.Conv3D(4, 4, 4, activation="elu")]
    return {
        "generator": keras.Sequential([*makes, layers.Reshape((24, 24, 24))]),
        "discriminator": keras.Sequential([*judges, layers.Flatten(), layers.Dense(1, "sigmoid")]),
    }


def build_deep(depth=2, units=32, norm=False, dropout=0.0, frozen=False):
    """Dense layers for the 64 pixels of a digit, `depth` of them hidden; with `frozen`, the first is not trained."""
    import keras

    layers = [keras.layers.Input((64,))]
    for _ in range(depth):
        layers.append(keras.layers.Dense(units, "gelu"))
        layers += [keras.layers.BatchNormalization()] if norm else []
        layers += [keras.layers.Dropout(dropout)] if dropout else []
    layers[1].trainable = not frozen
    return keras.Sequential([*layers, keras.layers.Dense(10, "softmax")])


def build_with_keywords():
    """Layers receive tensors by keyword: by name, in a list, and in a mapping."""
    import keras

    layers = keras.layers

    class Joined(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(8)

        def call(self, first, others):
            return self.dense(first + others["pair"][0] * others["pair"][1])

    pixels = layers.Reshape((8, 8))(inputs := keras.Input((64,)))
    query, value, *pair = (layers.Dense(8, "tanh")(pixels) for _ in range(4))
    attended = layers.MultiHeadAttention(2, 8)(query=query, value=value)
    joined = Joined()(attended, others={"pair": pair})
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.Flatten()(joined)))


def build_real_integer_complex():
    """Three outputs; the last two cannot be represented in float32."""
    import keras

    class Others(keras.layers.Layer):
        def call(self, x):
            zero = 0 * x[:, :1]
            return keras.ops.cast(zero, "int64") + 16777217, keras.ops.cast(zero, "complex64") + 2j

    inputs = keras.Input((3,))
    return keras.Model(inputs, [keras.layers.Dense(1)(inputs), *Others()(inputs)])


def build_only_training(reduction="mean"):
    """A model whose loss is defined only in `train_step`."""
    import keras
    import tensorflow as tf

    class OnlyTraining(keras.Model):
        def train_step(self, data):
            with tf.GradientTape() as tape:
                loss = getattr(keras.ops, reduction)(keras.ops.square(self(data[0])))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    inputs = keras.Input((3,))
    return OnlyTraining(inputs, keras.layers.Dense(1)(inputs))


def build_noisy():
    """Adds noise from Keras' global generator of random numbers."""
    import keras

    class Noisy(keras.layers.Layer):
        def call(self, x, training=False):
            return x + keras.random.normal(keras.ops.shape(x)) if training else x

    return keras.Sequential([keras.Input((3,)), Noisy(), keras.layers.Dense(1)])


def squared_error(labels, outputs):
    return (labels - outputs) ** 2


def build_annealed():
    """The loss grows with the steps of the optimizer."""
    import keras

    class Annealed(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            factor = 1.0 + 0.1 * keras.ops.cast(self.optimizer.iterations, "float32")
            return factor * keras.ops.mean(keras.ops.square(keras.ops.reshape(y, (-1, 1)) - y_pred))

    inputs = keras.Input((3,))
    return Annealed(inputs, keras.layers.Dense(1)(inputs))


def build_by_rank(what):
    """Differs between ranks in one respect: `what`. With ``sampling``, it draws in inference too."""
    import keras
    from mpi4py import MPI

    rank, layers = MPI.COMM_WORLD.rank, keras.layers
    rng = np.random.default_rng(rank)
    constant = rng.normal(size=(4, 4)).astype("f4") if what == "constant" else np.eye(4, dtype="f4")

    class Mixing(layers.Layer):
        def call(self, x):
            mixed = x @ constant
            return mixed + keras.random.normal(keras.ops.shape(x)) if what == "sampling" else mixed

    names = ["alpha", "beta"] if what != "order" or rank == 0 else ["beta", "alpha"]
    inputs = keras.Input((4,))
    parts = {name: layers.Dense(4, "tanh", name=name)(Mixing()(inputs)) for name in names}
    model = keras.Model(inputs, layers.Dense(1, kernel_initializer="zeros")(layers.Add()(list(parts.values()))))
    if what == "weights":
        model.layers[-1].set_weights([rng.normal(size=(4, 1)), np.zeros(1)])
    return model
