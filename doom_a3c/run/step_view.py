"""Views of an agent's steps for films and overlays: input, action probabilities, value, reward, saliency."""

from __future__ import annotations

import numpy as np

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Actions, Array
from doom_a3c.agent.player import Step
from doom_a3c.agent.policy import Decider, Policy
from doom_a3c.agent.saliency import Saliency
from doom_a3c.record.films.overlay import Salience, StepView, newest_picture
from doom_a3c.run.action_views import view_action
from doom_a3c.run.builder import Builder
from doom_a3c.settings.interface import Observation, map_nested


class StepViewer:
    """Makes the views of one game's steps. Owns the running episode's score, and the largest saliency so far."""

    def __init__(self, builder: Builder) -> None:
        self._name_variables, self._inputs, self._distribution = (
            builder.name_variables,
            builder.inputs,
            builder.distribution,
        )
        self._pictures = builder.scenario.observation.stack
        self._largest = np.full((2, 1, 1), 1e-12)
        self.begin()

    def begin(self) -> None:
        self._steps, self._score = 0, 0.0

    def view(
        self,
        observation: Observation,
        logits: Array,
        value: float,
        action: Actions,
        reward: float,
        saliency_maps: tuple[Array, Array] | None = None,
    ) -> StepView:
        """Returns the view of the next step: its observation, logits [P], value, action and reward."""
        self._steps += 1
        self._score += reward
        parts = self._inputs.split(observation)
        pixels, variables = parts.get("pixels"), parts.get("variables")
        return StepView(
            None if pixels is None else newest_picture(pixels, self._pictures),
            [] if variables is None else self._name_variables(variables),
            view_action(self._distribution, logits, action),
            float(value),
            self._steps,
            float(reward),
            self._score,
            None if saliency_maps is None else self._scale(saliency_maps),
        )

    def _scale(self, saliency_maps: tuple[Array, Array]) -> Salience:
        """Returns the maps as shares of the largest value so far."""
        maps = np.stack(saliency_maps)
        self._largest = np.maximum(self._largest, maps.max(axis=(1, 2), keepdims=True))
        return Salience(*(maps / self._largest))


class TrainingViewer:
    """Makes the views of the newest steps of a player's first game."""

    def __init__(self, policy: Decider, builder: Builder, salience: bool) -> None:
        """With `salience`, views have saliency maps, if the network is in this process and sees pixels."""
        self._viewer = StepViewer(builder)
        network = policy.network if salience and isinstance(policy, Policy) else None
        self._saliency = Saliency(network) if network and network.inputs.pixels else None

    def begin(self) -> None:
        self._viewer.begin()

    def view_step(self, step: Step, core_state: CoreState) -> StepView:
        """Returns the view of a step; `core_state` is from before its decision."""
        first = (step.observations, step.resets, core_state)
        observations, resets, core_state = map_nested(lambda array: array[:1], first)
        decision = step.decision
        maps = self._saliency(observations, resets, core_state) if self._saliency else None
        observation = map_nested(lambda array: array[0].copy(), observations)
        outputs = decision.logits[0], decision.values[0], step.actions[0]
        return self._viewer.view(observation, *outputs, float(step.rewards[0]), maps)
