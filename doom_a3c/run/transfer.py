"""Transfer: starts a run with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.trust import GameOverride


def transfer(network: ACNetwork, source: Path, builder: Builder, plays: str) -> str:
    """Loads the weights of a checkpoint into a network; returns a message that says which.

    The policy and value heads are loaded only from a model of the same scenario and actions: elsewhere actions and scores
    have another meaning.

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
    loaded = _load_fitting(network.parameters if heads else network.parameters[len(network.heads) :], checkpoint.variables)
    network.refresh()
    if not loaded:
        raise UserError(f"{source} has another kind of network: none of its weights fit {scenario}")
    parts = "all" if len(loaded) == len(network.parameters) else f"{len(loaded)} of {len(network.parameters)}"
    without = "" if heads else "; the policy and value heads start from random weights, since actions or scores differ"
    return f"starts with {parts} of the weights of {source.stem}, trained on {own}{without}"


def _load_fitting(parameters: Sequence[tf.Variable], variables: Mapping[str, NDArray[Any]]) -> list[str]:
    """Loads the `variables` whose name and shape match a parameter; returns their names."""
    loaded = []
    for parameter in parameters:
        name = variable_name(parameter)
        if (value := variables.get(name)) is not None and value.shape == parameter.shape:
            parameter.assign(value)
            loaded.append(name)
    return loaded
