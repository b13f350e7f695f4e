"""Filming ViZDoom episodes for people, whatever the network sees."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from doom_a3c.envs.doom import check, configure
from doom_a3c.envs.engine import Engine
from doom_a3c.envs.pixels import Frame
from doom_a3c.scenarios import DoomSpec, Observation

RESOLUTION = "320x240"


class DoomCamera:
    """Films episodes in colour, every tic, whatever the network sees. Owns a second engine.

    ViZDoom is deterministic in seed and actions, so a second game that is given the seed and the actions of the first
    shows the same episode at any resolution, while the network keeps seeing exactly the frames it was trained on.
    """

    def __init__(self, game: DoomSpec, observation: Observation) -> None:
        self._frame_skip = game.frame_skip
        self._actions = check(game, observation)
        view = replace(observation, resolution=RESOLUTION, color=True)
        self._engine = Engine(partial(configure, spec=game, observation=view))

    def reset(self, seed: int) -> list[Frame]:
        """Starts the episode of that engine seed; returns its first frame."""
        self._engine.game.set_seed(seed)
        self._engine.ask(self._engine.game.new_episode)
        return [self._engine.game.get_state().screen_buffer]

    def step(self, action: int, ended: bool) -> list[Frame]:
        """Plays one decision; returns the frame of every tic that has one (the tic that ends the episode has none)."""
        game, frames = self._engine.game, []
        for _ in range(self._frame_skip):
            self._engine.ask(lambda: game.make_action(self._actions[action], 1))
            if game.is_episode_finished():
                break
            frames.append(game.get_state().screen_buffer)
        return frames

    def get_score(self) -> float:
        """The filmed episode's reward so far: equal to the player's, or the film shows another episode."""
        return float(self._engine.game.get_total_reward())

    def close(self) -> None:
        """Ends the engine; may be called twice."""
        self._engine.close()
