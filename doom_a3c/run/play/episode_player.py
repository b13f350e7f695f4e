"""Plays single episodes of a trained agent, for recordings and a window."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.opponents import PolicyOpponent
from doom_a3c.agent.player import Episode, Player, Step
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.saliency import Saliency
from doom_a3c.envs.factory import VideoRecorder
from doom_a3c.envs.processes.client import ProcessError
from doom_a3c.record.films.films import VideoWriter
from doom_a3c.record.films.gif_writer import Picture
from doom_a3c.record.films.overlay import Overlay, place_beside
from doom_a3c.run.builder import Builder
from doom_a3c.run.step_view import StepViewer
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.interface import map_nested
from doom_a3c.settings.streams import Stream, make_seed


class GameWindow(Protocol):
    """A window that shows the game."""

    def show(self, picture: Picture, pictures_per_second: float) -> None:
        """Shows a picture, [height, width, 3], for as long as it lasts."""

    def close(self) -> None:
        """Closes the window."""


class PlayedEpisode(NamedTuple):
    """A finished episode, step by step."""

    seed: int
    episode: Episode
    actions: Sequence[NDArray[Any]]
    rewards: Sequence[float]  # the game's own
    bonuses: Sequence[float]  # the shaping rewards that training would add
    values: Sequence[float]  # V(s) before each step, scaled
    terminated: bool  # False after a time-out
    lives_lost: Sequence[int] = ()  # the steps that lost a life, if training counts that as a termination


class _StepLog:
    """Collects the steps of an episode."""

    def __init__(self) -> None:
        self.actions: list[NDArray[Any]] = []
        self.rewards: list[float] = []
        self.bonuses: list[float] = []
        self.values: list[float] = []
        self.lives_lost: list[int] = []

    def add(self, step: Step) -> None:
        """Adds a step of one game."""
        if step.life_lost[0]:
            self.lives_lost.append(len(self.actions))
        self.actions.append(step.actions[0])
        self.rewards.append(float(step.rewards[0]))
        self.bonuses.append(float(step.bonuses[0]))
        self.values.append(float(step.decision.values[0]))

    def finish(self, seed: int, episode: Episode, terminated: bool) -> PlayedEpisode:
        """Returns the finished episode."""
        steps = self.actions, self.rewards, self.bonuses, self.values
        return PlayedEpisode(seed, episode, *steps, terminated, self.lives_lost)


class Annotator:
    """Draws an agent's input, action probabilities and value beside the pictures of its game."""

    def __init__(self, builder: Builder, network: ACNetwork, salience: bool) -> None:
        """With `salience` it also draws saliency maps, if the network sees pixels."""
        self._viewer, self._overlay = StepViewer(builder), Overlay(builder.actions)
        self._saliency = Saliency(network) if salience and network.inputs.pixels else None

    def begin(self) -> None:
        """Begins an episode."""
        self._viewer.begin()

    def annotate(self, pictures: Sequence[Picture], step: Step, core_state: CoreState) -> list[Picture]:
        """Draws a panel beside the pictures of one game's step; `core_state` is from before the step."""
        maps = self._saliency(step.observations, step.resets, core_state) if self._saliency else None
        observation = map_nested(lambda array: array[0], step.observations)
        logits, value = step.decision.logits[0], step.decision.values[0]
        view = self._viewer.view(observation, logits, value, step.actions[0], step.rewards[0], maps)
        panel = self._overlay.panel(view)
        return [place_beside(picture, panel) for picture in pictures]


class EpisodePlayer:
    """Plays single episodes, recording them on request. Owns a game and its recorder; a context that closes both."""

    def __init__(
        self,
        builder: Builder,
        network: ACNetwork,
        *,
        greedy: bool,
        epsilon: float,
        record: bool = False,
        overlay: str | None = None,
        screen: GameWindow | None = None,
        opponent: ACNetwork | None = None,
    ) -> None:
        """`record` allows recordings; a `screen` shows every episode; an `opponent` plays the others in a match.

        The `overlay` 'plain' draws the network's input and outputs beside the game; 'saliency' adds saliency maps.
        """
        self._policy, self._greedy, self._epsilon = Policy(network), greedy, np.array([epsilon], np.float32)
        self.interrupted = False  # ends the current episode with its next step
        self.waiting = False  # for the game
        random = np.random.default_rng(make_seed(0, Stream.PLAY, 1))  # not the agent's stream in the episode of seed 0
        self._env = builder.make_evaluation_env(
            1, lambda players: PolicyOpponent(Policy(opponent or network), players, random)
        )
        self._recorder = builder.make_recorder(self._env, large=overlay is not None) if record or screen else None
        self._annotator = Annotator(builder, network, overlay == "saliency") if overlay else None
        self._screen = screen

    def __enter__(self) -> EpisodePlayer:
        return self

    def __exit__(self, *error: object) -> None:
        self._env.close()
        for view in (self._recorder, self._screen):
            if view:
                view.close()

    def play_episode(
        self, seed: int, film: Path | None = None, on_step: Callable[[int], None] = lambda steps: None
    ) -> PlayedEpisode:
        """Plays one episode; with a `film`, records it as this mp4 file.

        `on_step` is called after each step with the number of steps so far.

        Raises:
            KeyboardInterrupt: after an interrupt, even if it made the game fail.
            UserError: if the game fails.
        """
        try:
            return self._play_recorded(seed, film, on_step)
        except Exception:
            if self.interrupted:
                raise KeyboardInterrupt from None
            raise

    def _play_recorded(self, seed: int, film: Path | None, on_step: Callable[[int], None]) -> PlayedEpisode:
        recorder = self._recorder if film or self._screen else None
        if recorder is None:
            return self._play(seed, None, lambda picture: None, on_step)
        video = VideoWriter(film, recorder.pictures_per_second) if film else None

        def show(picture: Picture) -> None:
            if self._screen:
                self._screen.show(picture, recorder.pictures_per_second)
            if video:
                video.add(picture)

        with video or contextlib.nullcontext():
            try:
                return self._play(seed, recorder, show, on_step)
            except ProcessError as error:
                raise UserError(f"the game failed while it was recorded ({error}); run play.py again") from None

    @contextlib.contextmanager
    def await_game(self) -> Iterator[None]:
        """Marks a block that waits for the game: there an interrupt may raise, but not in TensorFlow's code."""
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False

    def _play(
        self,
        seed: int,
        recorder: VideoRecorder | None,
        show: Callable[[Picture], None],
        on_step: Callable[[int], None],
    ) -> PlayedEpisode:
        random = np.random.default_rng(make_seed(seed, Stream.PLAY))  # independent of earlier episodes
        with self.await_game():
            player = Player(self._env, self._policy, random, np.array([seed]))
        if player.cut_short[0]:
            raise UserError(f"the game failed as it began ({', '.join(player.faults)}); run play.py again")
        pictures: list[Picture] = []
        if recorder:
            with self.await_game():
                pictures = recorder.reset(int(player.infos["seed"][0]) if "seed" in player.infos else seed)
        if self._annotator:
            self._annotator.begin()
        log, episode = _StepLog(), None
        while episode is None:
            if self.interrupted:
                raise KeyboardInterrupt
            core_state = player.core_state
            with self.await_game():
                step = player.step(self._epsilon, self._greedy)
            if step.cut_short[0]:
                raise UserError(f"the game failed while it was played ({', '.join(step.faults)}); run play.py again")
            log.add(step)
            on_step(len(log.actions))
            (episode,) = step.episodes or (None,)
            if recorder:  # the first picture belongs to the first decision
                with self.await_game():
                    pictures += recorder.step(step.actions[0], episode is not None)
                for picture in self._annotator.annotate(pictures, step, core_state) if self._annotator else pictures:
                    show(picture)
                pictures = []
        if recorder:
            _compare_scores(recorder, episode, seed)
        return log.finish(seed, episode, bool(step.terminated[0]))


def _compare_scores(recorder: VideoRecorder, episode: Episode, seed: int) -> None:
    """Warns if a recorder with its own game has recorded another episode."""
    if recorder.score is not None and abs(recorder.score - episode.score) > 1e-3:
        print(f"warning: the recording of seed {seed} has another score, {recorder.score:.1f}", file=sys.stderr)
