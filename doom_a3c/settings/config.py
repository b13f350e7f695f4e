"""The settings of a run, and values derived from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from doom_a3c.settings.engines import ClusterSettings, QueueSettings
from doom_a3c.settings.fields import setting
from doom_a3c.settings.setting import OUTPUTS, USUAL, WANDB
from doom_a3c.settings.training import MAX_NORMALIZED, TrainingSettings


class ProgressCounts(Protocol):
    """The counters that budgets limit."""

    @property
    def frames(self) -> int:
        """Frames played by all games."""

    @property
    def episodes(self) -> int:
        """Finished episodes."""


@dataclass(frozen=True, kw_only=True)
class Config(ClusterSettings, QueueSettings, TrainingSettings):
    """The settings of a run. Scenario files and flags override the defaults below."""

    seed: int = setting(0, "Seed of weights, games and action sampling", low=0, high=2**31 - 1, section=USUAL)
    precision: str = setting(
        "auto",
        "Type of large matrix products; auto is bfloat16 for pixels on CPUs that are fast with it, else float32",
        choices=("auto", "float32", "bfloat16"),
    )
    device: str = setting(
        "auto", "Device of the networks: auto (a GPU if there is one), cpu, gpu, or gpu:1 for the second", section=USUAL
    )
    frames: int = setting(
        10_000_000,
        "Budget of the run in frames of the games, including skipped ones",
        unit="frames",
        low=1,
        section=USUAL,
    )
    episodes: int | None = setting(None, "End after this many training episodes", unit="episodes", low=1, section=OUTPUTS)
    minutes: float | None = setting(
        None,
        "End after this training time, not counting startup and the final evaluation",
        unit="minutes",
        above=0,
        section=USUAL,
    )
    target_score: float | None = setting(
        None, "End when the mean score of the last 100 training episodes reaches this", section=USUAL
    )
    until_learned: bool = setting(
        False,
        "End before the budget, once 3 evaluations in a row reach the scenario's expected_mean",
        section=USUAL,
    )
    models_dir: str = setting(
        "models", "Folder of the runs' checkpoints, in models/RUN; last.ckpt links to the newest", section=OUTPUTS
    )
    frames_dir: str = setting("frames", "Folder of the gifs and the score curve", section=OUTPUTS)
    logs_dir: str = setting("logs", "Folder of the logs", section=OUTPUTS)
    logger: str = setting(
        "tensorboard",
        "Where metrics go; must be repeated with --resume",
        choices=("tensorboard", "csv", "wandb", "mlflow"),
        section=OUTPUTS,
    )
    wandb_project: str | None = setting(
        None, "Weights & Biases project; unset is WANDB_PROJECT, else doom_a3c", goes_with=WANDB, section=OUTPUTS
    )
    wandb_entity: str | None = setting(
        None, "Weights & Biases user or team; unset is WANDB_ENTITY", goes_with=WANDB, section=OUTPUTS
    )
    gif_every: int = setting(
        25,
        "Record every n-th episode of each worker's first game as a gif, at most one a minute; 0 disables",
        unit="episodes",
        low=0,
        section=OUTPUTS,
    )
    gif_overlay: str | None = setting(
        None,
        "Show observation, action probabilities and value in gifs; saliency, slower, also shows where the network looks",
        choices=("plain", "saliency"),
        bare="plain",
        section=OUTPUTS,
    )
    checkpoint_every: float = setting(60.0, "Time between checkpoints", unit="seconds", above=0, section=OUTPUTS)
    evaluate_every: float = setting(
        30.0, "Pause between evaluations; 0 leaves only the final one", unit="seconds", low=0, section=OUTPUTS
    )
    evaluation_episodes: int = setting(
        20,
        "Episodes per evaluation, for the greedy and the sampled policy each",
        unit="episodes",
        low=1,
        high=10_000,
        section=OUTPUTS,
    )
    evaluation_epsilon: float = setting(
        0.0,
        "Probability of a random action in greedy evaluation, which frees a policy that waits forever",
        low=0,
        high=1,
        section=OUTPUTS,
    )

    @cached_property
    def worker_count(self) -> int:
        """Worker threads of this process; `workers` = 0 is one per CPU, divided among hosts. Checkpoints keep the 0."""
        return self.workers or max(1, cpu_count() // (self.hosts if self.engine == "cluster" else 1))

    @property
    def env_count(self) -> int:
        """Games of all workers on this machine."""
        return self.worker_count * self.envs_per_worker

    def count_opposed(self, agents: int) -> int:
        """Returns how many games of a worker are in matches whose other players do not learn."""
        if agents == 1 or self.opponents == "self":
            return 0
        games = self.envs_per_worker
        return games - games // 2 // agents * agents if self.opponents == "past" else games

    @property
    def steps_per_rollout(self) -> int:
        """Steps in one rollout, all games of a worker together."""
        return self.envs_per_worker * self.rollout_length

    @property
    def explores(self) -> bool:
        """Whether some actions are uniformly random instead of drawn from the policy."""
        return self.epsilon.maximum > 0

    @property
    def learns_from_queue(self) -> bool:
        """Whether rollouts wait in a queue for a trainer."""
        return self.engine == "queue" or (self.engine == "cluster" and self.transport == "rollouts")

    @property
    def sends_gradients(self) -> bool:
        return self.engine == "cluster" and self.transport == "gradients"

    @property
    def uses_vtrace(self) -> bool:
        """Whether V-trace makes the targets, because rollouts may come from a policy other than the learning one."""
        return self.vtrace and (self.learns_from_queue or self.explores)

    @property
    def may_repeat(self) -> bool:
        """Whether a rollout may make several updates.

        Not in a cluster, whose hosts have no newer weights for a second update, nor with epsilon: random actions are
        off-policy from the start.
        """
        return self.engine != "cluster" and not self.explores

    @property
    def minibatch_count(self) -> int:
        """Minibatches per epoch, at most one for each game of a worker."""
        return min(self.minibatches, self.envs_per_worker) if self.may_repeat else 1

    @property
    def updates_per_rollout(self) -> int:
        """Updates from the same rollouts: one for each minibatch of each epoch."""
        return self.epochs * self.minibatch_count if self.may_repeat else 1

    @property
    def splits_sequences(self) -> bool:
        """Whether minibatches may hold parts of rollouts, as targets are known before the first update."""
        return self.minibatch_count > 1 and not self.uses_vtrace

    @property
    def sequence_steps(self) -> int:
        """Consecutive steps of a game in a minibatch with a recurrent core, which needs their order."""
        return self.sequence_length if self.sequence_length and self.splits_sequences else self.rollout_length

    @property
    def reward_limit(self) -> float | None:
        """Largest magnitude of a reward in learning; None for no limit."""
        return MAX_NORMALIZED if self.normalize_rewards and self.reward_clip is None else self.reward_clip

    @property
    def batch_limits(self) -> tuple[int, int]:
        """Minimum and maximum rollouts in an update of a trainer, each at least 1."""
        return -(-self.min_batch // self.steps_per_rollout), max(1, self.max_batch // self.steps_per_rollout)

    @property
    def rows_kept(self) -> int:
        """Observations that games keep: a rollout's if the worker learns before it plays on, else 1, which is copied."""
        return 1 if self.learns_from_queue or self.accumulate > 1 else self.rollout_length + 1

    @property
    def steps_in_flight(self) -> int:
        """Upper bound of the steps on this machine that are played but not counted yet."""
        return (self.worker_count + (self.queue_size if self.learns_from_queue else 0)) * self.steps_per_rollout

    def exhausted_budget(self, counts: ProgressCounts) -> str | None:
        """Returns the exhausted budget, `frames` or `episodes`; None while some of both is left."""
        if counts.frames >= self.frames:
            return "frames"
        return "episodes" if self.episodes is not None and counts.episodes >= self.episodes else None


def cpu_count() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
