"""Networks run over random observations."""

import numpy as np
import tensorflow as tf

T, B = 5, 3
ACTIVATIONS = {
    "elu": lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "tanh": np.tanh,
}


def observe(seed=0, variables=0, length=T, batch=B):
    random = np.random.default_rng(seed)
    pixels = random.integers(256, size=(length, batch, 8, 8, 1), dtype=np.uint8)
    if not variables:
        return pixels
    return {"pixels": pixels, "variables": random.normal(size=(length, batch, variables)).astype(np.float32)}


def state(network, seed=0, batch=B):
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=part.shape).astype(np.float32) for part in network.initial_state(batch))


def unroll(network, observations, resets=None, core_state=None):
    """Returns logits [T, B, A], values [T, B] and the core state, starting from an episode's first observation."""
    length, batch = tf.nest.flatten(observations)[0].shape[:2]
    resets = np.zeros((length, batch), np.float32) if resets is None else resets
    core_state = network.initial_state(batch) if core_state is None else core_state
    output, core_state = network.unroll(observations, tf.constant(resets), core_state)
    logits, values = (array.numpy() for array in output)
    return logits.reshape(length, batch, -1), values.reshape(length, batch), core_state
