"""Makes the actors of training, and films their games."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from doom_a3c.agent.distributions import Array
from doom_a3c.agent.player import Bools, GameVector, Player, Step, split_seed
from doom_a3c.agent.policy import Decider
from doom_a3c.agent.rewards import RewardScale, RewardScaler, RewardStats
from doom_a3c.agent.rollouts import Actor
from doom_a3c.agent.start_order import StartOrder
from doom_a3c.record.films.gifs import SECONDS_BETWEEN_GIFS
from doom_a3c.record.films.recording import EpisodeRecorder, Recording
from doom_a3c.record.metrics.rate_limiter import RateLimiter
from doom_a3c.run.builder import Builder
from doom_a3c.run.step_view import TrainingViewer
from doom_a3c.settings.config import Config, ProgressCounts
from doom_a3c.settings.streams import Stream, make_seed


class FilmedPlayer(Player):
    """A player that films episodes of its first game. Owns the recorder."""

    def __init__(
        self,
        env: GameVector,
        policy: Decider,
        seed: np.random.SeedSequence,
        recorder: EpisodeRecorder,
        viewer: TrainingViewer | None = None,
    ) -> None:
        """With a `viewer`, films show the network's input and outputs beside the game."""
        super().__init__(env, policy, *split_seed(seed, env.num_envs))
        self._recorder, self._viewer = recorder, viewer
        self._begin()

    def _begin(self) -> None:
        self.observations = self._recorder.begin(self.observations, self.infos)
        if self._viewer:
            self._viewer.begin()

    def step(self, epsilons: Array, greedy: bool | Bools = False) -> Step:
        core_state = self.core_state
        step = super().step(epsilons, greedy)
        ended = bool(step.terminated[0] or step.truncated[0])
        if step.cut_short[0]:
            self._recorder.drop()
        view = self._viewer.view_step(step, core_state) if self._viewer and self._recorder.wants_view(ended) else None
        self._recorder.add(step.actions[0], float(step.rewards[0]), ended, view)
        if ended:  # the observations already belong to the next episode
            self._begin()
        return step


class ActorFactory:
    """Makes the actors of one process. Owns the rate limit of their recordings, and the order of their episodes."""

    def __init__(
        self,
        config: Config,
        builder: Builder,
        counts: ProgressCounts,
        reward_stats: RewardStats,
        add_recording: Callable[[Recording], None],
        *,
        restarts: int,
        host: int = 0,
    ) -> None:
        """Recordings go to `add_recording`. `restarts` and `host` seed the games of a session and a host."""
        self._config, self._builder, self._counts, self._reward_stats = config, builder, counts, reward_stats
        self._add_recording, self._restarts, self._host = add_recording, restarts, host
        self._limiter = RateLimiter(SECONDS_BETWEEN_GIFS)
        self._oldest_starts = [0] * config.worker_count

    def __call__(self, index: int, policy: Decider) -> Actor:
        """Makes the actor of worker `index`, with its own games, random stream and exploration."""
        config, games = self._config, self._config.envs_per_worker
        env = self._builder.make_training_env(games, config.rows_kept)
        places = np.arange(index * games, (index + 1) * games) / max(1, config.worker_count * games - 1)
        powers = 1.0 + config.epsilon_spread * places
        player = self._make_player(env, policy, index)
        player.choose_counted = StartOrder(games, self._oldest_starts, index)
        rewards = RewardScaler(RewardScale.from_config(config), self._reward_stats, config.discount, games)
        rewards.weigh_shaping = lambda: config.shaping_weight.at(self._counts.frames, config.frames)
        return Actor(
            player,
            rollout_length=config.rollout_length,
            frame_skip=self._builder.scenario.game.frame_skip,
            discount=config.discount,
            rewards=rewards,
            epsilons=lambda: (config.epsilon.at(self._counts.frames, config.frames) ** powers).astype(np.float32),
            history=getattr(env, "history", None) if config.rows_kept > 1 else None,
            bootstrap=not config.uses_vtrace,
        )

    def _make_player(self, env: GameVector, policy: Decider, index: int) -> Player:
        config = self._config
        seed = make_seed(config.seed, Stream.TRAINING, self._restarts, index, self._host)
        if not config.gif_every:
            return Player.from_seed(env, policy, seed)
        recorder = EpisodeRecorder(
            env, index, config.gif_every, self._limiter, self._add_recording, replayed=self._builder.replayed
        )
        salience = config.gif_overlay == "saliency"
        viewer = TrainingViewer(policy, self._builder, salience) if config.gif_overlay else None
        return FilmedPlayer(env, policy, seed, recorder, viewer)
