"""Compiled functions, called the short way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf


class Graph:
    """A function of tensors, compiled for the shapes it meets and run as one operation in the calling thread.

    Calling a `tf.function` runs the same kernels, but takes half a millisecond more of Python, and hands operations from
    thread to thread: a step of 16 games took 1.8 ms of CPU that way and takes 1.0 ms this way, a gradient 26 and 15.
    Whoever calls from several threads at once keeps several cores busy.

    Arrays are not copied: no output may be an input, or a reshaped one. Types and nesting of the inputs are those of the
    first call for the same shapes. Keeps `function`, and what that belongs to, alive.
    """

    def __init__(self, function: Callable[..., Any], variables: Sequence[tf.Variable]) -> None:
        """`function` takes and returns nested tensors; of what it does not compute it uses these variables alone."""

        def plain(*inputs: Any) -> Any:  # of a partial function tf.function would make the bound arguments inputs, too
            return function(*inputs)

        self._function = tf.function(plain, autograph=False, reduce_retracing=True)
        self._places = {id(variable.handle): place for place, variable in enumerate(variables)}
        self._variables = list(variables)
        self._compiled: dict[tuple[Any, ...], Any] = {}  # by shapes; shared by all that `on` returns

    def on(self, variables: Sequence[tf.Variable]) -> Graph:
        """Returns the function on other variables, which stand for its own in their order; both compile for each other.

        Raises:
            ValueError: if their shapes or types are not those of the function's own.
        """
        kinds = [[(variable.shape, variable.dtype) for variable in some] for some in (variables, self._variables)]
        if kinds[0] != kinds[1]:
            raise ValueError("these variables are not of the shapes and types that the function was made for")
        twin = copy.copy(self)
        twin._variables = list(variables)
        return twin

    def __call__(self, *inputs: Any) -> Any:
        """Returns what the function returns for nested arrays or tensors."""
        values = tf.nest.flatten(inputs)
        key = tuple(value.shape for value in values)
        if key not in self._compiled:  # TensorFlow sees to it that threads that come at the same time compile once
            self._compiled[key] = self._compile(inputs)
        concrete, places, dtypes = self._compiled[key]
        handles = [self._variables[place].handle for place in places]
        # As an operation of its own, not as a function, it is run by whoever calls it, kernel after kernel.
        outputs = tf.raw_ops.StatefulPartitionedCall(args=values + handles, Tout=dtypes, f=concrete)
        return tf.nest.pack_sequence_as(concrete.structured_outputs, outputs) if dtypes else None

    def _compile(self, inputs: Any) -> tuple[Any, list[int], list[tf.DType]]:
        concrete = self.concrete(*inputs)
        places = [self._places.get(id(handle), -1) for handle in concrete.captured_inputs]
        if -1 in places:
            raise ValueError(f"{concrete.name} uses a tensor that is neither an input nor a variable of it")
        return concrete, places, [output.dtype for output in concrete.outputs]

    def concrete(self, *inputs: Any) -> Any:
        """Returns TensorFlow's own form of the function for inputs of these shapes, compiling it if need be."""
        return self._function.get_concrete_function(*tf.nest.map_structure(tf.convert_to_tensor, inputs))


class Graphs:
    """Compiled functions of networks, by key. Owns them; each is that of the first network that asked for it."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, Graph] = {}

    def get(self, key: Hashable, function: Callable[..., Any], variables: Sequence[tf.Variable]) -> Graph:
        """Returns what has been compiled for `key`, `function` if nothing has, on the caller's variables."""
        if key not in self._graphs:
            self._graphs.setdefault(key, Graph(function, variables))
        return self._graphs[key].on(variables)
