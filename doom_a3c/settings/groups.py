"""Sections of the help, and the conditions under which settings have an effect."""

from __future__ import annotations

from doom_a3c.settings.setting import Group

USUAL, OUTPUTS = "common settings", "limits, evaluations and outputs"
OF_QUEUE, OF_CLUSTER = "--engine queue", "--engine cluster"

GAE = Group("--advantage gae", lambda config: config.advantage == "gae")
N_STEP = Group("--advantage n_step", lambda config: config.advantage == "n_step")
CORRECTION = Group("V-trace (--engine queue, --transport rollouts or --epsilon)", lambda config: config.uses_vtrace)
EXPLORATION = Group("--epsilon", lambda config: config.explores)
QUEUE = Group("--engine queue", lambda config: config.engine == "queue")
CLUSTER = Group("--engine cluster", lambda config: config.engine == "cluster")
LOCAL = Group("--engine threads or queue", lambda config: config.engine != "cluster")
REPEATABLE = Group("--engine threads or queue, without --epsilon", lambda config: config.may_repeat)
REPEATED = Group(
    "several updates per rollout: --epochs or --minibatches above 1, no --epsilon, not --engine cluster",
    lambda config: config.updates_per_rollout > 1,
)
SEQUENCES = Group("--minibatches 2 or more, and --engine threads or --no-vtrace", lambda config: config.splits_sequences)
SCALED = Group("rewards that are not normalized (--no-normalize-rewards)", lambda config: not config.normalize_rewards)
GRADIENTS = Group("--engine cluster --transport gradients", lambda config: config.sends_gradients)
WAITING = Group("--engine queue, or --engine cluster --transport rollouts", lambda config: config.learns_from_queue)
