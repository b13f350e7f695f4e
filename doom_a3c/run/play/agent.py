"""A trained agent, loaded from a checkpoint."""

from __future__ import annotations

import dataclasses
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Policy
from doom_a3c.record.metrics.progress import EvaluationPoint, Point
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.run_record import PolicyName, RunRecord
from doom_a3c.settings.catalog import find, find_users_file
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.tree import map_nested
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has its own


class TrainedAgent:
    """A network with trained weights, and the games that it plays. Owns the network, no game."""

    def __init__(self, builder: Builder, network: ACNetwork, record: RunRecord, source: str) -> None:
        """`source` is the path of its checkpoint. Use `load` to make agents."""
        self.plays = record.config.scenario  # as `--scenario` takes it
        self.builder, self.network, self.record, self.source = builder, network, record, source
        self._policy, self._random = Policy(network), np.random.default_rng()

    @classmethod
    def load(cls, path: str | PathLike[str], override: GameOverride = NO_OVERRIDE) -> Self:
        """Returns the agent of a checkpoint; `override` overrides the game that it plays.

        Raises:
            UserError: if it is no checkpoint, or its scenario's files are not here.
        """
        checkpoint = load(Path(path), override)
        record = checkpoint.record
        checkpoint.check_finite(Path(path))
        if override.scenario:
            record = record._replace(scenario=dataclasses.replace(record.scenario, name=find(override.scenario).name))
        builder = Builder(record.scenario, record.config)
        if not builder.has_learned(record.learned):
            raise UserError(f"{path} has learned other actions than those of {override.scenario}, or in another order")
        network = builder.network("player", record.config.seed)
        try:
            network.load(checkpoint.variables)
        except (KeyError, ValueError) as error:
            raise UserError(f"{path} does not fit scenario {record.scenario.name}: {error}") from None
        agent = cls(builder, network, record, str(path))
        if name := override.wad or override.scenario:
            file = find_users_file(name)
            agent.plays = str(file.absolute()) if file else name  # it is found from any folder
        return agent

    @property
    def curve(self) -> list[Point]:
        """The scores of its training episodes, or of every n-th, with their running mean."""
        return list(self.record.counters.curve)

    @property
    def evaluations(self) -> list[EvaluationPoint]:
        """Its evaluations on the way."""
        return list(self.record.best.evaluations)

    @property
    def actions(self) -> list[str]:
        """The names of the actions that it takes."""
        return list(self.builder.actions)

    @property
    def better_policy(self) -> PolicyName:
        """Whether the likeliest action or a draw scored better when it was evaluated."""
        return self.record.best.policy

    def act(
        self, observation: Any, state: CoreState | None = None, policy: PolicyName | None = None
    ) -> tuple[int, CoreState]:
        """Returns the action's index, and the recurrent state for the next call.

        Args:
            observation: of one game, as from `doom_a3c.envs`: uint8 [H, W, C], numbers [V], or a dict of the two.
            state: the one that the previous call returned; None at the start of an episode.
            policy: 'greedy' for the likeliest action, 'sample' for a draw; None is the better one.

        Raises:
            ValueError: if the observation is of another shape or type, or the state is none of this network's.
        """
        inputs = self.network.inputs
        wanted = inputs.joined(inputs.pixels, (inputs.variables,))
        seen = {name: np.shape(part) for name, part in observation.items()} if isinstance(observation, dict) else None
        if (np.shape(observation) if seen is None else seen) != wanted:
            raise ValueError(f"the observation has {seen or np.shape(observation)}, where the network sees {wanted}")
        batch = map_nested(lambda array: np.asarray(array)[None], observation)
        pixels, _ = inputs.split(batch)
        if inputs.pixels and pixels.dtype != np.uint8:
            raise ValueError(f"the observation's pixels are {pixels.dtype}, where the network sees uint8")
        initial = self._policy.initial_state(1)
        if state is not None and not _has_same_shapes(state, initial):
            raise ValueError("the state is none that `act` has returned: it takes that of the step before, or None")
        resets = np.full(1, state is None, np.float32)
        decision = self._policy(batch, resets, initial if state is None else state)
        distribution = self._policy.distribution
        greedy = (policy or self.better_policy) == "greedy"
        chosen = distribution.mode(decision.logits) if greedy else distribution.sample(decision.logits, self._random)
        return int(chosen[0]), decision.core_state


def _has_same_shapes(state: Any, initial: CoreState) -> bool:
    """Tells whether a recurrent state has the parts that this network's has."""
    parts = isinstance(state, tuple) and len(state) == len(initial)
    return parts and all(np.shape(part) == np.shape(its) for part, its in zip(state, initial, strict=True))
