"""Runs that begin with what another has learned."""

from __future__ import annotations

from pathlib import Path

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.trust import GameOverride


def transfer(network: ACNetwork, source: Path, builder: Builder, plays: str) -> str:
    """Has a network begin with the weights of a checkpoint; returns what it has taken over, for people.

    The heads, of policy and value, are taken from a model of the same scenario and actions alone: elsewhere actions and
    scores mean something else.

    Args:
        network: of the new run.
        source: the checkpoint.
        builder: of the new run.
        plays: what the user has named that scenario by: the checkpoint's game is not played, whatever it is.

    Raises:
        UserError: if it is no checkpoint, or of another network altogether.
    """
    checkpoint = load(source, GameOverride(plays))
    checkpoint.check_finite(source)
    own, scenario = checkpoint.record.scenario.name, builder.scenario.name
    heads = own == scenario and builder.has_learned(checkpoint.record.learned)
    taken = network.transfer(checkpoint.variables, heads)
    if not taken:
        raise UserError(f"{source} has a network of another kind: none of its weights fit those of {scenario}")
    parts = "all" if len(taken) == len(network.parameters) else f"{len(taken)} of {len(network.parameters)}"
    without = "" if heads else "; the heads, of policy and value, begin anew, as actions or scores are others"
    return f"begins with {parts} of the weights of {source.stem}, trained on {own}{without}"
