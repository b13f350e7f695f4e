"""The factories: one class for each kind of games (Doom, its matches, Atari, other Gymnasium environments)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from doom_a3c.envs.doom.make_env import make_doom, make_seat
from doom_a3c.envs.doom.remote_recorder import RemoteVideoRecorder
from doom_a3c.envs.factory import GameFactory, VideoRecorder, describe_vector
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.match_vectors import MatchVectorEnv
from doom_a3c.envs.processes.supervisor import MakeEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.games import (
    FREEDOOM,
    AtariSpec,
    DoomSpec,
    GameSpec,
    GymnasiumSpec,
    Observation,
    locate,
    shipped_folder,
)
from doom_a3c.settings.match import parse_match

DOOM_PROCESSES = 1  # game servers of each worker, unless the settings name another number
DEFAULT_RATE, MAX_RATE = 30.0, 240.0  # frames per second
FILM, LARGE_FILM = "320x240", "640x480"  # resolutions of Doom's films


def make_game_factory(
    game: GameSpec, observation: Observation, processes: int | None = None, make_env: MakeEnv | None = None
) -> GameFactory:
    """Returns the factory for a game; its vectors use `processes` game servers each.

    0 keeps the games in this process, and None chooses the default: 1 for Doom, else 0. `make_env` makes the environment of
    a spec that names only a function.

    Raises:
        UserError: if the game cannot be played, or not in game servers.
    """
    given = processes
    if processes is None:
        processes = DOOM_PROCESSES if isinstance(game, DoomSpec) else 0
    match game:
        case DoomSpec() if (match := parse_match(game.match)) and match.agents > 1:
            require(given is None, "--game-processes has no effect on matches of agents: each player has a process")
            return _MatchFactory(game, observation, match.agents)
        case DoomSpec():
            return _DoomFactory(game, observation, processes)
        case AtariSpec() if processes:
            raise UserError("--game-processes has no effect on Atari games: their library plays them on threads of its own")
        case AtariSpec():
            return _AtariFactory(game, observation)
        case GymnasiumSpec():
            return _RegisteredFactory(game, observation, processes, make_env)


def _make_vector(makers: Sequence[MakeEnv], processes: int, rows: int) -> VectorEnv[Any, Any, Any]:
    return _make_servers(makers, processes, rows) if processes else LocalVectorEnv(makers)


def _make_servers(makers: Sequence[MakeEnv], processes: int, rows: int, prepare: bool = False) -> ProcessVectorEnv:
    return ProcessVectorEnv(makers, processes, rows=rows, copy=rows == 1, prepare=prepare)


class _DoomFactory(GameFactory):
    """ViZDoom games."""

    replayed = True

    def __init__(self, game: DoomSpec, observation: Observation, processes: int) -> None:
        super().__init__()
        self._game, self._observation, self._processes = game, observation, processes
        self.steps_per_second = DoomSpec.frames_per_second / game.frame_skip
        self._tested = False

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        if not limited and (vector := self._early.take(games, rows)):
            return vector
        if self._processes == 0:
            self._test_level()
        return _make_vector(self._list_makers(games, limited), self._processes, rows)

    def _list_makers(self, games: int, limited: bool) -> list[MakeEnv]:
        return [partial(make_doom, self._game, self._observation, limited)] * games

    def _test_level(self) -> None:
        """Starts a user's level once in a game server: here, a level that crashes the engine would crash this process."""
        level = locate(self._game.wad or self._game.iwad or FREEDOOM)
        if not self._tested and level.parent not in (shipped_folder(), shipped_folder().parent):
            with closing(_make_servers(self._list_makers(1, limited=False), 1, 1, prepare=True)) as env:
                env.wait_for_one()
        self._tested = True

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        if self._processes:
            makers = self._list_makers(games, limited=False)
            self._early.start(partial(_make_servers, makers, self._processes, rows, prepare=True), vectors, games, rows)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        self._test_level()
        return make_doom(self._game, self._observation, True, render_mode)

    def make_recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        return RemoteVideoRecorder(self._game, self._observation, LARGE_FILM if large else FILM)

    def make_replayer(self) -> VideoRecorder:
        return RemoteVideoRecorder(self._game, self._observation, self._observation.resolution, every_frame=False)


class _MatchFactory(GameFactory):
    """Doom matches of several agents: each game of a vector is a player, in its own game server."""

    def __init__(self, game: DoomSpec, observation: Observation, agents: int) -> None:
        super().__init__()
        self._game, self._observation, self.agents = game, observation, agents
        self.steps_per_second = DoomSpec.frames_per_second / game.frame_skip

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> ProcessVectorEnv:
        return self._early.take(games, rows) or self._make_matches(games, rows)

    def _make_matches(self, games: int, rows: int) -> ProcessVectorEnv:
        """Returns a vector of at least `games` players, in whole matches."""
        seats = [partial(make_seat, self._game, self._observation, number) for number in range(self.agents)]
        return MatchVectorEnv(seats * -(-games // self.agents), self.agents, rows=rows, copy=rows == 1)

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        self._early.start(partial(self._make_matches, games, rows), vectors, games, rows)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        raise UserError("a match of several agents is no single game: doom_a3c.parallel_env(NAME) has all of its players")

    def make_recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        from doom_a3c.envs.registered import OwnVideoRecorder  # late: it loads OpenCV

        return OwnVideoRecorder(env, self.steps_per_second)


class _AtariFactory(GameFactory):
    """Atari games. `envs.atari` is imported late, as it loads the emulator."""

    replayed = True

    def __init__(self, game: AtariSpec, observation: Observation) -> None:
        super().__init__()
        self._game, self._observation = game, observation
        self.steps_per_second = AtariSpec.frames_per_second / game.frame_skip

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.atari import AtariGames

        return AtariGames(self._game, self._observation, games)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        from doom_a3c.envs.single import SingleEnv

        return SingleEnv(self.make_vector(1, limited=True), render_mode)

    def make_recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        from doom_a3c.envs.atari import AtariVideoRecorder

        return AtariVideoRecorder(self._game)

    def make_replayer(self) -> VideoRecorder:
        from doom_a3c.envs.atari import AtariVideoRecorder

        return AtariVideoRecorder(self._game, large=False)


class _RegisteredFactory(GameFactory):
    """Any other Gymnasium environment. `envs.registered` is imported late: it loads OpenCV and configures Gymnasium."""

    def __init__(self, game: GymnasiumSpec, observation: Observation, processes: int, make_env: MakeEnv | None) -> None:
        super().__init__()
        self._game, self._observation, self._processes, self._make_env = game, observation, processes, make_env
        if make_env and processes:
            from doom_a3c.envs.functions import check_can_be_sent

            check_can_be_sent(make_env, game.id)
        self._masked: bool | None = None  # whether infos have masks; not known before the first game
        with closing(self.make_vector(1, limited=True)) as env:
            self.steps_per_second = _parse_frame_rate(env.metadata.get("render_fps")) / game.frame_skip
            env.reset(seed=0)
            draws = env.picture() is not None  # type: ignore[attr-defined]  # a method of this package's vectors
            self._facts = describe_vector(env, draws=draws)
            self._masked = "mask" in getattr(self._facts.observations, "spaces", ())

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        return _make_vector([self._bind_make()] * games, self._processes, rows)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        return self._bind_make()()

    def _bind_make(self) -> MakeEnv:
        from doom_a3c.envs.registered import make

        return partial(make, self._game, self._observation, self._make_env, self._masked)

    def make_recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        from doom_a3c.envs.registered import OwnVideoRecorder

        return OwnVideoRecorder(env, self.steps_per_second)


def _parse_frame_rate(value: object) -> float:
    """Returns an environment's `render_fps` in frames per second, or `DEFAULT_RATE` if it is unusable."""
    return float(value) if isinstance(value, int | float) and 1 <= value <= MAX_RATE else DEFAULT_RATE
