"""Plays a trained agent's episodes and writes films, scores and a page about them to a folder."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.record.files import Attempts, write_json, write_table, write_whole
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.standings import Standing
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.evaluator import Scores, summarize
from doom_a3c.run.opposition import load_opponent
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.episode_player import EpisodePlayer, GameWindow, PlayedEpisode
from doom_a3c.run.play.page import Results, render_page
from doom_a3c.run.play.random_play import play_random_episodes
from doom_a3c.run.play.recordings import Film, Recordings
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.playing import PlaySettings


def make_opponent(agent: TrainedAgent, model: str | None) -> ACNetwork | None:
    """Returns the network that plays the others in an agent's matches; None is the agent's own.

    Raises:
        UserError: if there is no such model, it does not fit, or the agent plays no match of several agents.
    """
    if model is None:
        return None
    game = agent.record.scenario.name
    require(agent.builder.agents > 1, f"--opponent: {game} has one agent: [game.match] agents = 2 makes a match of two")
    network = agent.builder.make_network("opponent", 0)
    network.load(load_opponent("--opponent", model, agent.record, agent.builder))
    return network


class Playback:
    """Plays an agent's episodes and writes the results. Owns the player; a context that closes it.

    `run` plays and writes; iterating over it only plays.
    """

    def __init__(
        self,
        agent: TrainedAgent,
        settings: PlaySettings,
        folder: Path | None,
        screen: GameWindow | None = None,
        on_step: Callable[[int, int], None] = lambda index, steps: None,
    ) -> None:
        """Recordings and scores go to `folder`, which must be empty, and pictures to `screen`; either may be None.

        `on_step` is called after each step, with the index of its episode and the steps of that episode so far.
        """
        config = agent.record.config
        policy = settings.policy or agent.better_policy
        usual = config.evaluation_epsilon if policy == "greedy" else 0.0
        self._agent, self._folder, self._on_step = agent, folder, on_step
        self.settings = replace(
            settings,
            policy=policy,
            epsilon=usual if settings.epsilon is None else settings.epsilon,
            record_episodes=settings.record_episodes if folder else 0,
        )
        self.statistics: Scores | None = None  # of the written episodes
        self.shortfall = ""  # see `Results`
        self.standing: Standing | None = None  # likewise
        self.films: list[Film] = []  # on the page
        self._played: list[PlayedEpisode] = []
        self._attempts = Attempts()
        recorded = self.settings.record_episodes
        self._recordings = Recordings(folder, recorded) if folder and recorded != 0 else None
        self._player = EpisodePlayer(
            agent.builder,
            agent.network,
            greedy=policy == "greedy",
            epsilon=self.settings.epsilon or 0.0,
            record=self._recordings is not None,
            overlay=settings.overlay,
            screen=screen,
            opponent=make_opponent(agent, settings.opponent),
        )

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        self._player.__exit__(*error)

    def __iter__(self) -> Iterator[PlayedEpisode]:
        """Plays the episodes, one after the other; raises as `EpisodePlayer.play_episode` does."""
        for index in range(self.settings.episodes):
            self._played.append(self._play(index, record=self._recordings is not None and self._recordings.wants(index)))
            yield self._played[-1]

    def _play(self, index: int, *, record: bool) -> PlayedEpisode:
        """Plays an episode, recording it on request."""
        seed, on_step = self.settings.seed + index, functools.partial(self._on_step, index)
        if not (record and self._recordings):
            return self._player.play_episode(seed, None, on_step)
        path = self._recordings.make_path(index)
        try:
            played = self._player.play_episode(seed, path, on_step)
        except BaseException as error:
            self._recordings.discard(index)  # it has no end
            if not (isinstance(error, OSError) and error.filename == str(path)):
                raise
            self._attempts.keep(error)
            self._recordings.is_full = True
            return self._player.play_episode(seed, None, on_step)
        self._recordings.add(index)
        return played

    def run(self, command: str, on_episode: Callable[[int, PlayedEpisode], None] = lambda index, played: None) -> Results:
        """Plays the episodes and the random baseline, and writes the results to the folder, if there is one.

        Finished episodes are written however the call ends; on a full disk scores come first and films last. `command` is
        shown on the page; `on_episode` is called after each episode.

        Raises:
            KeyboardInterrupt: after an interrupt.
            UserError: if the game fails.
            OSError: if something could not be written; raised after everything else has been.
        """
        random: list[float] = []
        try:
            for index, played in enumerate(self):
                on_episode(index, played)
            self._record_missing()
            random = self._play_random() if self._folder else []
        finally:
            results = self._collect_results(random)
            if self._folder and results.played:
                self._write(results, command)
        if self.interrupted:
            raise KeyboardInterrupt
        return results

    def _record_missing(self) -> None:
        """Plays the best, the median and the worst episode again if they were not recorded."""
        if self._recordings is None:
            return
        for index in self._recordings.find_missing(self._scores):
            score = self._play(index, record=True).episode.score
            if score != self._scores[index]:  # a game that its seed does not determine
                self._recordings.discard(index)
                why = f"played again from its seed it scores {format_score(score)}, not {format_score(self._scores[index])}"
                warnings.warn(f"no film of episode {index}: {why}", RuntimeWarning, stacklevel=3)

    @property
    def has_played(self) -> bool:
        """Whether an episode has ended."""
        return bool(self._played)

    @property
    def _scores(self) -> dict[int, float]:
        """The scores by episode."""
        return {index: played.episode.score for index, played in enumerate(self._played)}

    @property
    def waiting(self) -> bool:
        """Whether the player waits for a game, which may hang; writing files must not be interrupted."""
        return self._player.waiting

    @property
    def interrupted(self) -> bool:
        """Whether the current episode ends with its next step."""
        return self._player.interrupted

    def interrupt(self) -> None:
        """Ends the current episode with its next step, as KeyboardInterrupt; a signal handler may call it."""
        self._player.interrupted = True

    def _collect_results(self, random: Sequence[float] = ()) -> Results:
        """Returns the results so far, with the scores of random play."""
        record, settings, builder = self._agent.record, self.settings, self._agent.builder
        actions = [action for each in self._played for action in each.actions]
        return Results(
            model=self._agent.source,
            run=record.name,
            scenario=record.scenario.name,
            policy=settings.policy or "",
            epsilon=settings.epsilon or 0.0,
            actions=builder.actions,
            taken=builder.distribution.encode(np.stack(actions)).mean(axis=0).tolist() if actions else [],
            played=self._played,
            random=random,
            asked=settings.episodes,
            folder=self._folder,
        )

    def _play_random(self) -> list[float]:
        """Returns the scores of the random baseline."""
        settings = self.settings
        if not settings.random_episodes:
            return []
        try:
            with self._player.await_game():
                return play_random_episodes(self._agent.builder, settings.random_episodes, settings.seed)
        except UserError as error:  # the agent's own episodes stay valid
            warnings.warn(f"no random baseline: {error}", RuntimeWarning, stacklevel=2)
            return []

    def _write(self, results: Results, command: str) -> None:
        """Writes scores, summary, page and films of the finished episodes; on a full disk, only what fits.

        Raises:
            OSError: if one of them cannot be written; raised after the others have been.
        """
        assert self._folder
        self.statistics, self.shortfall, self.standing = summarize(results.scores), results.shortfall, results.standing
        attempts, films = self._attempts, self._recordings
        if films:
            films.choose(self._scores)
        try:
            self._write_scores(results)
        except OSError as error:
            if lost := films.discard_all() if films else []:  # films give way to scores
                error.filename = str(lost[0])
            attempts.keep(error)
            with attempts.make():
                self._write_scores(results)
        with attempts.make():
            figure = figures.draw_distributions(f"{results.scenario}: scores", results.groups)
            figures.save_png(figure, self._folder / "scores.png")
        if films:
            self.films = films.cut(attempts)
        self._write_page(results, command)
        if films and films.list_names():
            extents = films.make_gifs(attempts, lambda: self.interrupted)
            self.films = [film._replace(gif=extents.get(film.episode, "")) for film in self.films]
            with attempts.make():
                self._write_scores(results)  # with the names of the gifs
        attempts.check()

    def _write_scores(self, results: Results) -> None:
        assert self._folder
        write_table(self._folder / "scores.csv", *results.list_rows())
        recordings = self._recordings.list_names() if self._recordings else []
        write_json(self._folder / "summary.json", _make_summary(results, summarize(results.scores), recordings))

    def _write_page(self, results: Results, command: str) -> None:
        """Writes the page, without films if it has no room for them."""
        assert self._folder
        for films in (self.films, []):
            page = render_page(results, films, command, self._agent.record)
            try:
                return write_whole(self._folder / "index.html", page.encode())
            except OSError as error:
                error.filename = f"{error.filename} with films" if films else error.filename
                self._attempts.keep(error)
            self.films = [film._replace(on_page=False) for film in self.films]


def _make_summary(results: Results, seen: Scores, recordings: Sequence[str]) -> dict[str, Any]:
    return {
        "model": results.model,
        "scenario": results.scenario,
        "policy": results.policy,
        "epsilon": results.epsilon,
        "seed": results.played[0].seed,
        **seen._asdict(),
        "asked": results.asked,
        "lengths": [each.episode.length for each in results.played],
        "scores": results.scores,
        "random_scores": list(results.random),
        "recordings": recordings,
        **({"standing": results.standing._asdict()} if results.standing else {}),
    }
