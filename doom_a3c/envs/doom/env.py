"""ViZDoom as a Gymnasium environment on the raw `DoomGame`: truthful time-outs, small frames, recovery from crashes."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.match import BOT_LOST, Match
from doom_a3c.envs.doom.setup import check, describe_game
from doom_a3c.envs.doom.start import start_engine
from doom_a3c.envs.doom.variables import GameVariables, Shaping
from doom_a3c.envs.pixels import History, Pixels, to_rgb
from doom_a3c.envs.processes.ends import EngineError
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.interface import CUT_SHORT, FAULTS, RIVALS, SHAPING
from doom_a3c.settings.interface import Observation as Arrays
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.shaping import parse_weights

STARTS = 10  # episodes in a row that may end before their first step
# ViZDoom 1.3 leaks 290 bytes per episode: 39 GB a week with 32 games of basic.
RENEWAL = 3000  # mean number of episodes per engine; the seeds decide when it is replaced


class DoomEnv(gymnasium.Env[Any, Any], EzPickle):
    """One game of a ViZDoom scenario. Owns the engine, the newest frames and the seed stream of its episodes.

    Observations are uint8 pixels [H, W, C], or a dict with these as `pixels` and float32 `variables`, [V]. Rewards are the
    scenario's own, summed over the frames of a step and not scaled. A time-out is reported as `truncated`, a death or
    a reached goal as `terminated`. ViZDoom has no state after an episode's end, so the final observation is the last
    frame before it, at most `frame_skip` frames old.

    An engine that dies or hangs ends the episode as truncated, with `info[CUT_SHORT]`; the next reset starts a new one.
    `info[FAULTS]` lists the kinds of such faults since the previous info, `info[SHAPING]` is the extra reward of a step
    for learning (`settings/interface.py`).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": DoomSpec.frames_per_second}  # noqa: RUF012  # Gymnasium's interface

    def __init__(self, game: DoomSpec, observation: Observation, render_mode: str | None = "rgb_array") -> None:
        """Checks the game; the engine starts later.

        Raises:
            UserError: for a mistake in the scenario or its files.
        """
        EzPickle.__init__(self, game, observation, render_mode)
        self._spec, self._view = game, observation
        self.render_mode = render_mode
        self._process: DoomProcess | None = None
        self._screen: Pixels = np.zeros((1, 1), np.uint8)
        self._history = History(observation)
        self._variables = np.zeros(len(game.variables), np.float32)
        self._numbers = GameVariables(game.variables, game.variable_scales)
        self._actions = check(game, observation)
        match = parse_match(game.match)
        self._match = Match(match) if match else None
        self._shaping = Shaping(parse_weights(game.shaping), respawns=match is not None)
        self.metadata = {
            **self.metadata,
            "title": describe_game(game, observation),
            "action_names": self._actions.flat_names,
        }
        self.action_space = self._actions.space
        pixels = gymnasium.spaces.Box(0, 255, (*observation.size, observation.channels), np.uint8)
        variables = gymnasium.spaces.Box(-np.inf, np.inf, self._variables.shape, np.float32)
        self.observation_space = (
            gymnasium.spaces.Dict(pixels=pixels, variables=variables) if len(self._variables) else pixels
        )

    def prepare(self) -> None:
        """Starts the engine before the first reset; does nothing for a match, whose engine needs the seed of the reset.

        Raises:
            EngineError: if it does not start.
        """
        if self._process is None and self._match is None:
            self._process = start_engine(self._spec, self._view)

    def _renew(self) -> None:
        """Replaces the engine; if the new one does not start, for lack of memory, say, the old one plays on."""
        with contextlib.suppress(EngineError, UserError):
            fresh = start_engine(self._spec, self._view)
            self._drop_process()
            self._process = fresh

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Starts an episode; `info["seed"]` is the engine's seed, which together with the actions determines the episode.

        Raises:
            EngineError: if a new engine fails.
            UserError: if the level ends every episode before its first step.
        """
        super().reset(seed=seed)
        info: dict[str, Any] = {"seed": int(self.np_random.integers(2**31))}
        if self._match is not None:  # the seed determines a match only in a new engine
            self._drop_process()
        elif self._process is not None and info["seed"] % RENEWAL == 0:
            self._renew()
        if self._process is not None:
            try:
                self._new_episode(self._process, info["seed"])
            except EngineError as fault:
                self._drop_process()
                info = {"seed": int(self.np_random.integers(2**31)), FAULTS: [fault.kind]}
        if self._process is None and self._match is not None:
            self._process = start_engine(self._spec, self._view, info["seed"])
            self._match.begin(self._process.game)
            self._shaping.begin(self._process.game)
        elif self._process is None:
            self.prepare()
            self._new_episode(cast(DoomProcess, self._process), info["seed"])
        if self._match is None:
            self._skip_ended(cast(DoomProcess, self._process), info)
        self._history.clear()
        self._read_state()
        return self._observe(), info

    def _new_episode(self, process: DoomProcess, seed: int) -> None:
        process.begin_episode(seed)
        self._shaping.begin(process.game)

    def _skip_ended(self, process: DoomProcess, info: dict[str, Any]) -> None:
        """Starts further episodes, with other seeds, until one is not over already: the level may kill or exit at once."""
        for _ in range(STARTS):
            if not process.game.is_episode_finished():
                return
            info["seed"] = int(self.np_random.integers(2**31))
            self._new_episode(process, info["seed"])
        start = process.game.get_episode_start_time()
        raise UserError(
            f"{self._spec.title}: {STARTS} episodes in a row ended before their first step, within {start} frames "
            "(episode_start_time)"
        )

    def step(self, action: Any) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """Presses the buttons of `action` for `frame_skip` frames; raises RuntimeError before the first reset."""
        if self._process is None:
            raise RuntimeError("step() needs a reset() first")
        game, buttons = self._process.game, self._actions.press(action)
        try:
            reward = self._process.ask(lambda: game.make_action(buttons, self._spec.frame_skip))
            ended, bonus = game.is_episode_finished(), self._shaping.compute_bonus(game)
        except EngineError as fault:
            self._drop_process()
            return self._observe(), 0.0, False, True, {CUT_SHORT: True, FAULTS: [fault.kind]}
        truncated = ended and game.is_episode_timeout_reached() and not game.is_player_dead()
        if not ended:
            self._read_state()
        info: dict[str, Any] = {SHAPING: bonus} if bonus else {}
        if self._match is not None:
            reward, truncated = self._match.count_frags(game), ended
            self._add_match_info(self._match, ended, info)
        return self._observe(), float(reward), ended and not truncated, truncated, info

    def _add_match_info(self, match: Match, ended: bool, info: dict[str, Any]) -> None:
        """Adds the result of a match to the info of its last step, and faults for lost bots to those of earlier steps."""
        game = cast(DoomProcess, self._process).game
        if ended:
            info[RIVALS] = list(match.read_rivals(game))
        elif lost := match.readd_lost(game):
            info[FAULTS] = [BOT_LOST] * lost

    def _read_state(self) -> None:
        assert self._process is not None
        state = self._process.game.get_state()
        self._screen = state.screen_buffer
        if state.game_variables is not None and len(self._variables):
            self._variables = self._numbers.convert(state.game_variables)
        self._history.add(self._screen)

    def _observe(self) -> Arrays:
        pixels = self._history.stack()
        return {"pixels": pixels, "variables": self._variables} if len(self._variables) else pixels

    def render(self) -> Pixels:
        """Returns the engine's newest screen as RGB, [height, width, 3]."""
        return to_rgb(self._screen)

    def picture(self, final: bool) -> Pixels | None:
        """Returns the newest screen, [height, width, 3]; None if `final`: the engine does not draw an episode's end."""
        return None if final else self.render()

    def _drop_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def close(self) -> None:
        self._drop_process()
