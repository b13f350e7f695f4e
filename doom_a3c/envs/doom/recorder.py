"""Films ViZDoom episodes by replaying them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from doom_a3c.envs.doom.match import Match
from doom_a3c.envs.doom.setup import check
from doom_a3c.envs.doom.start import start_engine
from doom_a3c.envs.pixels import Pixels
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.match import parse_match


class DoomVideoRecorder:
    """Records episodes in colour, even if the network sees grey. Owns a second engine.

    ViZDoom is deterministic in seed and actions, so a second game with the same seed and actions renders the same episode
    at any resolution, while the network's observations stay as in training.
    """

    def __init__(self, game: DoomSpec, observation: Observation, resolution: str, every_frame: bool = True) -> None:
        """Pictures have that `resolution`; there is one per frame, or else one per step.

        Raises:
            EngineError: if the engine does not start.
            UserError: for a mistake in the scenario or its files.
        """
        frames = game.frame_skip
        self._parts = [1] * frames if every_frame else [frames]  # frames per picture, for the pictures of one step
        self._actions = check(game, observation)
        self._game, self._view = game, replace(observation, resolution=resolution, color=True)
        self._process = start_engine(self._game, self._view)
        match = parse_match(game.match)
        self._match = Match(match) if match else None
        self._frags = 0.0

    def reset(self, seed: int) -> list[Pixels]:
        if self._match:  # as `DoomEnv.reset`
            self._process.close()
            self._process = start_engine(self._game, self._view, seed)
            self._match.begin(self._process.game)
            self._frags = 0.0
        else:
            self._process.begin_episode(seed)
        return [self._process.game.get_state().screen_buffer]

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Plays one step; returns its pictures. The frame that ends an episode has none."""
        game, pictures = self._process.game, []
        for frames in self._parts:
            self._process.ask(partial(game.make_action, self._actions.press(action), frames))
            if game.is_episode_finished():
                break
            pictures.append(game.get_state().screen_buffer)
        if self._match:
            self._frags += self._match.count_frags(game)
            if not game.is_episode_finished():
                self._match.readd_lost(game)
        return pictures

    def get_score(self) -> float:
        """Returns the recorded episode's reward so far; if it differs from the player's, this is another episode."""
        return self._frags if self._match else float(self._process.game.get_total_reward())

    def close(self) -> None:
        self._process.close()
