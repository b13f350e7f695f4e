"""Compiled functions with little overhead per call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf


class Graph:
    """A function of tensors, compiled for each new set of shapes and run as one operation in the calling thread.

    Calling a `tf.function` runs the same kernels, but costs half a millisecond of Python, and passes operations between
    threads: a step of 16 games took 1.8 ms of CPU that way and takes 1.0 ms this way; a gradient took 26 ms and takes 15.
    Calls from several threads use several cores.

    Arrays are not copied: an output must not be an input or a reshaped input. Inputs must keep the types and nesting of
    the first call with the same shapes. Keeps a reference to `function`, and so to its object.
    """

    def __init__(self, function: Callable[..., Any], variables: Sequence[tf.Variable]) -> None:
        """`function` takes and returns nested tensors, and may read and assign `variables` but no other tensors."""

        def plain(*inputs: Any) -> Any:  # tf.function turns the bound arguments of a partial into inputs
            return function(*inputs)

        self._function = tf.function(plain, autograph=False, reduce_retracing=True)
        self._places = {id(variable.handle): place for place, variable in enumerate(variables)}
        self._variables = list(variables)
        self._compiled: dict[tuple[Any, ...], Any] = {}  # by shapes; shared by the graphs that `bind` returns

    def bind(self, variables: Sequence[tf.Variable]) -> Graph:
        """Returns the same function on other variables, in the order of its own; the two share compiled code.

        Raises:
            ValueError: if a shape or a type differs from the function's own variables.
        """
        kinds = [[(variable.shape, variable.dtype) for variable in some] for some in (variables, self._variables)]
        if kinds[0] != kinds[1]:
            raise ValueError("these variables differ in shape or type from those of the function")
        twin = copy.copy(self)
        twin._variables = list(variables)
        return twin

    def __call__(self, *inputs: Any) -> Any:
        values = tf.nest.flatten(inputs)
        key = tuple(value.shape for value in values)
        if key not in self._compiled:  # TensorFlow makes concurrent threads compile once
            self._compiled[key] = self._compile(inputs)
        concrete, places, dtypes = self._compiled[key]
        handles = [self._variables[place].handle for place in places]
        # A single operation runs in the caller's thread, kernel by kernel.
        outputs = tf.raw_ops.StatefulPartitionedCall(args=values + handles, Tout=dtypes, f=concrete)
        return tf.nest.pack_sequence_as(concrete.structured_outputs, outputs) if dtypes else None

    def _compile(self, inputs: Any) -> tuple[Any, list[int], list[tf.DType]]:
        concrete = self.get_concrete(*inputs)
        places = [self._places.get(id(handle), -1) for handle in concrete.captured_inputs]
        if -1 in places:
            raise ValueError(f"{concrete.name} uses a tensor that is neither an input nor one of its variables")
        return concrete, places, [output.dtype for output in concrete.outputs]

    def get_concrete(self, *inputs: Any) -> Any:
        """Returns TensorFlow's concrete function for inputs of these shapes; compiles it if necessary."""
        return self._function.get_concrete_function(*tf.nest.map_structure(tf.convert_to_tensor, inputs))


class Graphs:
    """Compiled functions of networks, by key. Owns them; the first network to ask for a key provides its function."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, Graph] = {}

    def get(self, key: Hashable, function: Callable[..., Any], variables: Sequence[tf.Variable]) -> Graph:
        """Returns the graph for `key`, made of `function` if there is none yet, bound to `variables`."""
        if key not in self._graphs:
            self._graphs.setdefault(key, Graph(function, variables))
        return self._graphs[key].bind(variables)
