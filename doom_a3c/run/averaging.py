"""Averaged weights: what is evaluated, and kept as the best, in place of the newest ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from doom_a3c.agent.model import Snapshot, State
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.record.progress import Counters
from doom_a3c.run.guard import COLLAPSED

SECONDS = 1.0  # between two looks at the weights


class WeightAverage:
    """The average of a run's weights over the newest part of its frames. Owns it; any thread may ask.

    At a full step size updates scatter the weights around what has been learned, and the average lies nearer to it. The
    weights at frame s of f so far count by (s / f) ** (1 / share - 1): the newest `share` of all frames makes 63% of the
    average, in runs of a minute and of a week. It is the polynomial-decay averaging of Shamir and Zhang 2013,
    arXiv:1212.1824, over frames. A run that goes back to earlier weights begins it anew.
    """

    def __init__(self, capture: Callable[[], State], network: ACNetwork, share: float) -> None:
        """`capture` returns the newest state, of a network like this; with a share of 0 its weights are taken alone."""
        self._capture, self._share = capture, share
        self._names = [variable_name(variable) for variable in network.parameters]
        self._lock = threading.Lock()
        self._average: Snapshot = {}
        self._newest: Counters | None = None  # of the weights taken in last
        self._next = 0.0

    def look(self) -> None:
        """Takes the newest weights in, once in a while; may be called at any time."""
        if self._share and time.monotonic() >= self._next:
            self.state()

    def state(self) -> State:
        """Returns the newest state with the average in place of its weights."""
        with self._lock:
            state = self._capture()
            if not self._share:
                return state
            self._next = time.monotonic() + SECONDS
            newest = {name: state.variables[name] for name in self._names}
            weight = self._weight(state.counters)
            self._average = {
                name: value if weight == 1 else self._average[name] + weight * (value - self._average[name])
                for name, value in newest.items()
            }
            self._newest = state.counters
            return state._replace(variables={**state.variables, **self._average})

    def _weight(self, now: Counters) -> float:
        """Returns the part of the average that the newest weights make."""
        before = self._newest
        if before is None or now.frames < before.frames or now.faults.get(COLLAPSED) != before.faults.get(COLLAPSED):
            return 1.0
        return 1 - (before.frames / now.frames) ** (1 / self._share) if now.frames else 1.0
