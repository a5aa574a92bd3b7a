"""The models and the figure of merit of gan.yaml: a generator of handwritten digits and its discriminator."""

import keras
import numpy as np


def build_gan(latent: int = 16, units: int = 64, slope: float = 0.2) -> dict[str, keras.Model]:
    """Two small dense networks for images of 64 pixels in [0, 1].

    Args:
        latent: Number of random numbers per image.
        units: Neurons in the first hidden layer of each; the second of the generator has twice as many.
        slope: Slope of the discriminator's activation below zero.
    """
    layers = keras.layers
    generator = [layers.Input((latent,)), layers.Dense(units, "relu"), layers.Dense(2 * units, "relu")]
    discriminator = [layers.Input((64,))]
    for size in (2 * units, units):
        discriminator += [layers.Dense(size), layers.LeakyReLU(negative_slope=slope), layers.Dropout(0.3)]
    return {
        "generator": keras.Sequential([*generator, layers.Dense(64, "sigmoid")]),
        "discriminator": keras.Sequential([*discriminator, layers.Dense(1, "sigmoid")]),
    }


def frechet_distance(result) -> float:
    """The Fréchet distance between generated images and those of the validation data, each as a Gaussian.

    ``|m₁ − m₂|² + Tr(C₁ + C₂ − 2 (C₁C₂)^½)`` with means and covariances of the 64 pixels (Dowson & Landau 1982).
    """
    real, _ = result.validation
    generator = result.model["generator"]
    noise = np.random.default_rng(0).normal(size=(len(real), generator.input_shape[1])).astype("float32")
    generated = generator.predict(noise, verbose=0)
    c_real, c_generated = np.cov(real.T), np.cov(generated.T)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(c_real @ c_generated).real, 0))
    shift = real.mean(0) - generated.mean(0)
    return float(shift @ shift + np.trace(c_real) + np.trace(c_generated) - 2 * roots.sum())
