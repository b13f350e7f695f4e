"""What an agent sees and thinks, step by step, as people are shown it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.policy import Decider, Decision, Policy
from doom_a3c.agent.saliency import Saliency
from doom_a3c.envs.shared import map_nested
from doom_a3c.record.overlay import Moment, Salience, newest_picture
from doom_a3c.run.builder import Builder


class Moments:
    """Makes records of the steps of one game. Owns the sums of its running episode, and how far salience has gone."""

    def __init__(self, builder: Builder) -> None:
        self._named, self._inputs = builder.variables, builder.inputs
        self._pictures = builder.scenario.observation.stack
        self._most = np.full((2, 1, 1), 1e-12)
        self.begin()

    def begin(self) -> None:
        """Begins an episode."""
        self._steps, self._score = 0, 0.0

    def next(
        self, observation: Any, logits: Array, value: float, action: int, reward: float, salience: Salience | None = None
    ) -> Moment:
        """Returns the record of the next step: of what was seen, `logits` [A] and value of it, and what came of it."""
        self._steps += 1
        self._score += reward
        pixels, numbers = self._inputs.split(observation)
        if salience is not None:
            maps = np.stack(salience)
            self._most = np.maximum(self._most, maps.max(axis=(1, 2), keepdims=True))
            salience = Salience(*(maps / self._most))
        shown = self._named(numbers) if numbers is not None else []
        return Moment(
            None if pixels is None else newest_picture(pixels, self._pictures),
            shown,
            softmax(logits),
            int(action),
            float(value),
            self._steps,
            float(reward),
            self._score,
            salience,
        )


class Narration:
    """A policy that remembers what it has decided for the first of its games, and says what came of it."""

    def __init__(self, policy: Decider, builder: Builder, salience: bool) -> None:
        """With `salience` it says where the network has looked, too, if that is here and sees pixels."""
        self._policy, self._moments = policy, Moments(builder)
        self.distribution, self.initial_state = policy.distribution, policy.initial_state
        network = policy.network if salience and isinstance(policy, Policy) else None
        self._saliency = Saliency(network) if network and network.inputs.pixels else None
        self._newest: tuple[Any, Array, CoreState, Decision]

    def __call__(self, observations: Any, resets: Array, core_state: CoreState) -> Decision:
        """Returns the decision about observations [B, ...] with resets [B]."""
        decision = self._policy(observations, resets, core_state)
        first = map_nested(lambda array: array[:1], (observations, resets, core_state))
        self._newest = *first, decision
        return decision

    def begin(self) -> None:
        """Begins an episode."""
        self._moments.begin()

    def moment(self, action: int, reward: float) -> Moment:
        """Returns the record of the newest step."""
        observations, resets, core_state, decision = self._newest
        salience = self._saliency(observations, resets, core_state) if self._saliency else None
        observation = map_nested(lambda array: array[0].copy(), observations)
        return self._moments.next(observation, decision.logits[0], decision.values[0], action, reward, salience)
