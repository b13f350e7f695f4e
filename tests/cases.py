"""Sample rollouts for target tests: random ones, and one game with constant reward and value."""

import numpy as np

from doom_a3c.algorithm.returns import generalized_advantages, n_step_returns

GAMMA = 0.9
SHAPES = [(1, 1), (1, 5), (2, 3), (7, 4), (30, 6)]


class Case:
    """A random rollout with terminations and truncations inside, its values chained from row to row."""

    def __init__(self, seed, length, batch, end_probability=0.2):
        random = np.random.default_rng(seed)
        kind = random.random((length, batch))
        self.terminated = kind < end_probability
        self.truncated = (kind > 1 - end_probability) & ~self.terminated
        self.ends = self.terminated | self.truncated
        self.rewards = random.normal(size=(length, batch)).astype(np.float32)
        values = random.normal(size=(length + 1, batch)).astype(np.float32)
        finals = random.normal(size=(length, batch)).astype(np.float32)
        self.values = values[:-1]
        self.next_values = np.where(self.truncated, finals, values[1:])
        self.discounts = np.where(self.terminated, 0, GAMMA).astype(np.float32)

    def targets(self, gae_lambda, **changes):
        arrays = {name: getattr(self, name) for name in ("rewards", "discounts", "ends", "values", "next_values")}
        return generalized_advantages(**{**arrays, **changes}, gae_lambda=gae_lambda, discount=GAMMA)

    def n_step(self, n, tail, **changes):
        arrays = {name: getattr(self, name) for name in ("rewards", "discounts", "ends", "values", "next_values")}
        return n_step_returns(**{**arrays, **changes}, n=n, tail=tail)


def constant(length, ends=(), terminations=(), value=0.0, reward=1.0):
    """Returns the arguments of one game with constant reward and value; `ends` includes the terminations."""
    ended = np.zeros((length, 1), np.bool_)
    ended[list(ends)] = True
    discounts = np.full((length, 1), GAMMA, np.float32)
    discounts[list(terminations)] = 0
    values = np.full((length, 1), value, np.float32)
    return np.full((length, 1), reward, np.float32), discounts, ended, values, values
