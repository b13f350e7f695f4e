"""Saliency maps: how much policy and value change when a spot of the picture is blurred.

Perturbation saliency (Greydanus et al. 2018, "Visualizing and Understanding Atari Agents", equations 1 to 3).
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.networks import ACNetwork

SPOT, BLUR = 5.0, 3.0  # standard deviations in pixels: of a spot, and of the blur inside it
SPACING = 5  # pixels between two spots; larger if one of the limits below would be exceeded
MAX_SPOTS = 800
MAX_NUMBERS = 50_000_000  # floats in all blurred pictures


class Saliency:
    """Computes saliency maps. Owns the spots; all spots of a picture form one batch."""

    def __init__(self, network: ACNetwork) -> None:
        """The network must see pixels."""
        assert network.inputs.pixels is not None
        height, width, channels = network.inputs.pixels
        most = max(1, min(MAX_SPOTS, MAX_NUMBERS // (height * width * channels)))
        spacing = max(SPACING, math.ceil(math.sqrt(height * width / most)))
        rows, columns = _make_bumps(height, spacing), _make_bumps(width, spacing)
        self._network, self._shape = network, (len(rows), len(columns))
        spots = rows[:, None, :, None] * columns[None, :, None, :]
        self._spots = tf.constant(spots.reshape(-1, height, width, 1), tf.float32)
        self._maps = network.compile("saliency", self._compute_maps)

    def _compute_maps(
        self, observations: Observations, blurred: tf.Tensor, spots: tf.Tensor, resets: tf.Tensor, core_state: CoreState
    ) -> tf.Tensor:
        """Returns the change of logits and value by the blur of each spot, as maps [2, H, W]."""
        count = spots.shape[0] + 1
        parts = self._network.inputs.split(observations)
        pixels = tf.cast(parts["pixels"], tf.float32)

        def repeat(tensor: tf.Tensor) -> tf.Tensor:
            return tf.repeat(tensor, count, axis=0)

        varied = tf.concat([pixels, pixels * (1.0 - spots) + blurred * spots], axis=0)  # the first one is unchanged
        seen = self._network.inputs.join({name: repeat(part) for name, part in parts.items()} | {"pixels": varied})
        output, _ = self._network.step(seen, repeat(resets), tf.nest.map_structure(repeat, core_state))
        policy = tf.reduce_sum((output.logits[1:] - output.logits[:1]) ** 2, axis=1) / 2.0
        changes = tf.stack([policy, (output.values[1:] - output.values[:1]) ** 2 / 2.0])
        return tf.image.resize(tf.reshape(changes, (2, *self._shape, 1)), pixels.shape[1:3])[..., 0]

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> tuple[Array, Array]:
        """Returns how much the policy and the value depend on each pixel of one observation, [H, W] each.

        Args:
            observations: of one game, [1, ...].
            resets: 1 if the observation is the first of an episode, [1].
            core_state: the core state before the decision, arrays [1, size].
        """
        pixels = self._network.inputs.split(observations)["pixels"]
        blurred = gaussian_filter(pixels.astype(np.float32), (0, BLUR, BLUR, 0))
        policy, value = self._maps(observations, blurred, self._spots, resets, core_state).numpy()
        return policy, value


def _make_bumps(length: int, spacing: int) -> NDArray[np.float64]:
    """Returns Gaussian bumps along a side of the picture, `spacing` apart, [bumps, length]."""
    centres = np.arange(spacing // 2, length, spacing)
    return np.exp(-((np.arange(length) - centres[:, None]) ** 2) / (2 * SPOT**2))
