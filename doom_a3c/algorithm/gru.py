"""A GRU unrolled over a rollout, with a hand-written gradient."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from doom_a3c.algorithm.lstm import multiply


@tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
def gru(
    gates_in: tf.Tensor, resets: tf.Tensor, recurrent_kernel: tf.Tensor, hidden: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor | None, ...]]]:
    """Runs a GRU over T steps (Cho et al. 2014, arXiv:1406.1078v1).

    As in cuDNN and Keras, the reset gate applies after the product with the recurrent kernel: one product a step. The loop
    is unrolled and the gradient stacks all steps, for the reasons that `lstm` gives.

    Args:
        gates_in: the inputs' share of update gate, reset gate and candidate, [T, B, 3 S].
        resets: 1 where the state is zeroed before the step, [T, B].
        recurrent_kernel: [S, 3 S]; products with it are computed in its type, everything else in the type of the gates.
        hidden: the hidden state before the first step, [B, S].

    Returns:
        The hidden states of all steps, [T * B, S], and the one after the last step, [B, S].
    """
    length = gates_in.shape[0]
    keeps = tf.unstack(1.0 - resets[..., None], num=length)
    zeros = tf.zeros_like(hidden)
    hiddens_before, activated, hiddens = [], [], []
    for gate_in, keep in zip(tf.unstack(gates_in, num=length), keeps, strict=True):
        hidden = tf.where(keep > 0, hidden, zeros)  # a product would keep NaN
        hiddens_before.append(hidden)
        update_in, reset_in, candidate_in = tf.split(gate_in, 3, axis=1)
        raw = tf.split(multiply(hidden, recurrent_kernel), 3, axis=1)
        update_gate, reset_gate = tf.sigmoid(update_in + raw[0]), tf.sigmoid(reset_in + raw[1])
        candidate = tf.tanh(candidate_in + reset_gate * raw[2])
        hidden = candidate + update_gate * (hidden - candidate)
        activated.append((update_gate, reset_gate, candidate, raw[2]))
        hiddens.append(hidden)

    def gradient(d_hiddens: tf.Tensor, d_hidden: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        update_gate, reset_gate, candidate, recalled = (tf.stack(parts) for parts in zip(*activated, strict=True))
        # The local derivatives of the hidden state, computed for all T steps at once.
        by_update = (tf.stack(hiddens_before) - candidate) * update_gate * (1.0 - update_gate)
        by_candidate = (1.0 - update_gate) * (1.0 - candidate * candidate)
        by_reset = by_candidate * recalled * reset_gate * (1.0 - reset_gate)
        by_recalled = tf.unstack(tf.concat([by_update, by_reset, by_candidate * reset_gate], axis=2), num=length)
        d_hiddens = tf.unstack(tf.reshape(d_hiddens, (length, -1, zeros.shape[1])), num=length)
        d_recalled: list[tf.Tensor] = []
        d_totals: list[tf.Tensor] = []
        for t in reversed(range(length)):
            d_hidden += d_hiddens[t]
            d_totals.append(d_hidden)
            d_recalled.append(tf.tile(d_hidden, (1, 3)) * by_recalled[t])
            d_hidden = d_hidden * activated[t][0] + multiply(d_recalled[-1], recurrent_kernel, transpose_b=True)
            d_hidden *= keeps[t]
        d_totals.reverse()
        d_recalled.reverse()
        d_gates = tf.tile(tf.stack(d_totals), (1, 1, 3)) * tf.concat([by_update, by_reset, by_candidate], axis=2)
        sides = (tf.cast(tf.concat(steps, axis=0), recurrent_kernel.dtype) for steps in (hiddens_before, d_recalled))
        return d_gates, None, tf.matmul(*sides, transpose_a=True), d_hidden

    return (tf.concat(hiddens, axis=0), hidden), gradient
