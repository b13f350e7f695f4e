"""The order in which the episodes of training count."""

from __future__ import annotations

import heapq

import numpy as np

from doom_a3c.agent.player import Episode, Step

MAX_HELD = 10  # finished episodes per game that may wait for an older one: a game that never ends must not stop the curve


class StartOrder:
    """Passes the finished episodes of one actor on in the order of their starts.

    Games that begin together end their short episodes first, so a mean over the episodes that have ended first is a mean
    over short ones, above or below the truth by the game. Starts do not depend on lengths: an episode counts once every
    episode that began before it, or with it, is over. All actors of a process wait for each other.
    """

    def __init__(self, games: int, oldest: list[int] | None = None, index: int = 0) -> None:
        """`oldest` has for each actor the step at which its oldest running episode began; this one's is at `index`."""
        self._oldest, self._index = [0] if oldest is None else oldest, index
        self._starts = np.zeros(games, np.int64)
        self._steps, self._most = 0, MAX_HELD * max(games, MAX_HELD)
        self._held: list[tuple[int, int, Episode]] = []  # a heap of starts, games and episodes

    def __call__(self, step: Step) -> list[Episode]:
        """Returns the episodes that count from this step of the games on."""
        self._steps += 1
        for episode in step.episodes:
            heapq.heappush(self._held, (int(self._starts[episode.game]), episode.game, episode))
        self._starts[step.terminated | step.truncated] = self._steps
        self._oldest[self._index] = int(self._starts.min())
        oldest, taken = min(self._oldest), []
        while self._held and (self._held[0][0] < oldest or len(self._held) > self._most):
            taken.append(heapq.heappop(self._held)[2])
        return taken
