"""Films ViZDoom episodes in a separate process, so that an engine's crash cannot hurt this one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from doom_a3c.envs.processes.client import GameProcess
from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.retries import PAUSES, with_retries
from doom_a3c.settings.games import DoomSpec, Observation

if TYPE_CHECKING:
    from doom_a3c.envs.doom.recorder import DoomVideoRecorder
    from doom_a3c.envs.pixels import Pixels  # loads OpenCV, which the trainer does not need

TRIES = 4  # a film is not worth two minutes of waiting


def _make_recorder(
    game: DoomSpec, observation: Observation, resolution: str, every_frame: bool, wire: Wire
) -> DoomVideoRecorder:
    from doom_a3c.envs.doom.recorder import DoomVideoRecorder  # loads ViZDoom, which only game servers need

    return DoomVideoRecorder(game, observation, resolution, every_frame)


class RemoteVideoRecorder:
    """A video recorder for Doom, in a separate process. Owns the process."""

    def __init__(self, game: DoomSpec, observation: Observation, resolution: str, every_frame: bool = True) -> None:
        """Starts the game; pictures have this resolution, one for every frame or for every step.

        Raises:
            GamesError: if the game does not start after `TRIES` tries.
        """

        def start() -> GameProcess:
            process = GameProcess(partial(_make_recorder, game, observation, resolution, every_frame))
            try:
                process.answer()
            except BaseException:
                process.end()
                raise
            return process

        self.pictures_per_second = DoomSpec.frames_per_second / (1 if every_frame else game.frame_skip)
        self._process = with_retries(start, [], pauses=PAUSES[:TRIES])

    @property
    def score(self) -> float:
        return float(self._process.call("get_score"))

    def reset(self, seed: int) -> list[Pixels]:
        pictures: list[Pixels] = self._process.call("reset", seed)
        return pictures

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        pictures: list[Pixels] = self._process.call("step", action, ended)
        return pictures

    def close(self) -> None:
        self._process.end()
