"""Settings of playing and learning."""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import Schedule, schedule, setting
from doom_a3c.settings.setting import (
    CORRECTION,
    EXPLORATION,
    GAE,
    LOCAL,
    N_STEP,
    REPEATABLE,
    REPEATED,
    SCALED,
    SEQUENCES,
    USUAL,
)

MAX_NORMALIZED = 10.0  # standard deviations; without it, the first reward after a long pause would be in the hundreds


OPPONENTS = ("self", "past")  # or a checkpoint


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of a run's workers, rollouts, targets, updates and losses."""

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
    opponents: str = setting(
        "self",
        "Other players of matches: self, past (earlier weights in half of a worker's games or more), bots, or a checkpoint",
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
        False,
        "Normalize the advantages of a minibatch: subtract the mean, divide by the standard deviation, at least 0.1",
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
        "Minibatches per epoch: of whole games with a recurrent core, else of single steps; at most --envs-per-worker",
        unit="minibatches",
        low=1,
        high=4096,
        goes_with=REPEATABLE,
    )
    sequence_length: int = setting(
        0,
        "Truncated-BPTT length of a recurrent core; must divide --rollout-length; 0 is the whole rollout",
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
        "Target KL per rollout; the learning rate falls above twice the target and rises below half; 0 disables",
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
        "Share of the mean score's gain that may be lost before the best weights are restored; 0 never rolls back",
        low=0,
        high=1,
        goes_with=LOCAL,
    )
    value_cost: float = setting(0.5, "Weight of the value loss", low=0)
    max_grad_norm: float = setting(40.0, "Global norm at which gradients are clipped", above=0)
    normalize_rewards: bool = setting(
        False,
        "Divide rewards, but not shaping, by the running standard deviation of discounted returns, for learning only",
    )
    reward_scale: float = setting(
        1.0, "Factor on rewards for learning only; reported scores stay unscaled", above=0, goes_with=SCALED
    )
    reward_clip: float | None = setting(
        None,
        f"Clip rewards for learning to plus or minus this; unset is {MAX_NORMALIZED:g} if normalized, else none",
        above=0,
    )
    shaping_weight: Schedule = schedule(1.0, "Factor on shaping rewards, for learning only", low=0)
    epsilon: Schedule = schedule(0.0, "Probability of a uniformly random action", low=0, high=1)
    epsilon_spread: float = setting(
        0.0,
        "Spread of epsilon over games: game i of n explores with epsilon ** (1 + spread*i/(n-1)); 0 disables",
        low=0,
        high=100,
        goes_with=EXPLORATION,
    )
    vtrace: bool = setting(True, "Correct rollouts of an older or exploring policy with V-trace")
    rho_clip: float = setting(
        1.0, "V-trace clip of the importance weights in temporal differences; 1e9 disables", above=0, goes_with=CORRECTION
    )
    c_clip: float = setting(1.0, "V-trace clip of the trace-cutting weights; 1e9 disables", above=0, goes_with=CORRECTION)
