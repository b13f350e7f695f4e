"""The previous action and reward of each game as part of its observations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict
from gymnasium.vector.utils import batch_space

from doom_a3c.agent.distributions import Actions, Array, Distribution
from doom_a3c.agent.games_wrapper import GamesWrapper
from doom_a3c.agent.inputs import Inputs, Observations
from doom_a3c.agent.player import GameVector, Rewards, read_bonuses
from doom_a3c.agent.rewards import RewardScale
from doom_a3c.agent.rollouts import MAX_OBSERVED
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.settings.network import Network


class PreviousEncoder:
    """Encodes actions and rewards as a network sees them with its next observation."""

    def __init__(self, spec: Network, distribution: Distribution, scale: RewardScale) -> None:
        self._with_action, self._with_reward = spec.previous_action, spec.previous_reward
        self._distribution, self._scale = distribution, scale

    @property
    def size(self) -> int:
        """How many numbers describe a step, 0 if the network sees neither action nor reward."""
        return self._with_action * self._distribution.code_size + self._with_reward

    def encode(self, actions: Actions, rewards: Rewards, bonuses: Rewards, sums: RunningMoments) -> Array:
        """Returns the numbers of a step, [B, size]: the code of the action, and the reward as scaled for learning.

        Args:
            actions: of the step, [B, ...].
            rewards: the games' own, [B].
            bonuses: shaping rewards, [B]; not multiplied by the schedule `shaping_weight`, which play does not know.
            sums: the statistics that normalize rewards. In training they do not include the running rollout yet, although
                they will when that rollout's rewards are normalized for learning.
        """
        parts = [np.zeros((len(actions), 0), np.float32)]
        if self._with_action:
            parts.append(self._distribution.encode(actions))
        if self._with_reward:
            usable = np.abs(rewards + bonuses) <= MAX_OBSERVED  # others cannot be learned from; the network sees 0
            seen = self._scale.scale(np.where(usable, rewards, 0.0), np.where(usable, bonuses, 0.0), sums)
            parts.append(seen[:, None])
        return np.concatenate(parts, axis=1)


class PreviousSteps(GamesWrapper):
    """Adds the previous step's numbers to the observations of games, as `previous`: zeros where an episode starts.

    The final observation of an episode carries the numbers of its last step.
    """

    def __init__(
        self,
        env: GameVector,
        inputs: Inputs,
        encoder: PreviousEncoder,
        get_sums: Callable[[], RunningMoments],
        rows: int = 1,
    ) -> None:
        """`get_sums` returns the statistics that normalize rewards; `history` can return up to `rows` observations."""
        super().__init__(env)
        self._seen, self._encoder, self._get_sums = inputs._replace(previous=0), encoder, get_sums
        self._kept: deque[Array] = deque([np.zeros((env.num_envs, encoder.size), np.float32)], maxlen=rows)
        numbers = Box(-np.inf, np.inf, (encoder.size,), np.float32)
        self.single_observation_space = Dict(self._join(env.single_observation_space, numbers))
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        if hasattr(env, "history"):  # few vectors have these methods
            self.history = self._read_history
        if hasattr(env, "begin_again"):
            self.begin_again = self._begin_again

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._kept.append(np.zeros_like(self._kept[-1]))
        return self._join(observations, self._kept[-1]), infos

    def _begin_again(self) -> tuple[Any, dict[str, Any]]:
        """Restarts the first game, which is at the start of an episode: its numbers are zero already."""
        observations, infos = self.env.begin_again()  # type: ignore[attr-defined]  # a method of Atari's vectors
        return self._join(observations, self._kept[-1]), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ends = terminated | truncated
        numbers = self._encoder.encode(actions, rewards, read_bonuses(infos, len(ends)), self._get_sums())
        if ends.any():
            finals = np.empty(len(ends), np.object_)
            for game in np.flatnonzero(ends):
                finals[game] = self._join(infos["final_obs"][game], numbers[game])
            infos = {**infos, "final_obs": finals}
        self._kept.append(np.where(ends[:, None], np.float32(0), numbers))
        return self._join(observations, self._kept[-1]), rewards, terminated, truncated, infos

    def _read_history(self, steps: int) -> Observations:
        """Returns the observations before and after the last `steps` steps, [steps + 1, B, ...], as the games' own does."""
        kept = self.env.history(steps)  # type: ignore[attr-defined]  # of games in processes
        return self._join(kept, np.stack(list(self._kept)[-steps - 1 :]))

    def _join(self, observations: Any, numbers: Any) -> Any:
        return {**self._seen.split(observations), "previous": numbers}
