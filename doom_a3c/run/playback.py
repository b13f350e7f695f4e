"""Playing a trained agent's episodes into a folder: films, scores, and the page that shows them."""

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

from doom_a3c.record import figures
from doom_a3c.record.files import not_ours, write_json, write_table, write_whole
from doom_a3c.record.films import join_films
from doom_a3c.run.agent import Agent
from doom_a3c.run.episode_player import EpisodePlayer, Played, Screen
from doom_a3c.run.evaluator import Scores, summarize
from doom_a3c.run.page import Results, page
from doom_a3c.run.random_play import random_scores
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.playing import PlaySettings

JOINED = "episodes.mp4"  # all episodes as one film
_GENERATOR = b'<meta name="generator" content="doom_a3c">'
_RECORDING = re.compile(r"episode(s|_\d{3,})\.(gif|mp4)")


class Playback:
    """Plays an agent's episodes and writes what they were. Owns the player; a context that closes it.

    `run` does all of it; iterate over it to have nothing but the episodes played.
    """

    def __init__(
        self,
        agent: Agent,
        settings: PlaySettings,
        folder: Path | None,
        screen: Screen | None = None,
        stepped: Callable[[int, int], None] = lambda index, steps: None,
    ) -> None:
        """Recordings and scores go to `folder`, where there is one, and pictures to `screen`.

        `stepped` is called after each step, with the index of its episode and the number of steps that this has had.

        Raises:
            UserError: if the folder has a page of somebody else's.
        """
        if folder:
            _check_page(folder / "index.html")
        config = agent.record.config
        policy = settings.policy or agent.better_policy
        usual = config.evaluation_epsilon if policy == "greedy" else 0.0
        self._agent, self._folder, self._stepped = agent, folder, stepped
        self.settings = replace(
            settings,
            policy=policy,
            epsilon=usual if settings.epsilon is None else settings.epsilon,
            record=settings.record if folder else 0,
        )
        self.statistics: Scores | None = None  # of what has been written
        self.shortfall = ""  # of that, see `Results`
        self.removed = 0  # recordings of an earlier call, which that has removed
        self._played: list[Played] = []
        self._player = EpisodePlayer(
            agent.builder,
            agent.network,
            greedy=policy == "greedy",
            epsilon=self.settings.epsilon or 0.0,
            record=self.settings.record > 0,
            overlay=settings.overlay,
            screen=screen,
        )

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *error: object) -> None:
        self._player.__exit__(*error)

    def __iter__(self) -> Iterator[Played]:
        """Plays the episodes, one after the other; raises as `EpisodePlayer.episode` does."""
        for index in range(self.settings.episodes):
            self._remove_films(index)
            stepped = functools.partial(self._stepped, index)
            self._played.append(self._player.episode(self.settings.seed + index, self._stem(index), stepped))
            yield self._played[-1]

    def run(self, command: str, told: Callable[[int, Played], None] = lambda index, played: None) -> Results:
        """Plays the episodes, and at random; writes what there is of them to the folder, if there is one.

        However that ends, what has been played by then is written. `command` is what has asked for it; `told` is called
        after each episode.

        Raises:
            KeyboardInterrupt: where it has been interrupted.
            UserError: if the game fails.
            OSError: if something cannot be written.
        """
        random: list[float] = []
        try:
            for index, played in enumerate(self):
                told(index, played)
            random = self._random() if self._folder else []
            if self.interrupted:
                raise KeyboardInterrupt
        finally:
            results = self._results(random)
            if self._folder and results.played:
                self._write(results, command)
        return results

    @property
    def waiting(self) -> bool:
        """Whether a game is waited for, which may not answer: what is written meanwhile is not to be cut off."""
        return self._player.waiting

    @property
    def interrupted(self) -> bool:
        """Whether the episode under way is to end with its next step."""
        return self._player.interrupted

    def interrupt(self) -> None:
        """Ends the episode under way with its next step, as KeyboardInterrupt; a signal handler may call it."""
        self._player.interrupted = True

    def _stem(self, index: int) -> Path | None:
        """Returns the path of an episode's recordings, but for what ends their names; None where it is not recorded."""
        return self._folder / f"episode_{index:03d}" if self._folder and index < self.settings.record else None

    def _results(self, random: Sequence[float] = ()) -> Results:
        """Returns what has been seen so far, beside the scores of random play."""
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

    def _random(self) -> list[float]:
        """Returns the scores of random play, as many as there are to be."""
        settings = self.settings
        if not settings.random_episodes:
            return []
        try:
            with self._player.game_awaited():
                return random_scores(self._agent.builder, settings.random_episodes, settings.seed)
        except UserError as error:  # the agent's own episodes are what was asked for
            warnings.warn(f"no random baseline: {error}", RuntimeWarning, stacklevel=2)
            return []

    def _write(self, results: Results, command: str) -> None:
        """Writes everything that there is of the episodes played; `command` is what has played them.

        Raises:
            OSError: if it cannot be written.
        """
        assert self._folder
        if len(self._played) < self.settings.episodes:
            self._remove_films(len(self._played))  # of an episode that has not been finished
        films = {index: film for index in range(len(self._played)) if (film := self._film(index))}
        together = self._folder / JOINED
        if len(films) > 1:
            join_films(list(films.values()), together)
        recorded = [path for film in films.values() for path in (film.with_suffix(".gif"), film)]
        recordings = [path.name for path in [*recorded, *[together] * (len(films) > 1)]]
        self.removed = _remove_older(self._folder, recordings)
        seen = summarize(results.scores)
        rows = ((i, each.seed, each.episode.score, each.episode.length) for i, each in enumerate(results.played))
        write_table(self._folder / "scores.csv", ("episode", "seed", "score", "steps"), rows)
        write_json(self._folder / "summary.json", _summary(results, seen, recordings))
        figures.save_png(
            figures.draw_distributions(f"{results.scenario}: scores", results.groups), self._folder / "scores.png"
        )
        write_whole(self._folder / "index.html", page(results, films, command, self._agent.record).encode())
        self.statistics, self.shortfall = seen, results.shortfall

    def _remove_films(self, index: int) -> None:
        """Removes the films of an episode: those of an earlier call would pass for it."""
        if stem := self._stem(index):
            for kind in ("mp4", "gif"):
                stem.with_suffix(f".{kind}").unlink(missing_ok=True)

    def _film(self, index: int) -> Path | None:
        """Returns the film of an episode that has been played, None where there is none."""
        stem = self._stem(index)
        film = stem.with_suffix(".mp4") if stem else None
        return film if film and self._agent.builder.draws and film.exists() else None


def _summary(results: Results, seen: Scores, recordings: Sequence[str]) -> dict[str, Any]:
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


def _check_page(path: Path) -> None:
    """Raises UserError where a page would be overwritten that is none of this program's."""
    with contextlib.suppress(OSError), path.open("rb") as file:  # there is none
        if _GENERATOR not in file.read(4096):  # the films come later
            raise not_ours(path)


def _remove_older(folder: Path, kept: Sequence[str]) -> int:
    """Removes the recordings of an earlier call, as its summary lists them: they would pass for those of this one."""
    try:
        older = list(json.loads((folder / "summary.json").read_text())["recordings"])
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is somebody else's
        return 0
    removed = [name for name in older if _RECORDING.fullmatch(str(name)) and name not in kept and (folder / name).exists()]
    for name in removed:
        (folder / name).unlink(missing_ok=True)
    return len(removed)
