"""The order in which the episodes of training count."""

from __future__ import annotations

import heapq

import numpy as np

from doom_a3c.agent.player import Episode, Step

MAX_HELD = 10  # finished episodes per game that may wait for an older one: a game that never ends must not stop the curve


class StartOrder:
    """Passes on the finished episodes of one actor in the order in which they started.

    Games that begin together end their short episodes first, so a mean over the first episodes to end is a mean over
    short ones, which is too high or too low, depending on the game. The order of starts does not depend on lengths: an
    episode counts once all that began before it, or with it, are over. All actors of a process wait for each other.
    """

    def __init__(self, games: int, oldest: list[int] | None = None, index: int = 0) -> None:
        """`oldest` holds, for each actor, the step at which its oldest running episode began; this one's is at `index`."""
        self._oldest, self._index = [0] if oldest is None else oldest, index
        self._starts = np.zeros(games, np.int64)
        self._steps, self._most = 0, MAX_HELD * max(games, MAX_HELD)
        self._held: list[tuple[int, int, Episode]] = []  # a heap of starts, games and episodes

    def __call__(self, step: Step) -> list[Episode]:
        """Returns the episodes that count from this step on."""
        self._steps += 1
        for episode in step.episodes:
            heapq.heappush(self._held, (int(self._starts[episode.game]), episode.game, episode))
        self._starts[step.terminated | step.truncated] = self._steps
        self._oldest[self._index] = int(self._starts.min())
        oldest, taken = min(self._oldest), []
        while self._held and (self._held[0][0] < oldest or len(self._held) > self._most):
            taken.append(heapq.heappop(self._held)[2])
        return taken
