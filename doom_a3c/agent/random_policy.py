"""Random play as a policy."""

from __future__ import annotations

import numpy as np

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import MASKED, Array, Distribution
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.policy import Decision


class RandomPolicy:
    """A policy with equal logits for all actions that the game allows; with an epsilon of 1 it draws uniformly."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    def initial_state(self, batch_size: int, /) -> CoreState:
        return ()

    def __call__(self, observations: Observations, resets: Array, core_state: CoreState) -> Decision:
        """Returns equal logits and zero values."""
        logits = np.zeros((len(resets), self.distribution.size), np.float32)
        if isinstance(observations, dict) and (mask := observations.get("mask")) is not None:
            logits[:, : mask.shape[1]] = np.where(mask, 0, MASKED)
        return Decision(logits, np.zeros(len(resets), np.float32), (), 0)
