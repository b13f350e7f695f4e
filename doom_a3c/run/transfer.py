"""Transfer: starts a run with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.run_record import ActionSizes, RunRecord
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.network import Network
from doom_a3c.settings.trust import GameOverride


def transfer(network: ACNetwork, source: Path, builder: Builder, plays: str) -> str:
    """Loads the weights of a checkpoint into a network; returns a message that says which.

    The heads, and the weights on the previous action and reward, are loaded only from a model of the same scenario and
    actions: elsewhere, actions and scores mean something else.

    Args:
        network: of the new run.
        source: the checkpoint.
        builder: of the new run.
        plays: the user's name of the new run's scenario; the checkpoint's own game is never played.

    Raises:
        UserError: if it is not a checkpoint, or no weight fits.
    """
    checkpoint = load(source, GameOverride(plays))
    checkpoint.check_finite(source)
    own, scenario = checkpoint.record.scenario.name, builder.scenario.name
    heads = own == scenario and builder.has_learned(checkpoint.record.learned, checkpoint.record.actions)
    variables = dict(checkpoint.variables)
    fresh = [] if heads else ["the policy and value heads"]
    if not heads or not _see_same_previous(network.spec, checkpoint.record.scenario.network):
        replaced = _replace_previous(network, variables, _count_previous(checkpoint.record))
        fresh += ["the weights on the previous step"] * replaced
    loaded = _load_fitting(network.parameters if heads else network.parameters[len(network.heads) :], variables)
    network.refresh()
    if not loaded:
        raise UserError(f"{source} has another kind of network: none of its weights fit {scenario}")
    parts = "all" if len(loaded) == len(network.parameters) else f"{len(loaded)} of {len(network.parameters)}"
    without = f"; {' and '.join(fresh)} start at random" if fresh else ""
    without += "" if heads else ", since actions or scores differ"
    return f"starts with {parts} of the weights of {source.stem}, trained on {own}{without}"


def _see_same_previous(one: Network, other: Network) -> bool:
    return (one.previous_action, one.previous_reward) == (other.previous_action, other.previous_reward)


def _count_previous(record: RunRecord) -> int:
    """Returns how many numbers about the previous step a run's network sees."""
    spec, sizes = record.scenario.network, record.actions or ActionSizes((), 0)
    return spec.previous_action * (sum(sizes.choices) + sizes.numbers) + spec.previous_reward


def _replace_previous(network: ACNetwork, variables: dict[str, NDArray[Any]], seen: int) -> bool:
    """Replaces the last `seen` rows of the weights on core inputs by the network's own; returns whether there are any."""
    own = network.inputs.previous
    for parameter in network.input_kernels:
        name, weights = variable_name(parameter), parameter.numpy()
        if (value := variables.get(name)) is not None and value.shape[1:] == weights.shape[1:]:
            variables[name] = np.concatenate([value[: len(value) - seen], weights[len(weights) - own :]])
    return bool(own and network.input_kernels)


def _load_fitting(parameters: Sequence[tf.Variable], variables: Mapping[str, NDArray[Any]]) -> list[str]:
    """Loads the `variables` whose name and shape match a parameter; returns their names."""
    loaded = []
    for parameter in parameters:
        name = variable_name(parameter)
        if (value := variables.get(name)) is not None and value.shape == parameter.shape:
            parameter.assign(value)
            loaded.append(name)
    return loaded
