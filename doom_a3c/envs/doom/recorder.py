"""Recording ViZDoom episodes for people, by playing them again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.setup import check, configure
from doom_a3c.envs.pixels import Pixels
from doom_a3c.settings.games import DoomSpec, Observation


class DoomVideoRecorder:
    """Records episodes in colour, whatever the network sees. Owns a second engine.

    ViZDoom is deterministic in seed and actions, so a second game that is given the seed and the actions of the first
    shows the same episode at any resolution, while the network keeps seeing exactly what it was trained on.
    """

    def __init__(self, game: DoomSpec, observation: Observation, resolution: str, every_frame: bool = True) -> None:
        """Has pictures of that resolution, of every frame, or else of every step."""
        frames = game.frame_skip
        self._parts = [1] * frames if every_frame else [frames]  # of a step, in frames, each with a picture
        self._actions = check(game, observation)
        view = replace(observation, resolution=resolution, color=True)
        self._process = DoomProcess(partial(configure, spec=game, observation=view))

    def reset(self, seed: int) -> list[Pixels]:
        """Starts the episode of that engine seed; returns its first picture."""
        self._process.begin_episode(seed)
        return [self._process.game.get_state().screen_buffer]

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Plays one step; returns its pictures (the frame that ends the episode has none)."""
        game, pictures = self._process.game, []
        for frames in self._parts:
            self._process.ask(partial(game.make_action, self._actions[action], frames))
            if game.is_episode_finished():
                break
            pictures.append(game.get_state().screen_buffer)
        return pictures

    def get_score(self) -> float:
        """The recorded episode's reward so far: equal to the player's, or the recording shows another episode."""
        return float(self._process.game.get_total_reward())

    def close(self) -> None:
        """Ends the engine; may be called twice."""
        self._process.close()
