"""A game whose pictures encode game, episode, time and action, and an actor that plays it."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import tensorflow as tf

from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rewards import RewardScale, RewardScaler, RewardStats
from doom_a3c.agent.rollouts import Actor, VersionedRollout
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.settings.interface import CUT_SHORT, FAULTS, LIFE_LOST

GAMMA = 0.9
FRAME_SKIP = 4
NO_ACTION = 255
HALF = RewardScale(0.5)


def picture(game, episode, time, action):
    """Returns the unique picture of this moment: the first four pixels encode it, the rest is noise seeded by it."""
    pixels = np.random.default_rng([game, episode, time, action]).integers(256, size=(8, 8, 1), dtype=np.uint8)
    pixels[0, :4, 0] = game, episode, time, action
    return pixels


class CountingEnv(gymnasium.Env):
    """Episodes of `length` steps that take turns ending as `endings` say; the n-th step overall is rewarded with n.

    Steps of an episode whose numbers are in `losses` cost a life.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, game=0, length=4, endings=("terminated",), variables=False, fault=None, losses=()):
        self.game, self.length, self.endings, self.losses = game, length, endings, losses
        self.variables, self.fault = variables, fault
        self.episode, self.time, self.steps, self.seeds = -1, 0, 0, []
        if variables:
            vector = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
            self.observation_space = gymnasium.spaces.Dict(pixels=self.observation_space, variables=vector)

    def observe(self, action):
        return observation(self.variables, self.game, self.episode, self.time, action)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.time = 0
        return self.observe(NO_ACTION), {}

    def step(self, action):
        self.time += 1
        self.steps += 1
        ending = self.endings[self.episode % len(self.endings)] if self.time == self.length else ""
        info = {CUT_SHORT: True, FAULTS: [self.fault]} if ending and self.fault else {}
        if self.time in self.losses:
            info[LIFE_LOST] = True
        terminated, truncated = ending in ("terminated", "both"), ending in ("truncated", "both")
        return self.observe(action), float(self.steps), terminated, truncated, info


def observation(variables, *moment):
    pixels = picture(*moment)
    return {"pixels": pixels, "variables": np.float32(moment[1:3])} if variables else pixels


def codes(rollout):
    """Returns game, episode, time and action of every observation, each [T+1, B]."""
    pixels = rollout.observations["pixels"] if isinstance(rollout.observations, dict) else rollout.observations
    return tuple(np.moveaxis(pixels[:, :, 0, :4, 0], -1, 0).astype(int))


def vector(games):
    """Returns existing environments as one vector environment."""
    return LocalVectorEnv([lambda game=game: game for game in games])


class Session(NamedTuple):
    """An actor and the rollouts that it has played."""

    actor: Actor
    network: Any
    played: list[VersionedRollout]

    @property
    def rollouts(self):
        """Returns the rollouts without their versions and statistics."""
        return [played.rollout for played in self.played]

    @property
    def episodes(self):
        """Returns all finished episodes."""
        return [episode for played in self.played for episode in played.stats.episodes]

    @property
    def faults(self):
        """Returns the kinds of all faults."""
        return [kind for played in self.played for kind in played.stats.faults]


def session(
    network,
    games,
    *,
    rollouts=1,
    rollout_length=7,
    scale=HALF,
    seed=0,
    policy=None,
    stats=None,
    epsilons=None,
    bootstrap=True,
):
    """Plays a number of rollouts of games; the caller closes the actor."""
    actor = Actor(
        Player.from_seed(vector(games), policy or Policy(network), np.random.SeedSequence(seed)),
        rollout_length=rollout_length,
        frame_skip=FRAME_SKIP,
        discount=GAMMA,
        rewards=RewardScaler(scale, stats or RewardStats(), GAMMA, len(games)),
        epsilons=epsilons,
        bootstrap=bootstrap,
    )
    return Session(actor, network, [actor.play_rollout() for _ in range(rollouts)])


def unroll(network, rollout, length):
    """Returns logits [T, B, A] and values [T, B] of the first rows, from the rollout's core state."""
    observations = tf.nest.map_structure(lambda array: array[:length], rollout.observations)
    output, _ = network.unroll(observations, tf.constant(rollout.resets[:length]), rollout.core_state)
    batch = rollout.actions.shape[1]
    return output.logits.numpy().reshape(length, batch, -1), output.values.numpy().reshape(length, batch)
