"""A generator and a discriminator of calorimeter showers with three-dimensional convolutions, conditioned on energy.

The layout follows 3DGAN (Carminati et al., J. Phys. Conf. Ser. 1085 (2018) 032016): the generator takes noise and the
energy of the particle, and the discriminator says whether a shower is real and estimates its energy. It also sees the
profiles along the three axes. Showers are images of 25 × 25 × 25 voxels; a voxel holds √(energy / GeV), see
`figures_of_merit.roots`. Filters of even width reduce checkerboard patterns: with strides of 2 they treat all voxels
alike.
"""

import keras
from keras import layers, ops

SIDE = 25
ENERGY_GEV = 50.0
"""A typical energy: the networks see energies in units of it."""

SMALL = keras.initializers.Constant(-3.0)
"""Makes the initial energy of all voxels small."""


def build_gan(
    latent: int = 16, filters: int = 4, dense: int = 32, dropout: float = 0.2, slope: float = 0.2
) -> dict[str, keras.Model]:
    """The two models.

    Args:
        latent: The dimension of the noise.
        filters: Channels of the discriminator's first convolution; the others, and those of the generator, have more.
        dense: Neurons of the discriminator's last hidden layer.
        dropout: The fraction of the discriminator's features that are left out in training.
        slope: The slope of the activations below zero.
    """
    return {
        "generator": _generator(latent, filters, slope),
        "discriminator": _discriminator(filters, dense, dropout, slope),
    }


def _generator(latent: int, filters: int, slope: float) -> keras.Model:
    """From noise and energy (n, 1) in GeV to showers.

    Convolutions make what differs from shower to shower; a dense layer adds a mean image that depends on the energy.
    """
    noise, energy = keras.Input((latent,), name="noise"), keras.Input((1,), name="energy")
    scale = energy / ENERGY_GEV
    log_scale = ops.log(scale)
    x = layers.Concatenate()([noise, log_scale])
    x = layers.LeakyReLU(negative_slope=slope)(layers.Dense(5**3 * 4 * filters)(x))
    x = layers.Reshape((5, 5, 5, 4 * filters))(x)
    x = layers.LeakyReLU(negative_slope=slope)(upsample(x, 2 * filters))  # 12 voxels a side
    x = layers.LeakyReLU(negative_slope=slope)(layers.Conv3D(2 * filters, 3, padding="same")(x))
    x = layers.LeakyReLU(negative_slope=slope)(upsample(x, filters // 2))  # 26 voxels
    x = layers.Conv3D(1, 2)(x)  # 25 voxels
    mean = layers.Reshape((SIDE, SIDE, SIDE, 1))(layers.Dense(SIDE**3, bias_initializer=SMALL)(log_scale))
    roots = layers.Activation("softplus")(x + mean) * ops.reshape(ops.sqrt(scale), (-1, 1, 1, 1, 1))
    return keras.Model([noise, energy], roots)


def _discriminator(filters: int, dense: int, dropout: float, slope: float) -> keras.Model:
    """From showers to the probability that they are real, and to the energy in GeV."""
    showers = x = keras.Input((SIDE, SIDE, SIDE, 1), name="shower")
    for channels in (filters, 2 * filters, 4 * filters):  # 25 → 13 → 7 → 4 voxels
        x = layers.Dropout(dropout)(layers.LeakyReLU(negative_slope=slope)(downsample(x, channels)))
    energies = ops.square(showers)
    profiles = [ops.sum(energies, axes) / ENERGY_GEV for axes in ((2, 3, 4), (1, 3, 4), (1, 2, 4))]
    x = layers.Concatenate()([layers.Flatten()(x), *(ops.sqrt(one + 1e-6) for one in profiles)])
    x = layers.LeakyReLU(negative_slope=slope)(layers.Dense(dense)(x))
    is_real = layers.Dense(1, activation="sigmoid", name="is_real")(x)
    energy = layers.Dense(1, activation="softplus", name="in_units")(x) * ENERGY_GEV
    return keras.Model(showers, [is_real, energy])


def downsample(x: keras.KerasTensor, channels: int) -> keras.KerasTensor:
    """A convolution of width 4 with strides of 2 and padding "same": n voxels a side, n odd, become (n + 1) / 2.

    Each block of 2 × 2 × 2 voxels becomes one voxel with eight times as many channels. A convolution of width 2 without
    strides then has the same weights in another order. On the CPU of these results, TensorFlow takes far less time for
    its gradients than for those of a three-dimensional convolution with strides.
    """
    x = layers.ZeroPadding3D(((1, 0),) * 3)(x)
    n_blocks, n_channels = x.shape[1] // 2, x.shape[-1]
    x = ops.reshape(x, (-1, n_blocks, 2, n_blocks, 2, n_blocks, 2, n_channels))
    x = ops.reshape(ops.transpose(x, (0, 1, 3, 5, 2, 4, 6, 7)), (-1, *[n_blocks] * 3, 8 * n_channels))
    return layers.Conv3D(channels, 2, padding="same")(x)


def upsample(x: keras.KerasTensor, channels: int) -> keras.KerasTensor:
    """A transposed convolution of width 4 with strides of 2: n voxels a side become 2 n + 2. See `downsample`."""
    x = layers.Conv3D(8 * channels, 2)(layers.ZeroPadding3D(1)(x))
    n_blocks = x.shape[1]
    x = ops.reshape(x, (-1, *[n_blocks] * 3, 2, 2, 2, channels))
    return ops.reshape(ops.transpose(x, (0, 1, 4, 2, 5, 3, 6, 7)), (-1, *[2 * n_blocks] * 3, channels))
