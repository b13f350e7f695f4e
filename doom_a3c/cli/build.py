"""From a scenario to its games and networks: what training and playing both need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from doom_a3c.config import UserError
from doom_a3c.envs.camera import DoomCamera
from doom_a3c.envs.doom import TICS_PER_SECOND, DoomEnv, check
from doom_a3c.envs.engine import EngineError
from doom_a3c.envs.threaded import ThreadedVectorEnv
from doom_a3c.networks import ACNetwork, Inputs, observation_inputs
from doom_a3c.scenarios import Scenario

MAX_DECISIONS = 5000  # of an episode that is evaluated or shown


class Builder:
    """Makes games and networks that fit each other. Checks the scenario once, when it is made.

    Raises:
        UserError: if the scenario cannot be played.
    """

    def __init__(self, scenario: Scenario, frame_skip: int) -> None:
        self.scenario, self.frame_skip = scenario, frame_skip
        # Checked here and not by each game: that takes stderr over for a moment, and workers make their games at once.
        actions = check(scenario)
        self._make_env: Callable[[], gymnasium.Env[Any, Any]] = partial(DoomEnv, scenario, frame_skip, actions=actions)
        env = self._make_env()
        self.inputs: Inputs = observation_inputs(env.observation_space)
        self.actions = int(env.action_space.n)  # type: ignore[attr-defined]  # Discrete
        self.decisions_per_second = TICS_PER_SECOND / frame_skip
        try:
            env.reset(seed=0)
        except EngineError:
            raise UserError(
                f"scenario {scenario.name}: the game does not start; is {scenario.game.wad or scenario.game.config} whole?"
            ) from None
        finally:
            env.close()

    def shown_env(self) -> gymnasium.Env[Any, Any]:
        """Returns one game for evaluation or playing, where an episode ends at last: some scenarios have no time-out."""
        return TimeLimit(self._make_env(), MAX_DECISIONS)

    def training_env(self, games: int) -> VectorEnv[Any, Any, Any]:
        """Returns that many games, stepped together."""
        return ThreadedVectorEnv([self._make_env] * games)

    def evaluation_env(self, games: int) -> VectorEnv[Any, Any, Any]:
        """Returns that many games for evaluation, stepped together."""
        return ThreadedVectorEnv([self.shown_env] * games)

    def camera(self, window: bool) -> DoomCamera:
        """Returns a camera that films the same episodes in colour."""
        return DoomCamera(self.scenario, self.frame_skip, "640x480" if window else "320x240", window)

    def network(self, name: str, seed: int) -> ACNetwork:
        """Returns a freshly initialised network."""
        return ACNetwork(self.scenario.network, self.inputs, self.actions, seed, name)
