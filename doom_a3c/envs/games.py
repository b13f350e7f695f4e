"""The kinds of games there are, and where those of each kind are played."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium
from gymnasium.spaces import Space
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from doom_a3c.envs.doom.remote_recorder import RemoteVideoRecorder
from doom_a3c.envs.processes.supervisor import MakeEnv
from doom_a3c.envs.processes.vectors import LocalVectorEnv, ProcessVectorEnv
from doom_a3c.settings.errors import UserError
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
from doom_a3c.settings.scenarios import MAX_EPISODE_STEPS

if TYPE_CHECKING:
    from doom_a3c.envs.pixels import Pixels  # loads OpenCV, which the trainer can do without

DOOM_PROCESSES = 1  # for a worker's games, unless the settings say otherwise
MAX_RATE = 240  # frames a second
FILM, LARGE_FILM = "320x240", "640x480"  # what Doom's episodes are shown at


class VideoRecorder(Protocol):
    """Records the episodes of a single game in colour."""

    pictures_per_second: float

    @property
    def score(self) -> float | None:
        """The recorded episode's, where a game of its own is recorded: a recording of another course would show in it."""

    def reset(self, seed: int) -> list[Pixels]:
        """Starts recording an episode; returns its first picture, [height, width, 3]."""

    def step(self, action: Any, ended: bool) -> list[Pixels]:
        """Returns the pictures of a step."""

    def close(self) -> None:
        """Ends what it runs."""


class Facts(NamedTuple):
    """What all games of a kind have in common."""

    observations: Space[Any]  # of one game
    actions: Space[Any]
    title: str  # what is played and by which actions
    action_names: Sequence[str] | None  # None where they have none
    draws: bool = True  # whether there are pictures to make films of


class GameFactory(Protocol):
    """One kind of games."""

    steps_per_second: float  # in real time
    replayed: bool  # whether there is a replayer

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        """Returns games stepped together; `limited` ends episodes that could last forever.

        The vector has two more methods than Gymnasium's: `picture`, and `release`, which frees a thread that waits for it.
        With `rows` it may have a third, `history`, which gives the newest so many observations; those that `step` returns
        may then be views of them.
        """

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        """Returns one game in this process, for other programs' learners; its episodes end at last."""

    def describe(self) -> Facts:
        """Returns what the agent and people have to know of the games; the first call may start one."""

    def make_recorder(self, env: Any, *, large: bool = False) -> VideoRecorder:
        """Returns what records an `env` of one game, with `large` pictures where the game can draw such."""

    def make_replayer(self) -> VideoRecorder | None:
        """Returns what plays an episode again by `infos["seed"]` and its actions, one picture a step; None without such."""

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        """Begins to start what those `vectors` of training games need, where that takes long; returns at once."""

    def startup_status(self) -> str:
        """Returns how far starting ahead has come, such as 'starting 48 games: 12', '' where none are."""

    def check(self) -> None:
        """Waits for the first game that was started ahead; raises UserError if it does not start."""

    def close(self) -> None:
        """Closes what was started ahead and never asked for."""


def make_game_factory(game: GameSpec, observation: Observation, processes: int | None = None) -> GameFactory:
    """Returns the games of a kind; a vector of them has so many `processes`, 0 is this one, None what suits them.

    Raises:
        UserError: if they cannot be played, or not in such processes.
    """
    if processes is None:
        processes = DOOM_PROCESSES if isinstance(game, DoomSpec) else 0
    match game:
        case DoomSpec():
            return _DoomFactory(game, observation, processes)
        case AtariSpec() if processes:
            raise UserError("--game-processes has no effect on Atari games: their library plays them on threads of its own")
        case AtariSpec():
            return _AtariFactory(game, observation)
        case GymnasiumSpec():
            return _RegisteredFactory(game, observation, processes)


def make_doom(
    game: DoomSpec,
    observation: Observation,
    limited: bool,
    render_mode: str | None = "rgb_array",
    *,
    in_mirror: bool = False,
) -> gymnasium.Env[Any, Any]:
    """Returns one game of Doom."""
    from doom_a3c.envs.doom.env import DoomEnv  # loads ViZDoom, which only game servers need

    env = DoomEnv(game, observation, render_mode, in_mirror=in_mirror)
    return TimeLimit(env, MAX_EPISODE_STEPS) if limited else env


class _Factory:
    """What kinds of games have in common: nothing is started ahead, nor played again."""

    steps_per_second: float
    replayed = False

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        raise NotImplementedError

    def describe(self) -> Facts:
        env = self.make_vector(1, limited=True)
        env.close()
        return _describe_game(env)

    def make_replayer(self) -> VideoRecorder | None:
        return None

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        pass

    def startup_status(self) -> str:
        return ""

    def check(self) -> None:
        pass

    def close(self) -> None:
        pass


def _describe_game(env: VectorEnv[Any, Any, Any], draws: bool = True) -> Facts:
    spaces, metadata = (env.single_observation_space, env.single_action_space), env.metadata
    return Facts(*spaces, metadata["title"], metadata.get("action_names"), draws)


class _DoomFactory(_Factory):
    """ViZDoom games. Owns the vectors that are being started ahead."""

    replayed = True

    def __init__(self, game: DoomSpec, observation: Observation, processes: int) -> None:
        self._game, self._observation, self._processes = game, observation, processes
        self.steps_per_second = DoomSpec.frames_per_second / game.frame_skip
        self._tried = False
        self._ahead: list[Future[ProcessVectorEnv]] = []
        self._ahead_size = (0, 0)  # games and rows of each

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        if self._ahead and not limited and self._ahead_size == (games, rows):
            return self._ahead.pop(0).result()
        if self._processes == 0:
            self._try()
        return _make_vector(self._list_makers(games, limited), self._processes, rows)

    def _list_makers(self, games: int, limited: bool) -> list[MakeEnv]:
        """Returns what makes each of some games; in training some may be mirrored, never the first, which is recorded."""
        make = partial(make_doom, self._game, self._observation, limited)
        mirrors = self._game.mirror and not limited
        return [partial(make, in_mirror=mirrors and index % 2 == 1) for index in range(games)]

    def _try(self) -> None:
        """Starts the game once in a process of its own: a level that crashes the engine would crash this one too."""
        level = locate(self._game.wad or self._game.iwad or FREEDOOM)
        if not self._tried and level.parent not in (shipped_folder(), shipped_folder().parent):
            with closing(_make_in_processes(self._list_makers(1, limited=False), 1, 1, prepare=True)) as env:
                env.wait_for_one()
        self._tried = True

    def describe(self) -> Facts:
        return _describe_game(self._ahead[0].result()) if self._ahead else super().describe()

    def start_early(self, vectors: int, games: int, rows: int) -> None:
        if self._processes == 0:
            return
        makers = self._list_makers(games, limited=False)
        self._ahead, self._ahead_size = [Future() for _ in range(vectors)], (games, rows)

        def start(futures: list[Future[ProcessVectorEnv]]) -> None:
            for future in futures:
                try:
                    future.set_result(_make_in_processes(makers, self._processes, rows, prepare=True))
                except BaseException as error:
                    future.set_exception(error)

        threading.Thread(target=start, args=(list(self._ahead),), name="games-ahead", daemon=True).start()

    def startup_status(self) -> str:
        ahead = [future for future in self._ahead if not (future.done() and future.exception())]
        prepared = sum(future.result().prepared for future in ahead if future.done())
        total = len(ahead) * self._ahead_size[0]
        return f"starting {total:,} games: {prepared:,}" if prepared < total else ""

    def check(self) -> None:
        if self._ahead:
            self._ahead[0].result().wait_for_one()

    def close(self) -> None:
        for future in self._ahead:
            future.add_done_callback(
                _close_vector
            )  # at once, where it is done: nobody waits for games that hang as they start
        self._ahead = []

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        self._try()
        return make_doom(self._game, self._observation, True, render_mode)

    def make_recorder(self, env: Any, *, large: bool = False) -> VideoRecorder:
        return RemoteVideoRecorder(self._game, self._observation, LARGE_FILM if large else FILM)

    def make_replayer(self) -> VideoRecorder | None:
        return RemoteVideoRecorder(self._game, self._observation, self._observation.resolution, every_frame=False)


def _frame_rate(told: Any) -> float:
    """Returns the frames a second that an environment says it has, 30 where that is nothing to go by."""
    return float(told) if isinstance(told, int | float) and 1 <= told <= MAX_RATE else 30.0


def _close_vector(future: Future[ProcessVectorEnv]) -> None:
    if future.exception() is None:  # else it has been told by whoever asked for the games
        future.result().close()


def _make_vector(makers: Sequence[MakeEnv], processes: int, rows: int) -> VectorEnv[Any, Any, Any]:
    return _make_in_processes(makers, processes, rows) if processes else LocalVectorEnv(makers)


def _make_in_processes(makers: Sequence[MakeEnv], processes: int, rows: int, prepare: bool = False) -> ProcessVectorEnv:
    return ProcessVectorEnv(makers, processes, rows=rows, copy=rows == 1, prepare=prepare)


class _AtariFactory(_Factory):
    """Atari games."""

    replayed = True

    def __init__(self, game: AtariSpec, observation: Observation) -> None:
        self._game, self._observation = game, observation
        self.steps_per_second = AtariSpec.frames_per_second / game.frame_skip

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.atari import AtariGames  # loads the emulator

        return AtariGames(self._game, self._observation, games)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        from doom_a3c.envs.single import SingleEnv

        return SingleEnv(self.make_vector(1, limited=True), render_mode)

    def make_recorder(self, env: Any, *, large: bool = False) -> VideoRecorder:
        from doom_a3c.envs.atari import AtariVideoRecorder  # loads the emulator

        return AtariVideoRecorder(self._game)

    def make_replayer(self) -> VideoRecorder | None:
        from doom_a3c.envs.atari import AtariVideoRecorder  # as above

        return AtariVideoRecorder(self._game, large=False)


class _RegisteredFactory(_Factory):
    """Any other Gymnasium environment."""

    def __init__(self, game: GymnasiumSpec, observation: Observation, processes: int) -> None:
        self._game, self._observation, self._processes = game, observation, processes
        with closing(self.make_vector(1, limited=True)) as env:
            self.steps_per_second = _frame_rate(env.metadata.get("render_fps")) / game.frame_skip
            env.reset(seed=0)
            draws = env.picture() is not None  # type: ignore[attr-defined]  # of this package's vectors
            self._known = _describe_game(env, draws=draws)

    def describe(self) -> Facts:
        return self._known

    def make_vector(self, games: int, *, limited: bool, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        from doom_a3c.envs.registered import make  # loads OpenCV and changes how Gymnasium warns

        return _make_vector([partial(make, self._game, self._observation)] * games, self._processes, rows)

    def make_single(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        from doom_a3c.envs.registered import make  # as above

        return make(self._game, self._observation)

    def make_recorder(self, env: Any, *, large: bool = False) -> VideoRecorder:
        from doom_a3c.envs.registered import OwnVideoRecorder  # loads OpenCV, too

        return OwnVideoRecorder(env, self.steps_per_second)
