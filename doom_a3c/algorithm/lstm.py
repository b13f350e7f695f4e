"""An LSTM unrolled over a rollout, with its gradient by hand."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf


@tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
def lstm(
    gates_in: tf.Tensor, resets: tf.Tensor, recurrent_kernel: tf.Tensor, cell: tf.Tensor, hidden: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor | None, ...]]]:
    """Runs an LSTM with forget bias 1 over T steps, statically unrolled: a while-loop is several times slower on a CPU.

    The tape's gradient would multiply matrices for the recurrent kernel at every step and add the products up. This one
    lays all steps side by side: one product, and one operation for what each gate's derivative needs of the way forward.

    Args:
        gates_in: the inputs' part of input gate, candidate, forget gate and output gate, [T, B, 4 S].
        resets: 1 where the state is zeroed before the step, [T, B].
        recurrent_kernel: [S, 4 S]; products with it are computed in its type, everything else in that of the gates.
        cell: the state before the first step, as `hidden` [B, S].

    Returns:
        The hidden states of all steps, [T * B, S], and cell and hidden after the last one.
    """
    length = gates_in.shape[0]
    keeps = tf.unstack(1.0 - resets[..., None], num=length)
    zeros = tf.zeros_like(cell)
    cells_before, hiddens_before, activated, squashed, hiddens = [], [], [], [], []
    for gate_in, keep in zip(tf.unstack(gates_in, num=length), keeps, strict=True):
        cell, hidden = (tf.where(keep > 0, state, zeros) for state in (cell, hidden))  # a product would keep NaN for ever
        cells_before.append(cell)
        hiddens_before.append(hidden)
        raw = tf.split(gate_in + product(hidden, recurrent_kernel), 4, axis=1)
        in_gate, candidate = tf.sigmoid(raw[0]), tf.tanh(raw[1])
        forget_gate, out_gate = tf.sigmoid(raw[2] + 1.0), tf.sigmoid(raw[3])
        cell = cell * forget_gate + in_gate * candidate
        squashed.append(tf.tanh(cell))
        hidden = squashed[-1] * out_gate
        activated.append((in_gate, candidate, forget_gate, out_gate))
        hiddens.append(hidden)

    def gradient(d_hiddens: tf.Tensor, d_cell: tf.Tensor, d_hidden: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        in_gate, candidate, forget_gate, out_gate = (tf.stack(gates) for gates in zip(*activated, strict=True))
        tanh_cell = tf.stack(squashed)
        # What a change of the cell does to each gate before its squashing, and a change of the hidden state to the rest.
        cell_to_gates = tf.unstack(
            tf.concat(
                [
                    candidate * in_gate * (1.0 - in_gate),
                    in_gate * (1.0 - candidate * candidate),
                    tf.stack(cells_before) * forget_gate * (1.0 - forget_gate),
                ],
                axis=2,
            ),
            num=length,
        )
        hidden_to_out = tf.unstack(tanh_cell * out_gate * (1.0 - out_gate), num=length)
        hidden_to_cell = tf.unstack(out_gate * (1.0 - tanh_cell * tanh_cell), num=length)
        d_hiddens = tf.unstack(tf.reshape(d_hiddens, tf.shape(tanh_cell)), num=length)
        d_gates: list[tf.Tensor] = []
        for t in reversed(range(length)):
            d_hidden += d_hiddens[t]
            d_cell += d_hidden * hidden_to_cell[t]
            d_gates.append(tf.concat([tf.tile(d_cell, (1, 3)) * cell_to_gates[t], d_hidden * hidden_to_out[t]], axis=1))
            d_hidden = product(d_gates[-1], recurrent_kernel, transpose_b=True) * keeps[t]
            d_cell *= activated[t][2] * keeps[t]
        d_gates.reverse()
        sides = (tf.cast(tf.concat(steps, axis=0), recurrent_kernel.dtype) for steps in (hiddens_before, d_gates))
        d_kernel = tf.matmul(*sides, transpose_a=True)
        return tf.stack(d_gates), None, d_kernel, d_cell, d_hidden

    return (tf.concat(hiddens, axis=0), cell, hidden), gradient


def product(rows: tf.Tensor, matrix: tf.Tensor, **options: bool) -> tf.Tensor:
    """Returns the matrix product in the matrix's type, as the rows'."""
    return tf.cast(tf.matmul(tf.cast(rows, matrix.dtype), matrix, **options), rows.dtype)
