"""An LSTM unrolled over a rollout, with a hand-written gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf


@tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
def lstm(
    gates_in: tf.Tensor, resets: tf.Tensor, recurrent_kernel: tf.Tensor, cell: tf.Tensor, hidden: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor | None, ...]]]:
    """Runs an LSTM over T steps (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000), with forget bias 1.

    The loop is unrolled statically: a while-loop is several times slower on a CPU. The tape's own gradient would multiply
    matrices for the recurrent kernel at every step and add up the products. The gradient here stacks all steps: one matrix
    product for the kernel, and one operation for each gate's local derivatives.

    Args:
        gates_in: the inputs' share of input gate, candidate, forget gate and output gate, [T, B, 4 S].
        resets: 1 where the state is zeroed before the step, [T, B].
        recurrent_kernel: [S, 4 S]; products with it are computed in its type, everything else in the type of the gates.
        cell: the cell state before the first step, [B, S].
        hidden: the hidden state before the first step, [B, S].

    Returns:
        The hidden states of all steps, [T * B, S], and the cell and hidden states after the last step, [B, S] each.
    """
    length = gates_in.shape[0]
    keeps = tf.unstack(1.0 - resets[..., None], num=length)
    zeros = tf.zeros_like(cell)
    cells_before, hiddens_before, activated, squashed, hiddens = [], [], [], [], []
    for gate_in, keep in zip(tf.unstack(gates_in, num=length), keeps, strict=True):
        cell, hidden = (tf.where(keep > 0, state, zeros) for state in (cell, hidden))  # a product would keep NaN
        cells_before.append(cell)
        hiddens_before.append(hidden)
        raw = tf.split(gate_in + multiply(hidden, recurrent_kernel), 4, axis=1)
        in_gate, candidate = tf.sigmoid(raw[0]), tf.tanh(raw[1])
        forget_gate, out_gate = tf.sigmoid(raw[2] + 1.0), tf.sigmoid(raw[3])
        cell = cell * forget_gate + in_gate * candidate
        squashed.append(tf.tanh(cell))
        hidden = squashed[-1] * out_gate
        activated.append((in_gate, candidate, forget_gate, out_gate))
        hiddens.append(hidden)

    def gradient(d_hiddens: tf.Tensor, d_cell: tf.Tensor, d_hidden: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        cell_to_gates, hidden_to_out, hidden_to_cell = _differentiate_gates(activated, cells_before, squashed)
        d_hiddens = tf.unstack(tf.reshape(d_hiddens, (length, -1, cell.shape[1])), num=length)
        d_gates: list[tf.Tensor] = []
        for t in reversed(range(length)):
            d_hidden += d_hiddens[t]
            d_cell += d_hidden * hidden_to_cell[t]
            d_gates.append(tf.concat([tf.tile(d_cell, (1, 3)) * cell_to_gates[t], d_hidden * hidden_to_out[t]], axis=1))
            d_hidden = multiply(d_gates[-1], recurrent_kernel, transpose_b=True) * keeps[t]
            d_cell *= activated[t][2] * keeps[t]
        d_gates.reverse()
        sides = (tf.cast(tf.concat(steps, axis=0), recurrent_kernel.dtype) for steps in (hiddens_before, d_gates))
        d_kernel = tf.matmul(*sides, transpose_a=True)
        return tf.stack(d_gates), None, d_kernel, d_cell, d_hidden

    return (tf.concat(hiddens, axis=0), cell, hidden), gradient


def _differentiate_gates(
    activated: Sequence[tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]],
    cells_before: Sequence[tf.Tensor],
    squashed: Sequence[tf.Tensor],
) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
    """Returns the local derivatives of each step, computed for all T steps at once.

    Args:
        activated: input gate, candidate, forget gate and output gate of each step, [B, S] each.
        cells_before: the cell states before each step, [B, S].
        squashed: tanh of the cell states after each step, [B, S].

    Returns:
        For each step, the derivatives of the cell with respect to the first three gates before activation, [B, 3 S], and
        of the hidden state with respect to the output gate before activation and to the cell, [B, S] each.
    """
    in_gate, candidate, forget_gate, out_gate = (tf.stack(gates) for gates in zip(*activated, strict=True))
    tanh_cell, length = tf.stack(squashed), len(activated)
    cell_by_gates = tf.concat(
        [
            candidate * in_gate * (1.0 - in_gate),
            in_gate * (1.0 - candidate * candidate),
            tf.stack(cells_before) * forget_gate * (1.0 - forget_gate),
        ],
        axis=2,
    )
    hidden_by_out = tanh_cell * out_gate * (1.0 - out_gate)
    hidden_by_cell = out_gate * (1.0 - tanh_cell * tanh_cell)
    by_gates, by_out, by_cell = (tf.unstack(part, num=length) for part in (cell_by_gates, hidden_by_out, hidden_by_cell))
    return by_gates, by_out, by_cell


def multiply(rows: tf.Tensor, matrix: tf.Tensor, **options: bool) -> tf.Tensor:
    """Multiplies in the type of `matrix`, and returns the product in the type of `rows`."""
    return tf.cast(tf.matmul(tf.cast(rows, matrix.dtype), matrix, **options), rows.dtype)
