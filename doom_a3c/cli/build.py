"""From a scenario to its games and networks: what training and playing both need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from doom_a3c.config import Config
from doom_a3c.model import GlobalModel
from doom_a3c.networks import ACNetwork, Inputs, observation_inputs
from doom_a3c.optimizers import make_optimizer
from doom_a3c.scenarios import AtariGame, DoomGame, GymnasiumGame, Scenario
from doom_a3c.settings import UserError

MAX_DECISIONS = 5000  # of an episode of Doom that is evaluated or shown; Atari and Gymnasium games have limits of their own


class Camera(Protocol):
    """Films the episodes of a single game in colour."""

    frames_per_second: float

    @property
    def score(self) -> float | None:
        """The filmed episode's, where the camera plays a game of its own: a film of another course would show in it."""

    def reset(self, seed: int) -> list[NDArray[np.uint8]]:
        """Starts filming an episode; returns its first frame, [height, width, 3]."""

    def step(self, action: int, ended: bool) -> list[NDArray[np.uint8]]:
        """Returns the frames of a decision."""

    def close(self) -> None:
        """Ends what the camera runs."""


class Games(Protocol):
    """One kind of games."""

    decisions_per_second: float  # in real time

    def vector(self, games: int, limited: bool) -> VectorEnv[Any, Any, Any]:
        """Returns games stepped together; `limited` ends episodes that could go on for ever."""

    def camera(self, env: Any) -> Camera:
        """Returns a camera for an `env` of one game."""

    def unblock(self) -> None:
        """Frees threads that wait for a game for ever, by ending all games."""


class _Doom:
    """ViZDoom games. Checks the scenario once: it takes stderr over for a moment, and workers make their games at once."""

    def __init__(self, scenario: Scenario, frame_skip: int) -> None:
        from doom_a3c.envs.doom import TICS_PER_SECOND, DoomEnv, check
        from doom_a3c.envs.engine import EngineError, kill_all

        self.unblock = kill_all

        self._scenario, self._frame_skip = scenario, frame_skip
        self._make = partial(DoomEnv, scenario, frame_skip, actions=check(scenario))
        self.decisions_per_second = TICS_PER_SECOND / frame_skip
        env = self._make()
        try:
            env.reset(seed=0)
        except EngineError:
            raise UserError(f"scenario {scenario.name}: the game does not start; is {scenario.game.title} whole?") from None
        finally:
            env.close()

    def vector(self, games: int, limited: bool) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.threaded import ThreadedVectorEnv

        make = (lambda: TimeLimit(self._make(), MAX_DECISIONS)) if limited else self._make
        return ThreadedVectorEnv([make] * games)

    def camera(self, env: Any) -> Camera:
        from doom_a3c.envs.camera import DoomCamera

        return DoomCamera(self._scenario, self._frame_skip)


class _Atari:
    """Atari games."""

    def __init__(self, scenario: Scenario, frame_skip: int) -> None:
        from doom_a3c.envs.atari import TICS_PER_SECOND

        self._scenario, self._frame_skip = scenario, frame_skip
        self.decisions_per_second = TICS_PER_SECOND / frame_skip

    def vector(self, games: int, limited: bool) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.atari import AtariGames

        return AtariGames(self._scenario, self._frame_skip, games)

    def camera(self, env: Any) -> Camera:
        from doom_a3c.envs.atari import AtariCamera

        return AtariCamera(self._scenario, self._frame_skip)

    def unblock(self) -> None:
        pass  # these games run in their callers' threads


class _Registered:
    """Any other Gymnasium environment."""

    def __init__(self, scenario: Scenario, frame_skip: int) -> None:
        self._scenario, self._frame_skip = scenario, frame_skip
        env = self.vector(1, limited=True)
        self.decisions_per_second = env.metadata.get("render_fps", 30) / frame_skip
        env.close()

    def vector(self, games: int, limited: bool) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.registered import RegisteredGames

        return RegisteredGames(self._scenario, self._frame_skip, games)

    def camera(self, env: Any) -> Camera:
        from doom_a3c.envs.registered import OwnCamera

        return OwnCamera(env, self._frame_skip)

    def unblock(self) -> None:
        pass  # these games run in their callers' threads


_KINDS: dict[type, Callable[[Scenario, int], Games]] = {DoomGame: _Doom, AtariGame: _Atari, GymnasiumGame: _Registered}


class Builder:
    """Makes games and networks that fit each other.

    Raises:
        UserError: if the scenario cannot be played.
    """

    def __init__(self, scenario: Scenario, frame_skip: int) -> None:
        self.scenario = scenario
        self._games = _KINDS[type(scenario.game)](scenario, frame_skip)
        self.decisions_per_second, self.unblock = self._games.decisions_per_second, self._games.unblock
        env = self.evaluation_env(1)
        self.inputs: Inputs = observation_inputs(env.single_observation_space)
        assert isinstance(env.single_action_space, Discrete)
        self.actions = int(env.single_action_space.n)
        self.example: Any = env.observation_space.sample()  # observations of one game
        env.close()

    def training_env(self, games: int) -> VectorEnv[Any, Any, Any]:
        """Returns that many games, stepped together."""
        return self._games.vector(games, limited=False)

    def evaluation_env(self, games: int) -> VectorEnv[Any, Any, Any]:
        """Returns that many games for evaluation or playing, where an episode ends at last: some have no time-out."""
        return self._games.vector(games, limited=True)

    def camera(self, env: VectorEnv[Any, Any, Any]) -> Camera:
        """Returns a camera that films the episodes of an `env` of one game."""
        return self._games.camera(env)

    def model(self, config: Config) -> GlobalModel:
        """Returns a freshly initialised global model with the optimizer that the settings name."""
        network = self.network("global", config.seed)
        return GlobalModel(network, make_optimizer(config.optimizer, network.parameters, config.optimizer_epsilon))

    def network(self, name: str, seed: int) -> ACNetwork:
        """Returns a freshly initialised network."""
        return ACNetwork(self.scenario.network, self.inputs, self.actions, seed, name)
