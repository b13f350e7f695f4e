"""Recording ViZDoom episodes from a process of its own, which may die of what it plays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from doom_a3c.envs.processes.client import GameProcess
from doom_a3c.envs.processes.supervisor import PAUSES, with_retries
from doom_a3c.settings.games import DoomSpec, Observation

if TYPE_CHECKING:
    from doom_a3c.envs.pixels import Pixels  # loads OpenCV, which the trainer can do without

TRIES = 4  # a film is not worth two minutes


def _doom_recorder(game: DoomSpec, observation: Observation, resolution: str, every_frame: bool, wire: Any) -> Any:
    from doom_a3c.envs.doom.recorder import DoomVideoRecorder  # loads ViZDoom, which only game servers need

    return DoomVideoRecorder(game, observation, resolution, every_frame)


class RemoteVideoRecorder:
    """A video recorder for Doom, in a process of its own. Owns the process."""

    def __init__(self, game: DoomSpec, observation: Observation, resolution: str, every_frame: bool = True) -> None:
        """Starts the game, to be shown at that resolution, every frame of it or every step.

        Raises:
            GamesError: if it does not start, after several tries.
        """

        def started() -> GameProcess:
            process = GameProcess(partial(_doom_recorder, game, observation, resolution, every_frame))
            try:
                process.answer()
            except BaseException:
                process.end()
                raise
            return process

        self.pictures_per_second = DoomSpec.frames_per_second / (1 if every_frame else game.frame_skip)
        self._process = with_retries(started, [], pauses=PAUSES[:TRIES])

    @property
    def score(self) -> float:
        """The recorded episode's reward so far."""
        return float(self._process.call("get_score"))

    def reset(self, seed: int) -> list[Pixels]:
        """Starts the episode of that engine seed; returns its first picture."""
        pictures: list[Pixels] = self._process.call("reset", seed)
        return pictures

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Plays one step; returns the picture of every frame that has one."""
        pictures: list[Pixels] = self._process.call("step", action, ended)
        return pictures

    def close(self) -> None:
        """Ends the process; may be called twice."""
        self._process.end()
