"""A trained agent, loaded from a checkpoint."""

from __future__ import annotations

import dataclasses
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.policy import Policy
from doom_a3c.envs.games import make_game_factory
from doom_a3c.record.metrics.counters import EvaluationPoint, Point
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.run_record import PolicyName, RunRecord
from doom_a3c.settings.catalog import find, find_users_file
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.interface import Observation
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
        builder.get_reward_sums = lambda: record.counters.reward_sums

    @classmethod
    def load(cls, path: str | PathLike[str], override: GameOverride = NO_OVERRIDE) -> Self:
        """Loads the agent of a checkpoint; `override` replaces the game that it plays.

        Raises:
            UserError: if it is not a checkpoint, or a file of its scenario is missing.
        """
        checkpoint = load(Path(path), override)
        record = checkpoint.record
        checkpoint.check_finite(Path(path))
        if override.scenario:
            record = record._replace(scenario=dataclasses.replace(record.scenario, name=find(override.scenario).name))
        scenario, processes = record.scenario, record.config.game_processes
        games = make_game_factory(scenario.game, scenario.observation, processes, override.env)
        builder = Builder(scenario, record.config, games)
        if not builder.has_learned(record.learned, record.actions):
            played = override.scenario or record.scenario.name
            raise UserError(f"{path} was trained on other actions than {played} has, or in another order")
        network = builder.make_network("player", record.config.seed)
        try:
            network.load(checkpoint.variables)
        except KeyError as error:
            why = f"it has no {error.args[0]}, so it was trained with another core or other layers"
            raise UserError(f"{path} does not fit scenario {record.scenario.name}: {why}") from None
        except ValueError as error:
            raise UserError(f"{path} does not fit scenario {record.scenario.name}: {error}") from None
        agent = cls(builder, network, record, str(path))
        name = override.wad or override.scenario or agent.plays
        file = find_users_file(name)
        agent.plays = str(file.absolute()) if file else name  # absolute: valid from any folder
        return agent

    @property
    def curve(self) -> list[Point]:
        """The scores of its training episodes, or of every n-th, with their running mean."""
        return list(self.record.counters.curve)

    @property
    def evaluations(self) -> list[EvaluationPoint]:
        """Its evaluations during training."""
        return list(self.record.best.evaluations)

    @property
    def actions(self) -> list[str]:
        """The names of the actions that it takes."""
        return list(self.builder.actions)

    def has_interface_of(self, other: TrainedAgent) -> bool:
        """Returns whether both networks have the same observations and actions, so that they can play one match."""
        mine, theirs = self.network, other.network
        equal = (mine.inputs, mine.distribution, self.actions) == (theirs.inputs, theirs.distribution, other.actions)
        return equal and self.builder.shows_view_of(other.record.scenario)

    @property
    def better_policy(self) -> PolicyName:
        """The policy that scored higher in the newest evaluation."""
        return self.record.best.policy

    def act(
        self,
        observation: Observation,
        state: CoreState | None = None,
        policy: PolicyName | None = None,
        reward: float | None = None,
        bonus: float = 0.0,
    ) -> tuple[int | NDArray[Any], CoreState]:
        """Returns the action, and the state for the next call: the core state, and the action if the network sees it.

        The action is one that the game's environment from `doom_a3c.envs` takes: an index, or an array of several choices
        and numbers.

        Args:
            observation: of one game, as from `doom_a3c.envs`: uint8 [H, W, C], float32 [V], or a dict of parts.
            state: the state from the previous call; None at the start of an episode.
            policy: 'greedy' for the likeliest action, 'sample' for a random draw; None for `better_policy`.
            reward: of the last step, if the network sees it; ignored at the start of an episode.
            bonus: shaping reward of the last step, if the network sees rewards.

        Raises:
            ValueError: if the observation or the state has the wrong shape or type, or there is no such policy, or the
                reward is missing.
        """
        if policy not in (None, *get_args(PolicyName)):
            raise ValueError(f"the policy is {policy!r}; it takes {' or '.join(get_args(PolicyName))}, or None")
        inputs = self.network.inputs._replace(previous=0)  # the caller knows no previous step
        wanted = inputs.join({name: shape for name, (shape, _) in inputs.parts.items()})
        shape: object
        if isinstance(observation, dict):
            shape = {name: np.shape(part) for name, part in observation.items()}
        else:
            shape = np.shape(observation)
        if shape != wanted:
            raise ValueError(f"the observation has the shape {shape}, but the network takes {wanted}")
        parts = {name: np.asarray(part)[None] for name, part in inputs.split(observation).items()}
        for name, part in parts.items():
            dtype = inputs.parts[name][1]
            if name == "pixels" and part.dtype != dtype:
                raise ValueError(f"the observation's pixels are {part.dtype}, but the network takes uint8")
            if part.dtype.kind not in "fiub":
                raise ValueError(f"the observation's {name} are {part.dtype}, but the network takes {dtype.__name__}")
            parts[name] = part.astype(dtype)  # games often return float64
        core_state, previous = self._recall(state, reward, bonus)
        resets, distribution = np.full(1, state is None, np.float32), self._policy.distribution
        parts |= {"previous": previous} if self.network.inputs.previous else {}
        decision = self._policy(self.network.inputs.join(parts), resets, core_state)
        greedy = (policy or self.better_policy) == "greedy"
        drawn = distribution.mode(decision.logits) if greedy else distribution.sample(decision.logits, self._random)
        chosen = distribution.bound(drawn)
        after = (*decision.core_state, chosen) if self.network.inputs.previous else decision.core_state
        return (chosen[0] if distribution.action_shape else int(chosen[0])), after

    def _recall(self, state: CoreState | None, reward: float | None, bonus: float) -> tuple[CoreState, Array]:
        """Returns the recurrent state and the numbers about the previous step, as the network sees them.

        Raises:
            ValueError: if the state is not one that `act` returned, or the reward is missing.
        """
        size, distribution = self.network.inputs.previous, self._policy.distribution
        initial, nothing = self._policy.initial_state(1), np.zeros((1, size), np.float32)
        if state is None:
            return initial, nothing
        action = np.zeros((1, *distribution.action_shape), distribution.action_type)
        if not _has_same_shapes(state, (*initial, action) if size else initial):
            raise ValueError("the state must be the one that `act` returned for the last step, or None")
        if not size:
            return state, nothing
        if reward is None and self.network.spec.previous_reward:
            raise ValueError("the network sees the reward of the last step: act(observation, state, reward=...)")
        *core_state, action = state
        rewards, bonuses = np.array([0.0 if reward is None else reward]), np.array([bonus])
        sums = self.record.counters.reward_sums
        return tuple(core_state), self.builder.previous.encode(action, rewards, bonuses, sums)


def _has_same_shapes(state: CoreState, initial: CoreState) -> bool:
    """Returns whether a recurrent state has the same shapes as this network's initial state."""
    parts = isinstance(state, tuple) and len(state) == len(initial)
    return parts and all(np.shape(part) == np.shape(its) for part, its in zip(state, initial, strict=True))
