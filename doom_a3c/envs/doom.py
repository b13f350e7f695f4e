"""ViZDoom as a Gymnasium environment, on the raw `DoomGame`: truthful time-outs, small frames, survivable engines."""

from __future__ import annotations

import itertools
import struct
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import gymnasium
import numpy as np
import vizdoom
from gymnasium.utils import EzPickle

from doom_a3c.envs.engine import Engine, EngineError
from doom_a3c.envs.pixels import Frame, History, rgb
from doom_a3c.quiet import caught_stderr
from doom_a3c.scenarios import WAD_HEAD, DoomSpec, Observation, check_wad, located
from doom_a3c.settings import UserError, nearest

_check_lock = threading.Lock()  # stderr is the process's
ARCHIVES = (".pk3", ".ipk3", ".zip")
MAX_COMBINATIONS = 64  # beyond about this many actions a scenario should list those that make sense


def action_names(spec: DoomSpec, observation: Observation) -> list[str]:
    """Returns what each action of a game presses, such as 'MOVE_LEFT+ATTACK'."""
    game = vizdoom.DoomGame()
    configure(game, spec, observation)
    names = [button.name for button in game.get_available_buttons()]
    actions = button_actions(spec, game.get_available_buttons())
    return ["+".join(name for name, on in zip(names, action, strict=True) if on) or "NOTHING" for action in actions]


def button_actions(spec: DoomSpec, buttons: Sequence[vizdoom.Button]) -> list[list[int]]:
    """Returns the engine's button vectors, one per action of the agent.

    'single' presses one button at a time, 'combinations' any subset of them; both leave out buttons with a range
    (deltas). A list names the actions: each a button, or a list of buttons ([] does nothing).

    Raises:
        UserError: if the scenario has no usable button, too many combinations, or names an unknown one.
    """
    names = [button.name for button in buttons]
    binary = [name for name, button in zip(names, buttons, strict=True) if not vizdoom.is_delta_button(button)]
    if spec.buttons == "single":
        actions: list[Any] = [[name] for name in binary]
    elif spec.buttons == "combinations":
        if 2 ** len(binary) > MAX_COMBINATIONS:
            raise UserError(
                f"{len(binary)} buttons make {2 ** len(binary)} combinations, {MAX_COMBINATIONS} at most: "
                "set [game] buttons to 'single' or to a list of the useful actions"
            )
        actions = [list(subset) for size in range(len(binary) + 1) for subset in itertools.combinations(binary, size)]
    elif isinstance(spec.buttons, list | tuple) and all(isinstance(action, str | list | tuple) for action in spec.buttons):
        actions = [[action] if isinstance(action, str) else list(action) for action in spec.buttons]
    else:
        raise UserError(
            "[game] buttons must be 'single', 'combinations' or a list of actions, each a button or a list of buttons, "
            f"not {spec.buttons!r}"
        )
    if not actions:
        raise UserError("the scenario has no button to press: name some in available_buttons of its cfg")
    for name in itertools.chain.from_iterable(actions):
        if name not in names:
            raise UserError(f"[game] buttons: {name!r} is none of {', '.join(names)}{nearest(str(name), names)}")
    return [[int(name in action) for name in names] for action in actions]


def configure(game: vizdoom.DoomGame, spec: DoomSpec, observation: Observation) -> None:
    """Sets a game up from its cfg, its wad and the scenario's settings, for frames as the network wants them.

    Raises:
        UserError: if the cfg has a line that ViZDoom does not know, or a setting does not exist.
    """
    if spec.config and not game.load_config(str(located(spec.config))):
        raise UserError(f"{spec.config}: ViZDoom does not understand it")
    if spec.wad:
        game.set_doom_scenario_path(str(located(spec.wad)))
    if game.get_doom_game_path() and not Path(game.get_doom_game_path()).is_file():
        game.set_doom_game_path(str(shipped_game(game.get_doom_game_path())))
    if spec.map:
        game.set_doom_map(spec.map)
    for key, value in spec.settings.items():
        if not hasattr(game, f"set_{key}"):
            setters = [name[4:] for name in dir(game) if name.startswith("set_")]
            raise UserError(f"[game.settings]: ViZDoom has no setting {key!r}{nearest(key, setters)}")
        try:
            getattr(game, f"set_{key}")(value)
        except TypeError:
            raise UserError(f"[game.settings]: {value!r} does not fit {key}") from None
    for name in spec.variables:
        if not hasattr(vizdoom.GameVariable, name):
            variables = list(vizdoom.GameVariable.__members__)
            raise UserError(f"[game] variables: unknown variable {name!r}{nearest(name, variables)}")
    game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in spec.variables])
    set_screen(game, observation.resolution, observation.color)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_sound_enabled(False)


def shipped_game(wad: str) -> Path:
    """Returns where ViZDoom has a game of that file name, if it ships one (Freedoom)."""
    return Path(vizdoom.__file__).parent / Path(wad).name


def set_screen(game: vizdoom.DoomGame, resolution: str, color: bool) -> None:
    """Sets the engine's resolution, such as '160x120', and RGB or grey frames; raises UserError for an unknown one."""
    name = f"RES_{resolution.upper()}"
    if not hasattr(vizdoom.ScreenResolution, name):
        known = [key[4:].lower() for key in vizdoom.ScreenResolution.__members__]
        raise UserError(f"[observation] resolution: ViZDoom has no {resolution!r}; try {nearest(resolution, known)}")
    game.set_screen_resolution(getattr(vizdoom.ScreenResolution, name))
    game.set_screen_format(vizdoom.ScreenFormat.RGB24 if color else vizdoom.ScreenFormat.GRAY8)


def check(spec: DoomSpec, observation: Observation) -> list[list[int]]:
    """Returns the actions of a game after checking all that can be checked without starting an engine.

    What ViZDoom prints about a bad cfg becomes part of the error.

    Raises:
        UserError: for a mistake in the scenario or its files.
    """
    game = vizdoom.DoomGame()
    with _check_lock, caught_stderr() as caught:
        try:
            configure(game, spec, observation)
            mistake = None
        except UserError as error:
            mistake = error
    if mistake:
        detail = caught.text.strip().splitlines()
        raise UserError(f"{mistake}{': ' + detail[0] if detail else ''}")
    for wad in filter(None, (game.get_doom_scenario_path(), game.get_doom_game_path())):
        if not located(wad).is_file() and not shipped_game(wad).is_file():
            raise UserError(f"{spec.config} wants {wad}, and there is no such file")
    _check_map(game)
    return button_actions(spec, game.get_available_buttons())


def _check_map(game: vizdoom.DoomGame) -> None:
    """Raises UserError unless the scenario's wad, or the game's, has the map: the engine would look for it for ever."""
    wads = [game.get_doom_scenario_path(), game.get_doom_game_path() or str(shipped_game("freedoom2.wad"))]
    files = [located(wad) if located(wad).is_file() else shipped_game(wad) for wad in wads if wad]
    if not all(file.suffix.lower() in (".wad", *ARCHIVES) for file in files):
        return  # there are more kinds than are looked into here
    maps = []
    for file in files:  # the game's own wad is large, and hardly ever asked
        maps.append(maps_in(file))
        if game.get_doom_map().upper() in maps[-1]:
            break
    else:
        known = ", ".join(name.lower() for name in next(filter(None, maps), [])[:8])
        raise UserError(f"there is no map {game.get_doom_map()!r} in {files[0].name}, which has {known or 'none'}")


def maps_in(path: Path) -> list[str]:
    """Returns the names of the maps in a WAD file or an archive, such as MAP01 or E1M1.

    In an archive they are WAD files in the folder `maps`, or in other WAD files.

    Raises:
        UserError: if the file is damaged.
    """
    if path.suffix.lower() not in ARCHIVES:
        check_wad(path)
        with path.open("rb") as file:
            return _maps_in_wad(file)
    maps = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.lower().startswith("maps/"):
                    maps.append(Path(name).stem.upper())
                elif name.lower().endswith(".wad"):
                    with archive.open(name) as file:
                        maps += _maps_in_wad(file)
    except (OSError, zipfile.BadZipFile, struct.error) as error:
        raise UserError(f"{path} is no whole archive: {error}") from None
    return maps


def _maps_in_wad(file: IO[bytes]) -> list[str]:
    """Returns what stands before a lump that begins a map."""
    _, count, start = WAD_HEAD.unpack(file.read(WAD_HEAD.size))
    file.seek(start)
    directory = file.read(16 * count)
    entries = (directory[place + 8 : place + 16] for place in range(0, len(directory), 16))
    names = [entry.rstrip(b"\0").split(b"\0")[0].decode("ascii", "replace").upper() for entry in entries]
    return [name for name, following in itertools.pairwise(names) if following in ("THINGS", "TEXTMAP")]


class DoomEnv(gymnasium.Env[Any, Any], EzPickle):
    """One game of a ViZDoom scenario. Owns the engine, the newest frames and the seed stream of its episodes.

    Observations are uint8 pixels [H, W, C], or a dict of those as `pixels` and float32 `variables`. Rewards are the
    scenario's own, summed over the frames of a step and not scaled. A time-out is reported as `truncated`, a death or
    a reached goal as `terminated`. ViZDoom has no state after an episode's end, so the final observation is the last
    frame before it, at most `frame_skip` frames old.

    An engine that dies or hangs ends the episode as truncated, with `info["cut_short"]`; the next reset starts a new one.
    `info["faults"]` lists the kinds of such faults since the info before.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": DoomSpec.frames_per_second}  # noqa: RUF012  # Gymnasium's interface

    def __init__(self, game: DoomSpec, observation: Observation, render_mode: str | None = "rgb_array") -> None:
        """Checks the game; no engine is started yet.

        Raises:
            UserError: for a mistake in the scenario or its files.
        """
        EzPickle.__init__(self, game, observation, render_mode)
        self._game_spec, self._observation_spec = game, observation
        self.render_mode = render_mode
        self._engine: Engine | None = None
        self._screen: Frame = np.zeros((1, 1), np.uint8)
        self._history = History(observation)
        self._variables = np.zeros(len(game.variables), np.float32)
        self._scales = np.asarray(game.variable_scales or np.ones(len(self._variables)), np.float32)
        self._actions = check(game, observation)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        pixels = gymnasium.spaces.Box(0, 255, (*observation.size, observation.channels), np.uint8)
        variables = gymnasium.spaces.Box(-np.inf, np.inf, self._variables.shape, np.float32)
        self.observation_space = (
            gymnasium.spaces.Dict(pixels=pixels, variables=variables) if len(self._variables) else pixels
        )

    def prepare(self) -> None:
        """Starts the engine, so that the first reset need not.

        Raises:
            EngineError: if it does not start.
        """
        if self._engine is None:
            self._engine = Engine(lambda game: configure(game, self._game_spec, self._observation_spec))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; `info["seed"]` is the engine's seed, which together with the actions decides all of it.

        Raises:
            EngineError: if an engine that has just been started fails.
        """
        super().reset(seed=seed)
        info: dict[str, Any] = {"seed": int(self.np_random.integers(2**31))}
        if self._engine is not None:
            try:
                self._new_episode(self._engine, info["seed"])
            except EngineError as fault:
                self._drop_engine()
                info = {"seed": int(self.np_random.integers(2**31)), "faults": [fault.kind]}
        if self._engine is None:
            self.prepare()
            self._new_episode(cast(Engine, self._engine), info["seed"])
        self._history.clear()
        self._look()
        return self._observe(), info

    def _new_episode(self, engine: Engine, seed: int) -> None:
        engine.game.set_seed(seed)
        engine.ask(engine.game.new_episode)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Presses the buttons of `action` for `frame_skip` frames."""
        if self._engine is None:
            raise RuntimeError("step() needs a reset() first")
        game, buttons = self._engine.game, self._actions[int(action)]
        try:
            reward = self._engine.ask(lambda: game.make_action(buttons, self._game_spec.frame_skip))
            ended = game.is_episode_finished()
        except EngineError as fault:
            self._drop_engine()
            return self._observe(), 0.0, False, True, {"cut_short": True, "faults": [fault.kind]}
        truncated = ended and game.is_episode_timeout_reached() and not game.is_player_dead()
        if not ended:
            self._look()
        return self._observe(), float(reward), ended and not truncated, truncated, {}

    def _look(self) -> None:
        """Takes the engine's screen and variables."""
        assert self._engine is not None
        state = self._engine.game.get_state()
        self._screen = state.screen_buffer
        if state.game_variables is not None and len(self._variables):
            self._variables = state.game_variables.astype(np.float32) * self._scales
        self._history.add(self._screen)

    def _observe(self) -> Any:
        pixels = self._history.pixels()
        return {"pixels": pixels, "variables": self._variables} if len(self._variables) else pixels

    def render(self) -> Any:
        """Returns the engine's newest screen as RGB, [height, width, 3]."""
        return rgb(self._screen)

    def picture(self, final: bool) -> Any:
        """Returns the newest screen, None for the end of an episode: the engine has none of it."""
        return None if final else self.render()

    def _drop_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def close(self) -> None:
        """Ends the engine; may be called twice."""
        self._drop_engine()
