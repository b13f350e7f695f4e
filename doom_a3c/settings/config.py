"""Everything that decides how a run trains, and which ways of learning that comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from doom_a3c.settings.fields import Group, Schedule, schedule, setting

# Parts of the help.
USUAL, OUTPUTS = "the usual ones", "limits, evaluations and outputs"
OF_QUEUE, OF_CLUSTER = "--engine queue", "--engine cluster"

MAX_NORMALIZED = 10.0  # a first reward after a long time without any would be hundreds


def uses_vtrace(config: Config) -> bool:
    """Tells whether V-trace makes the targets: rollouts may come from another policy than the one that learns."""
    return config.vtrace and (learns_apart(config) or explores(config))


def updates_per_rollout(config: Config) -> int:
    """Returns how many updates are made from the same rollouts: one of each minibatch in each pass.

    One in a cluster, whose hosts have no newer weights for a second, and one with epsilon: what is played at random is far
    from the policy from the start.
    """
    return config.passes * minibatch_count(config) if repeats(config) else 1


def minibatch_count(config: Config) -> int:
    """Returns into how many parts the games of a rollout, or its steps, are dealt out: no more than there are games."""
    return min(config.minibatches, config.games) if repeats(config) else 1


def sequence_length(config: Config) -> int:
    """Returns how many steps of a game go together where minibatches are dealt out, and an LSTM wants their order."""
    return config.sequence_length if config.sequence_length and deals_sequences(config) else config.rollout_length


def repeats(config: Config) -> bool:
    """Tells whether a rollout may make several updates."""
    return config.engine != "cluster" and not explores(config)


def deals_sequences(config: Config) -> bool:
    """Tells whether minibatches may be of parts of rollouts: targets are known before the first update."""
    return minibatch_count(config) > 1 and not uses_vtrace(config)


def learns_apart(config: Config) -> bool:
    """Tells whether rollouts wait in a queue for a trainer."""
    return config.engine == "queue" or (config.engine == "cluster" and config.transport == "rollouts")


def sends_gradients(config: Config) -> bool:
    """Tells whether hosts of a cluster send gradients."""
    return config.engine == "cluster" and config.transport == "gradients"


def explores(config: Config) -> bool:
    """Tells whether some actions are drawn uniformly, whatever the policy says."""
    return config.epsilon.maximum > 0


GAE = Group("--advantage gae", lambda config: config.advantage == "gae")
N_STEP = Group("--advantage n_step", lambda config: config.advantage == "n_step")
CORRECTION = Group("V-trace, which --engine queue, --transport rollouts and --epsilon use", uses_vtrace)
EXPLORATION = Group("--epsilon", explores)
QUEUE = Group("--engine queue", lambda config: config.engine == "queue")
CLUSTER = Group("--engine cluster", lambda config: config.engine == "cluster")
LOCAL = Group("--engine threads or queue", lambda config: config.engine != "cluster")
REPEATABLE = Group("--engine threads or queue, without --epsilon", repeats)
REPEATED = Group(
    "--passes 2 or more, or --minibatches and --games 2 or more (engines threads and queue, no --epsilon)",
    lambda config: updates_per_rollout(config) > 1,
)
SEQUENCES = Group("--minibatches 2 or more, and --engine threads or --no-vtrace", deals_sequences)
SCALED = Group("rewards that are not normalized (--no-normalize-rewards)", lambda config: not config.normalize_rewards)
GRADIENTS = Group("--engine cluster --transport gradients", sends_gradients)
WAITING = Group("--engine queue, or --engine cluster --transport rollouts", learns_apart)


class ProgressCounts(Protocol):
    """The counters of a run that its budgets are about."""

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
        "what to play: a name from --list-scenarios, a .wad, .cfg or .toml file, or a Gymnasium id (ALE/Pong-v5)",
        section=USUAL,
    )
    engine: str = setting(
        "threads",
        "threads: every worker acts and learns (A3C); queue: workers play, others predict and train (GA3C); "
        "cluster: as threads, in processes on one machine or many, with a parameter server",
        choices=("threads", "queue", "cluster"),
        section=USUAL,
    )
    workers: int = setting(
        0, "worker threads; 0 is one per CPU", unit="threads", low=0, high=1024, section=USUAL, default_words="one per CPU"
    )
    games: int = setting(
        16, "games that each worker plays at once", unit="games per worker", low=1, high=4096, section=USUAL
    )
    game_processes: int | None = setting(
        None,
        "processes for each worker's games; 0 plays them in the trainer; unset is 1 for ViZDoom and 0 for other games",
        unit="processes",
        low=0,
        high=256,
    )
    rollout_length: int = setting(30, "steps of each game per update", unit="steps", low=1, high=1024)
    discount: float = setting(0.99, "gamma, the discount of rewards per step", low=0, high=1)
    advantage: str = setting(
        "gae", "targets: generalised advantage estimation, or returns over --n-step rewards", choices=("gae", "n_step")
    )
    gae_lambda: float = setting(
        1.0, "lambda of generalised advantage estimation; 1 is plain n-step returns", low=0, high=1, goes_with=GAE
    )
    n_step: int = setting(
        5,
        "N, the rewards in an n-step return before a value takes over",
        unit="steps",
        low=1,
        high=1024,
        goes_with=N_STEP,
    )
    n_step_tail: str = setting(
        "bootstrap",
        "where fewer than N rewards are left in the rollout: the value after the last one takes over, or nothing does",
        choices=("bootstrap", "zero"),
        goes_with=N_STEP,
    )
    normalize_advantages: bool = setting(
        False, "divide the advantages of a minibatch by their standard deviation, where that is above 0.1"
    )
    accumulate: int = setting(
        1, "rollouts whose gradients are averaged before each update", unit="rollouts", low=1, high=1024
    )
    passes: int = setting(
        1,
        "times that the same rollouts are learned from; several updates from a rollout hold the policy near the one that "
        "played (PPO)",
        unit="passes",
        low=1,
        high=64,
        goes_with=REPEATABLE,
    )
    minibatches: int = setting(
        1,
        "parts of the games of a rollout (of its steps, where neither an LSTM nor V-trace asks for their order), "
        "drawn anew for each pass, that make an update of their own each; no more than there are games",
        unit="minibatches",
        low=1,
        high=4096,
        goes_with=REPEATABLE,
    )
    sequence_length: int = setting(
        0,
        "steps of a game that go together into a minibatch where the network has an LSTM, which then learns to remember "
        "within them alone; a part of --rollout-length, 0 is all of it",
        unit="steps",
        low=0,
        high=1024,
        goes_with=SEQUENCES,
    )
    ratio_clip: float = setting(
        0.2,
        "once the probability of an action has moved, over all updates, to 1 plus or minus this times what it was, it is "
        "pushed no further",
        above=0,
        goes_with=REPEATED,
    )
    target_kl: float = setting(
        0.0,
        "KL divergence, in the last minibatch from a rollout, from the policy that played to the one before its update: "
        "above twice this the step size falls, below half of it it rises again; where schedule and roll-backs have left "
        "a share of the step size, it is that share of this; 0 leaves the step size alone",
        unit="nats",
        low=0,
        goes_with=REPEATED,
    )
    learning_rate: Schedule = schedule(1e-4, "step size of the optimizer", above=0, high=1)
    optimizer: str = setting("adam", "rmsprop is the A3C paper's, with shared statistics", choices=("adam", "rmsprop"))
    optimizer_epsilon: float | None = setting(
        None, "term in the optimizer's divisor; unset is 1e-8 for adam, 0.1 (under the root) for rmsprop", above=0, high=1
    )
    entropy_cost: Schedule = schedule(0.01, "weight of the entropy bonus in the loss", low=0)
    uniform_cost: float = setting(
        0.0,
        "weight in the loss of the KL divergence from the uniform policy: no action's probability falls to 0 and stays "
        "there",
        low=0,
    )
    collapse: float = setting(
        0.5,
        "a mean score (100 episodes) that has lost this share of what it had gained, or stays below what it began with, "
        "sends the run back to its best weights, with half the step size; 0 is never",
        low=0,
        high=1,
        goes_with=LOCAL,
    )
    value_cost: float = setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = setting(40.0, "global norm that gradients are clipped at", above=0)
    normalize_rewards: bool = setting(
        False,
        "divide rewards for learning by the standard deviation of their discounted sums so far, of all games; scores are "
        "reported as they are",
    )
    reward_scale: float = setting(
        1.0, "factor on rewards for learning; scores are reported unscaled", above=0, goes_with=SCALED
    )
    reward_clip: float | None = setting(
        None,
        "rewards, scaled or normalized, are clipped to plus or minus this for learning; unset clips normalized ones at "
        f"{MAX_NORMALIZED:g}, others never",
        above=0,
    )
    epsilon: Schedule = schedule(0.0, "probability of a uniformly random action instead of the policy's", low=0, high=1)
    epsilon_spread: float = setting(
        0.0,
        "game i of n explores with epsilon ** (1 + i / (n - 1) * this): one value for all games at 0",
        low=0,
        high=100,
        goes_with=EXPLORATION,
    )
    vtrace: bool = setting(
        True,
        "correct what a policy other than the newest played (queue engine, transport rollouts, epsilon) by V-trace",
    )
    rho_clip: float = setting(
        1.0, "V-trace's limit on the weight of a temporal difference; 1e9 is none", above=0, goes_with=CORRECTION
    )
    c_clip: float = setting(
        1.0, "V-trace's limit on how much later differences count; 1e9 is none", above=0, goes_with=CORRECTION
    )
    predictors: int = setting(
        1, "threads that run the network for the games", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    trainers: int = setting(
        1, "threads that learn from rollouts", unit="threads", low=1, high=64, goes_with=QUEUE, section=OF_QUEUE
    )
    min_batch: int = setting(
        1, "steps that a trainer waits for", unit="steps", low=1, high=2**20, goes_with=WAITING, section=OF_QUEUE
    )
    max_batch: int = setting(
        1024,
        "steps that a trainer takes at once, unless one rollout is more",
        unit="steps",
        low=1,
        goes_with=WAITING,
        section=OF_QUEUE,
    )
    queue_size: int = setting(
        4,
        "rollouts that may wait for a trainer before the games do",
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
        "processes that play on each machine, each with its workers",
        unit="hosts",
        low=1,
        high=256,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    transport: str = setting(
        "gradients",
        "hosts send gradients (A3C), or rollouts that the server learns from with V-trace",
        choices=("gradients", "rollouts"),
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    push_rollouts: int = setting(
        1,
        "rollouts whose gradients a host sums up before it sends them",
        unit="rollouts",
        low=1,
        high=4096,
        goes_with=GRADIENTS,
        section=OF_CLUSTER,
    )
    max_policy_lag: int = setting(
        100,
        "a push with more policy lag than this (updates since its oldest weights) is counted, but not learned from",
        unit="updates",
        low=0,
        goes_with=CLUSTER,
        section=OF_CLUSTER,
    )
    seed: int = setting(0, "seed of weights, games and action sampling", low=0, high=2**31 - 1, section=USUAL)
    precision: str = setting(
        "auto",
        "what large matrices are multiplied in: auto is bfloat16 for games seen as pixels on a CPU with AMX, and float32 "
        "elsewhere; weights, recurrent state and losses are float32 always",
        choices=("auto", "float32", "bfloat16"),
    )
    device: str = setting(
        "auto", "where networks run: auto (a GPU if there is one), cpu, gpu, or gpu:1 for the second", section=USUAL
    )
    frames: int = setting(
        10_000_000,
        "budget: the run ends after this many frames of the games, skipped ones included",
        unit="frames",
        low=1,
        section=USUAL,
    )
    episodes: int | None = setting(
        None, "the run ends after this many episodes of training", unit="episodes", low=1, section=OUTPUTS
    )
    minutes: float | None = setting(
        None,
        "the run ends after this training time, to which startup and final evaluations are added",
        unit="minutes",
        above=0,
        section=USUAL,
    )
    target_score: float | None = setting(
        None, "the run ends when the mean score of the last 100 training episodes reaches this", section=USUAL
    )
    models_dir: str = setting("models", "folder of the checkpoints", section=USUAL)
    frames_dir: str = setting("frames", "folder of the gifs and the score curve", section=OUTPUTS)
    logs_dir: str = setting("logs", "folder of the logs", section=OUTPUTS)
    logger: str = setting(
        "tensorboard",
        "where metrics go: tensorboard, csv (a table for each log), wandb or mlflow; a resumed run does not remember it",
        choices=("tensorboard", "csv", "wandb", "mlflow"),
        section=OUTPUTS,
    )
    gif_every: int = setting(
        25,
        "record every n-th episode of the first game of each worker as a gif, one a minute at most; 0 is never",
        unit="episodes",
        low=0,
        section=OUTPUTS,
    )
    gif_overlay: str | None = setting(
        None,
        "show beside the games in those gifs what the network sees, its action probabilities and its value; saliency adds "
        "where it looks, and holds the games of that worker up",
        choices=("plain", "saliency"),
        bare="plain",
        section=OUTPUTS,
    )
    checkpoint_every: float = setting(60.0, "time between two checkpoints", unit="seconds", above=0, section=OUTPUTS)
    evaluate_every: float = setting(
        30.0, "pause between two evaluations; 0 leaves only the final one", unit="seconds", low=0, section=OUTPUTS
    )
    evaluation_episodes: int = setting(
        20,
        "episodes of an evaluation, for the greedy and the sampled policy each",
        unit="episodes",
        low=1,
        high=10_000,
        section=OUTPUTS,
    )
    evaluation_epsilon: float = setting(
        0.0,
        "probability of a random action in greedy evaluation: frees a policy that waits forever",
        low=0,
        high=1,
        section=OUTPUTS,
    )

    @property
    def uses_vtrace(self) -> bool:
        """Whether V-trace makes the targets."""
        return uses_vtrace(self)

    @property
    def updates_per_rollout(self) -> int:
        """Updates from the same rollouts: one of each minibatch in each epoch."""
        return updates_per_rollout(self)

    @property
    def minibatch_count(self) -> int:
        """Minibatches of a rollout: no more than it has games."""
        return minibatch_count(self)

    @property
    def reward_limit(self) -> float | None:
        """Limit of the rewards that are learned from, of either sign; None for no limit."""
        return MAX_NORMALIZED if self.normalize_rewards and self.reward_clip is None else self.reward_clip

    @property
    def steps_per_sequence(self) -> int:
        """Steps of a game that go into a minibatch together."""
        return sequence_length(self)

    def exhausted_budget(self, counts: ProgressCounts) -> str | None:
        """Returns which budget of the run is used up, `frames` or `episodes`; None while some is left of both."""
        if counts.frames >= self.frames:
            return "frames"
        return "episodes" if self.episodes is not None and counts.episodes >= self.episodes else None
