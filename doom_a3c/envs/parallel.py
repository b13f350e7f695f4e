"""Matches of several agents as PettingZoo's parallel environments, for learners of other programs."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.utils import EzPickle
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from doom_a3c.envs.factory import GameFactory
from doom_a3c.envs.games import make_game_factory
from doom_a3c.settings.catalog import find
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.interface import map_nested
from doom_a3c.settings.scenarios import apply_overrides

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("parallel_env needs PettingZoo: pip install pettingzoo", name=error.name) from None

_OF_THE_END = ("final_info", "final_obs")


def parallel_env(scenario: str, frame_skip: int | None = None, render_mode: str | None = "rgb_array") -> MatchParallelEnv:
    """Returns a match of several agents, with the observations, actions and scores (frags) of its scenario.

    Args:
        scenario: a name or a file, as `--scenario` takes it, with [game.match] agents = 2 or more.
        frame_skip: frames per step; None is the scenario's.
        render_mode: 'rgb_array', or None.

    Raises:
        UserError: if there is no such scenario, it cannot be played or has one agent, or `render_mode` is anything else.
    """
    require(render_mode in ("rgb_array", None), f"render_mode {render_mode!r}: a match has 'rgb_array' or None")
    found, _ = apply_overrides(find(scenario), {"frame_skip": frame_skip}, scenario)
    games = make_game_factory(found.game, found.observation)
    if games.agents == 1:
        raise UserError(f"{scenario} has one agent: [game.match] agents = 2 makes a match of two")
    return MatchParallelEnv(games, found.name, render_mode)


class MatchParallelEnv(ParallelEnv[str, Any, Any], EzPickle):
    """One match; pickling gives a new one. Owns the game servers of its players, `agent_0`, `agent_1` and so on.

    All agents live to the end of the match, which is a truncation. If an engine fails, all are truncated with
    `infos[agent]["doom_a3c.cut_short"]`, and the next reset starts a new match.
    """

    def __init__(self, games: GameFactory, name: str, render_mode: str | None) -> None:
        EzPickle.__init__(self, games, name, render_mode)
        self.metadata = {"name": f"doom_a3c_{name}", "render_modes": ["rgb_array"], "render_fps": games.steps_per_second}
        self.render_mode = render_mode
        self._games: VectorEnv[Any, Any, Any] = games.make_vector(games.agents, limited=True)
        self.possible_agents = [f"agent_{number}" for number in range(games.agents)]
        self.agents: list[str] = []
        self._next: tuple[Any, dict[str, Any]] | None = None  # of a match that has begun; the next reset returns it

    def observation_space(self, agent: str) -> Space[Any]:
        return self._games.single_observation_space

    def action_space(self, agent: str) -> Space[Any]:
        return self._games.single_action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Starts a match; `seed` does not determine it, as the engines' network code depends on timing.

        Raises:
            ValueError: for a seed below 0; the match goes on.
        """
        start = self._next if seed is None else None
        observations, infos = start or self._games.reset(seed=seed, options=options)
        self.agents, self._next = list(self.possible_agents), None
        return self._split(observations), self._split_infos(infos)

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Returns observations, frags, terminations, truncations and infos by agent; all empty after the end.

        Raises:
            KeyError: if an action is missing.
            ValueError: if an action is not one of the game's; the match goes on.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        taken = np.stack([self._read_action(agent, actions[agent]) for agent in self.agents])
        observations, rewards, terminated, truncated, infos = self._games.step(taken)
        seen, told = self._split(observations), self._split_infos(infos)
        results = [dict(zip(self.agents, each.tolist(), strict=True)) for each in (rewards, terminated, truncated)]
        if truncated.any():  # the vector has begun the next match
            self._next = observations, {key: value for key, value in infos.items() if key.lstrip("_") not in _OF_THE_END}
            seen, told = self._split_ends(infos)
            self.agents = []
        return seen, *results, told  # type: ignore[return-value]  # the three dicts

    def _read_action(self, agent: str, action: Any) -> NDArray[np.int64]:
        space, array = self.action_space(agent), np.asarray(action)
        if array.dtype.kind not in "iub" or not space.contains(array.astype(np.int64)):
            raise ValueError(f"the action of {agent} is {action!r}, which is not in {space}")
        return array.astype(np.int64)

    def _split(self, observations: Any) -> dict[str, Any]:
        """Returns the observations by agent."""
        return {
            agent: map_nested(lambda array, place=place: array[place], observations)
            for place, agent in enumerate(self.possible_agents)
        }

    def _split_infos(self, infos: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Returns the infos by agent, without those of an episode's end."""
        keys = [key for key in infos if not key.startswith("_") and key not in _OF_THE_END]
        return {
            agent: {key: infos[key][place] for key in keys if infos[f"_{key}"][place]}
            for place, agent in enumerate(self.possible_agents)
        }

    def _split_ends(self, infos: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Returns the last observations and infos of a match by agent."""
        seen = dict(zip(self.possible_agents, infos["final_obs"], strict=True))
        return seen, self._split_infos(infos.get("final_info", {}))

    def render(self) -> NDArray[np.uint8] | None:
        """Returns the newest screen of `agent_0`, [height, width, 3]."""
        picture: NDArray[np.uint8] | None = self._games.picture()  # type: ignore[attr-defined]  # of this package's vectors
        return picture if self.render_mode else None

    def close(self) -> None:
        self._games.close()
