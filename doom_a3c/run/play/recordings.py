"""Chooses which films of an agent's episodes are kept, and makes gifs and clips of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from doom_a3c.record.files import Attempts, write_whole
from doom_a3c.record.films.films import MEGABYTES_PER_MINUTE, Clip, cut_clip, join_films, make_gif
from doom_a3c.settings.playing import PlaySettings

RECORDED = 10  # first episodes that are recorded while they play, until it is known which films to keep
JOINED = "episodes.mp4"  # all recorded episodes as one film


class Film(NamedTuple):
    """A film for the page."""

    episode: int
    title: str  # such as 'best'
    path: Path
    clip: Clip
    on_page: bool = True
    gif: str = ""  # the part of the film that its gif shows; '' without a gif

    def describe_extent(self) -> str:
        """Returns where the film is, how long it is, and how much of it page and gif show."""
        page = f"; on the page: {self.clip.extent}" if self.on_page else ""
        gif = f"; {self.path.with_suffix('.gif').name}: {self.gif}" if self.gif else ""
        return f"{self.path} ({int(self.clip.film_seconds)} s){page}{gif}"


def describe_cost(settings: PlaySettings) -> str:
    """Describes the cost of the films of a playback."""
    wanted, size = settings.record_episodes, f"up to {MEGABYTES_PER_MINUTE} MB per minute of game"
    if wanted == 0:
        return "no films"
    if wanted is not None:
        return f"keeping films of the first {min(wanted, settings.episodes)} of {settings.episodes} episodes: {size} each"
    return (
        f"keeping films of the best, the median and the worst episode: {size} each, usually a quarter of that; "
        "--record-episodes 0 plays without films, several times faster"
    )


def pick_shown(scores: Mapping[int, float]) -> dict[int, str]:
    """Returns 'best', 'median' and 'worst' by the index of that episode; fewer words if there are fewer episodes."""
    ranked = sorted(scores, key=lambda index: scores[index])
    if not ranked:
        return {}
    picked = {ranked[0]: "worst", ranked[len(ranked) // 2]: "median", ranked[-1]: "best"}
    return dict(reversed(picked.items()))


class Recordings:
    """The films in a folder: of the first `wanted` episodes, or, if that is None, of the best, median and worst ones.

    Films of all episodes that may turn out to be one of these are recorded; `choose` removes the others.
    """

    def __init__(self, folder: Path, wanted: int | None) -> None:
        self._folder, self._wanted = folder, wanted
        self._films: dict[int, Path] = {}  # complete ones, by episode
        self._shown: dict[int, str] = {}  # titles of the films for the page, by episode
        self.is_full = False  # whether the disk is full, so that nothing more is recorded

    def make_path(self, episode: int) -> Path:
        """Returns the path for the film of an episode."""
        return self._folder / f"episode_{episode:03d}.mp4"

    def wants(self, episode: int) -> bool:
        """Returns whether an episode is to be recorded while it plays for the first time."""
        return not self.is_full and episode < (RECORDED if self._wanted is None else self._wanted)

    def add(self, episode: int) -> None:
        """Adds the film of an episode, if its game has drawn any pictures."""
        if (path := self.make_path(episode)).exists():
            self._films[episode] = path

    def discard(self, episode: int) -> None:
        """Removes the film of an episode."""
        self.make_path(episode).unlink(missing_ok=True)
        self._films.pop(episode, None)

    def find_missing(self, scores: Mapping[int, float]) -> list[int]:
        """Returns the episodes that must be played again for their films."""
        if self._wanted is not None or self.is_full or not self._films:  # a game without pictures is not played again
            return []
        return [episode for episode in pick_shown(scores) if episode not in self._films]

    def choose(self, scores: Mapping[int, float]) -> None:
        """Chooses the films for the page; removes all others, unless a number of films was requested."""
        self._shown = pick_shown(scores)
        if not self._shown.keys() <= self._films.keys():  # not all episodes are recorded, or a film was lost
            self._shown = {i: f"{word} recorded" for i, word in pick_shown({i: scores[i] for i in self._films}).items()}
        if self._wanted is None:
            for episode in set(self._films) - set(self._shown):
                self.discard(episode)

    def discard_all(self) -> list[Path]:
        """Removes all films; returns their paths."""
        films = dict(self._films)
        for episode in films:
            self.discard(episode)
        return list(films.values())

    def cut(self, attempts: Attempts) -> list[Film]:
        """Returns the films for the page; removes films that a full disk cut off."""
        films = []
        for episode, word in self._shown.items():
            if (path := self._films.get(episode)) is not None:
                with attempts.make():
                    films.append(Film(episode, word, path, self._cut_film(episode, path)))
        return films

    def _cut_film(self, episode: int, path: Path) -> Clip:
        try:
            return cut_clip(path)
        except OSError as error:
            if error.filename == str(path):
                self.discard(episode)
            raise

    def make_gifs(self, attempts: Attempts, is_interrupted: Callable[[], bool]) -> dict[int, str]:
        """Makes a gif of each film, and one film of all; returns the part of its film that each gif shows.

        An interrupt leaves out the gifs that are not made yet.
        """
        extents: dict[int, str] = {}
        for episode, path in sorted(self._films.items()):
            if not is_interrupted():
                with attempts.make():
                    gif = make_gif(path)
                    write_whole(path.with_suffix(".gif"), gif.data)
                    extents[episode] = gif.extent
        if self._wanted is not None and len(self._films) > 1:
            with attempts.make():
                join_films([path for _, path in sorted(self._films.items())], self._folder / JOINED)
        return extents

    def list_names(self) -> list[str]:
        """Returns the names of the recordings in the folder."""
        paths = [each for _, path in sorted(self._films.items()) for each in (path.with_suffix(".gif"), path)]
        return [path.name for path in (*paths, self._folder / JOINED) if path.exists()]
