"""The settings of a run, and values derived from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

from doom_a3c.settings.fields import Schedule, schedule, setting
from doom_a3c.settings.groups import (
    CLUSTER,
    CORRECTION,
    EXPLORATION,
    GAE,
    GRADIENTS,
    LOCAL,
    N_STEP,
    OF_CLUSTER,
    OF_QUEUE,
    OUTPUTS,
    QUEUE,
    REPEATABLE,
    REPEATED,
    SCALED,
    SEQUENCES,
    USUAL,
    WAITING,
)

MAX_NORMALIZED = 10.0  # normalized: the first reward after a long pause would be in the hundreds


class ProgressCounts(Protocol):
    """The counters that budgets limit."""

    @property
    def frames(self) -> int:
        """Frames played by all games."""

    @property
    def episodes(self) -> int:
        """Finished episodes."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a run. Scenario files and flags override the defaults below."""

    scenario: str = setting(
        "basic",
        "Game to play: a name from --list-scenarios, a .wad, .cfg or .toml file, or a Gymnasium id (ALE/Pong-v5)",
        section=USUAL,
    )
    engine: str = setting(
        "threads",
        "How workers act and learn: threads (A3C), queue (predictors and trainers, GA3C) or cluster (parameter server)",
        choices=("threads", "queue", "cluster"),
        section=USUAL,
    )
    workers: int = setting(
        0, "Worker threads; 0 is one per CPU", unit="threads", low=0, high=1024, section=USUAL, default_words="one per CPU"
    )
    envs_per_worker: int = setting(
        16, "Games that each worker plays at once", unit="games per worker", low=1, high=4096, section=USUAL
    )
    game_processes: int | None = setting(
        None,
        "Processes for each worker's games; 0 plays in the trainer; unset is 1 for ViZDoom, 0 for others",
        unit="processes",
        low=0,
        high=256,
    )
    rollout_length: int = setting(30, "Steps of each game per rollout", unit="steps", low=1, high=1024)
    discount: float = setting(0.99, "Discount of rewards per step (gamma)", low=0, high=1)
    advantage: str = setting(
        "gae", "Advantage estimator: generalized advantage estimation, or n-step returns", choices=("gae", "n_step")
    )
    gae_lambda: float = setting(
        1.0,
        "Lambda of generalized advantage estimation; 1 gives n-step returns over the rollout",
        low=0,
        high=1,
        goes_with=GAE,
    )
    n_step: int = setting(
        5,
        "Rewards in an n-step return before the bootstrap value",
        unit="steps",
        low=1,
        high=1024,
        goes_with=N_STEP,
    )
    n_step_tail: str = setting(
        "bootstrap",
        "End of a rollout with fewer than N rewards left: bootstrap from the last value, or from zero",
        choices=("bootstrap", "zero"),
        goes_with=N_STEP,
    )
    normalize_advantages: bool = setting(
        False, "Divide the advantages of a minibatch by their standard deviation where it exceeds 0.1"
    )
    accumulate: int = setting(1, "Rollouts whose gradients are averaged into one update", unit="rollouts", low=1, high=1024)
    epochs: int = setting(
        1,
        "Passes over each rollout (PPO epochs)",
        unit="epochs",
        low=1,
        high=64,
        goes_with=REPEATABLE,
    )
    minibatches: int = setting(
        1,
        "Minibatches per epoch: of whole games with an LSTM, of single steps without; at most --envs-per-worker",
        unit="minibatches",
        low=1,
        high=4096,
        goes_with=REPEATABLE,
    )
    sequence_length: int = setting(
        0,
        "Truncated-BPTT length with an LSTM; must divide --rollout-length; 0 is the whole rollout",
        unit="steps",
        low=0,
        high=1024,
        goes_with=SEQUENCES,
    )
    clip_range: float = setting(
        0.2,
        "PPO clip range",
        above=0,
        goes_with=REPEATED,
    )
    target_kl: float = setting(
        0.0,
        "Target KL per rollout; the learning rate falls above twice it and rises below half; 0 disables",
        unit="nats",
        low=0,
        goes_with=REPEATED,
    )
    learning_rate: Schedule = schedule(1e-4, "Learning rate of the optimizer", above=0, high=1)
    optimizer: str = setting(
        "adam", "Optimizer with statistics shared by all workers; rmsprop is the A3C paper's", choices=("adam", "rmsprop")
    )
    optimizer_epsilon: float | None = setting(
        None, "Epsilon of the optimizer; unset is 1e-8 for adam and 0.1 (inside the root) for rmsprop", above=0, high=1
    )
    entropy_cost: Schedule = schedule(0.01, "Weight of the entropy bonus in the loss", low=0)
    uniform_cost: float = setting(
        0.0,
        "Weight of the KL from the uniform policy, which keeps every action's probability above 0",
        low=0,
    )
    rollback_drop: float = setting(
        0.5,
        "Share of its gain that the mean score may lose before the best weights return; 0 never rolls back",
        low=0,
        high=1,
        goes_with=LOCAL,
    )
    value_cost: float = setting(0.5, "Weight of the value loss", low=0)
    max_grad_norm: float = setting(40.0, "Global norm at which gradients are clipped", above=0)
    normalize_rewards: bool = setting(
        False,
        "Divide rewards by the running standard deviation of discounted returns, for learning only",
    )
    reward_scale: float = setting(
        1.0, "Factor on rewards for learning only; reported scores stay unscaled", above=0, goes_with=SCALED
    )
    reward_clip: float | None = setting(
        None,
        f"Clip rewards for learning to plus or minus this; unset is {MAX_NORMALIZED:g} if normalized, else none",
        above=0,
    )
    epsilon: Schedule = schedule(0.0, "Probability of a uniformly random action", low=0, high=1)
    epsilon_spread: float = setting(
        0.0,
        "Spread of epsilon over games: game i of n explores with epsilon ** (1 + spread*i/(n-1)); 0 disables",
        low=0,
        high=100,
        goes_with=EXPLORATION,
    )
    vtrace: bool = setting(
        True,
        "Correct rollouts of an older or exploring policy by V-trace",
    )
    rho_clip: float = setting(
        1.0, "V-trace clip of the importance weights in temporal differences; 1e9 disables", above=0, goes_with=CORRECTION
    )
    c_clip: float = setting(1.0, "V-trace clip of the trace-cutting weights; 1e9 disables", above=0, goes_with=CORRECTION)
    predictors: int = setting(
        1, "Threads that run the network for the games", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    trainers: int = setting(
        1, "Threads that learn from rollouts", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    min_batch: int = setting(
        1,
        "Steps that a trainer waits for before an update",
        unit="steps",
        low=1,
        high=2**20,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    max_batch: int = setting(
        1024,
        "Maximum steps per update, unless a single rollout has more",
        unit="steps",
        low=1,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    queue_size: int = setting(
        4,
        "Rollouts that may wait for a trainer before the games pause",
        unit="rollouts",
        low=1,
        high=4096,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    address: str | None = setting(
        None,
        "MACHINE:PORT of a Ray cluster; unset starts one on this machine and ends it afterwards",
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    hosts: int = setting(
        1,
        "Host processes per machine, each with its own workers",
        unit="hosts",
        low=1,
        high=256,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    transport: str = setting(
        "gradients",
        "Hosts send gradients (A3C), or rollouts, from which the server learns with V-trace",
        choices=("gradients", "rollouts"),
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    push_rollouts: int = setting(
        1,
        "Rollouts whose gradients a host sums before it sends them",
        unit="rollouts",
        low=1,
        high=4096,
        goes_with=GRADIENTS,
        section=OF_CLUSTER,
    )
    max_policy_lag: int = setting(
        100,
        "Largest policy lag, in updates since its oldest weights, at which a push is learned from",
        unit="updates",
        low=0,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    seed: int = setting(0, "Seed of weights, games and action sampling", low=0, high=2**31 - 1, section=USUAL)
    precision: str = setting(
        "auto",
        "Type of large matrix products; auto is bfloat16 for pixels on a CPU with AMX, else float32",
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
    models_dir: str = setting("models", "Folder of the checkpoints", section=USUAL)
    frames_dir: str = setting("frames", "Folder of the gifs and the score curve", section=OUTPUTS)
    logs_dir: str = setting("logs", "Folder of the logs", section=OUTPUTS)
    logger: str = setting(
        "tensorboard",
        "Where metrics go; must be repeated with --resume",
        choices=("tensorboard", "csv", "wandb", "mlflow"),
        section=OUTPUTS,
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
        "Show observation, action probabilities and value in gifs; saliency adds where the network looks, more slowly",
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

    @property
    def worker_count(self) -> int:
        """Worker threads on this machine, where 0 `workers` are one per CPU; checkpoints keep the 0."""
        return self.workers or cpu_count()

    @property
    def env_count(self) -> int:
        """Games of all workers on this machine."""
        return self.worker_count * self.envs_per_worker

    @property
    def steps_per_rollout(self) -> int:
        """Steps in one rollout, all games of a worker together."""
        return self.envs_per_worker * self.rollout_length

    @property
    def explores(self) -> bool:
        """Whether some actions are uniformly random, whatever the policy says."""
        return self.epsilon.maximum > 0

    @property
    def learns_from_queue(self) -> bool:
        """Whether rollouts wait in a queue for a trainer."""
        return self.engine == "queue" or (self.engine == "cluster" and self.transport == "rollouts")

    @property
    def sends_gradients(self) -> bool:
        """Whether hosts of a cluster send gradients."""
        return self.engine == "cluster" and self.transport == "gradients"

    @property
    def uses_vtrace(self) -> bool:
        """Whether V-trace makes the targets, as rollouts may come from another policy than the learning one."""
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
        """Consecutive steps of a game in a minibatch with an LSTM, which needs their order."""
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
