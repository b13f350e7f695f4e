"""Plays a trained agent's episodes and writes films, scores and a page about them to a folder."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from doom_a3c.record.files import check_no_folders, not_ours, write_json, write_table, write_whole
from doom_a3c.record.films.films import join_films
from doom_a3c.record.metrics import figures
from doom_a3c.run.evaluator import Scores, summarize
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.episode_player import EpisodePlayer, GameWindow, PlayedEpisode
from doom_a3c.run.play.page import Results, render_page
from doom_a3c.run.play.random_play import play_random_episodes
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.playing import PlaySettings

JOINED = "episodes.mp4"  # all episodes as one film
_RESULTS = ("index.html", "scores.csv", "scores.png", "summary.json")
_GENERATOR = b'<meta name="generator" content="doom_a3c">'
_RECORDING = re.compile(r"episode(s|_\d{3,})\.(gif|mp4)")


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
        """Recordings and scores go to `folder`, if any, and pictures to `screen`.

        `on_step` is called after each step, with the index of its episode and the steps of that episode so far.

        Raises:
            UserError: if the folder has a page of another program, or folders with the names of results.
        """
        if folder:
            _check_outputs(folder)
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
        self.removed = 0  # recordings of an earlier call that were deleted
        self._played: list[PlayedEpisode] = []
        self._player = EpisodePlayer(
            agent.builder,
            agent.network,
            greedy=policy == "greedy",
            epsilon=self.settings.epsilon or 0.0,
            record=self.settings.record_episodes > 0,
            overlay=settings.overlay,
            screen=screen,
        )

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        self._player.__exit__(*error)

    def __iter__(self) -> Iterator[PlayedEpisode]:
        """Plays the episodes, one after the other; raises as `EpisodePlayer.play_episode` does."""
        for index in range(self.settings.episodes):
            self._remove_films(index)
            on_step = functools.partial(self._on_step, index)
            self._played.append(self._player.play_episode(self.settings.seed + index, self._choose_stem(index), on_step))
            yield self._played[-1]

    def run(self, command: str, on_episode: Callable[[int, PlayedEpisode], None] = lambda index, played: None) -> Results:
        """Plays the episodes and the random baseline, and writes the results to the folder, if there is one.

        Finished episodes are written however the call ends. `command` is shown on the page; `on_episode` is called after
        each episode.

        Raises:
            KeyboardInterrupt: after an interrupt.
            UserError: if the game fails.
            OSError: if something cannot be written.
        """
        random: list[float] = []
        try:
            for index, played in enumerate(self):
                on_episode(index, played)
            random = self._play_random() if self._folder else []
            if self.interrupted:
                raise KeyboardInterrupt
        finally:
            results = self._collect_results(random)
            if self._folder and results.played:
                self._write(results, command)
        return results

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

    def _choose_stem(self, index: int) -> Path | None:
        """Returns the path of an episode's recordings without its suffix; None if it is not recorded."""
        return self._folder / f"episode_{index:03d}" if self._folder and index < self.settings.record_episodes else None

    def _collect_results(self, random: Sequence[float] = ()) -> Results:
        """Returns the results so far, with the scores of random play."""
        record, settings = self._agent.record, self.settings
        return Results(
            model=self._agent.source,
            run=record.name,
            scenario=record.scenario.name,
            policy=settings.policy or "",
            epsilon=settings.epsilon or 0.0,
            actions=self._agent.builder.actions,
            played=self._played,
            random=random,
            asked=settings.episodes,
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
        """Writes films, scores, summary and page of the finished episodes.

        Raises:
            OSError: if it cannot be written.
        """
        assert self._folder
        if len(self._played) < self.settings.episodes:
            self._remove_films(len(self._played))  # of an episode that has not been finished
        films = {index: film for index in range(len(self._played)) if (film := self._find_film(index))}
        together = self._folder / JOINED
        if len(films) > 1:
            join_films(list(films.values()), together)
        recorded = [path for film in films.values() for path in (film.with_suffix(".gif"), film)]
        recordings = [path.name for path in [*recorded, *[together] * (len(films) > 1)]]
        self.removed = _remove_older(self._folder, recordings)
        seen = summarize(results.scores)
        rows = ((i, each.seed, each.episode.score, each.episode.length) for i, each in enumerate(results.played))
        write_table(self._folder / "scores.csv", ("episode", "seed", "score", "steps"), rows)
        write_json(self._folder / "summary.json", _make_summary(results, seen, recordings))
        figure = figures.draw_distributions(f"{results.scenario}: scores", results.groups)
        figures.save_png(figure, self._folder / "scores.png")
        write_whole(self._folder / "index.html", render_page(results, films, command, self._agent.record).encode())
        self.statistics, self.shortfall = seen, results.shortfall

    def _remove_films(self, index: int) -> None:
        """Deletes old films of an episode, which could be mistaken for new ones."""
        if stem := self._choose_stem(index):
            for kind in ("mp4", "gif"):
                stem.with_suffix(f".{kind}").unlink(missing_ok=True)

    def _find_film(self, index: int) -> Path | None:
        """Returns the film of a finished episode, None if there is none."""
        stem = self._choose_stem(index)
        film = stem.with_suffix(".mp4") if stem else None
        return film if film and self._agent.builder.can_render and film.exists() else None


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
    }


def _check_outputs(folder: Path) -> None:
    """Raises UserError if a page of another program would be overwritten, or a folder is in the place of a result."""
    check_no_folders(path for path in folder.iterdir() if path.name in _RESULTS or _RECORDING.fullmatch(path.name))
    page = folder / "index.html"
    with contextlib.suppress(OSError), page.open("rb") as file:  # missing
        if _GENERATOR not in file.read(4096):  # the films come later
            raise not_ours(page)


def _remove_older(folder: Path, kept: Sequence[str]) -> int:
    """Deletes the recordings that the summary of an earlier call lists; returns their number."""
    try:
        older = list(json.loads((folder / "summary.json").read_text())["recordings"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # missing, or of another program
        return 0
    removed = [name for name in older if _RECORDING.fullmatch(str(name)) and name not in kept and (folder / name).exists()]
    for name in removed:
        (folder / name).unlink(missing_ok=True)
    return len(removed)
