"""Rollouts of a game whose pictures tell game, episode, time and action, so that every alignment can be checked."""

import itertools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.rollouts import Actor, Policy, Rollout, concatenated, explore, greedy, sample

GAMMA = 0.9
NO_ACTION = 255


def picture(game, episode, time, action):
    """Returns the one picture of this moment: the first four pixels say which it is, the rest is its own noise."""
    pixels = np.random.default_rng([game, episode, time, action]).integers(256, size=(8, 8, 1), dtype=np.uint8)
    pixels[0, :4, 0] = game, episode, time, action
    return pixels


class CountingEnv(gymnasium.Env):
    """Episodes of `length` decisions that end in turn as `endings` say; the n-th decision ever is rewarded with n.

    The decisions of an episode whose numbers are in `losses` cost a life.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, game=0, length=4, endings=("terminated",), variables=False, fault=None, fails_at=None, losses=()):
        self.game, self.length, self.endings, self.losses = game, length, endings, losses
        self.variables, self.fault, self.fails_at = variables, fault, fails_at
        self.episode, self.time, self.steps, self.seeds, self.closed = -1, 0, 0, [], 0
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
        if self.steps == self.fails_at:
            raise RuntimeError(f"game {self.game} broke")
        ending = self.endings[self.episode % len(self.endings)] if self.time == self.length else ""
        info = {"cut_short": True, "faults": [self.fault]} if ending and self.fault else {}
        if self.time in self.losses:
            info["life_lost"] = True
        terminated, truncated = ending in ("terminated", "both"), ending in ("truncated", "both")
        return self.observe(action), float(self.steps), terminated, truncated, info

    def close(self):
        self.closed += 1


def observation(variables, *moment):
    pixels = picture(*moment)
    return {"pixels": pixels, "variables": np.float32(moment[1:3])} if variables else pixels


def row(observations, *index):
    return tf.nest.map_structure(lambda array: array[index], observations)


def codes(rollout):
    """Returns game, episode, time and action of every observation, each [T+1, B]."""
    pixels = rollout.observations["pixels"] if isinstance(rollout.observations, dict) else rollout.observations
    return tuple(np.moveaxis(pixels[:, :, 0, :4, 0], -1, 0).astype(int))


@pytest.fixture
def play(make_network):
    """Plays rollouts; returns the actor, its network and the rollouts. Closes what it opened."""
    actors = []

    def make(
        lengths=(3, 4, 5),
        *,
        rollouts=1,
        rollout_length=7,
        scale=0.5,
        core="lstm",
        seed=0,
        clip=None,
        epsilons=None,
        bootstrap=True,
        **options,
    ):
        network = make_network(core=core, variables=2 if options.get("variables") else 0)
        games = [CountingEnv(i, length, **options) for i, length in enumerate(lengths)]
        env = LocalVectorEnv([lambda game=game: game for game in games])
        actor = Actor(
            env,
            Policy(network),
            rollout_length=rollout_length,
            discount=GAMMA,
            reward_scale=scale,
            seed=np.random.SeedSequence(seed),
            reward_clip=clip,
            epsilons=epsilons,
            bootstrap=bootstrap,
        )
        actors.append(actor)
        return actor, network, [actor.rollout() for _ in range(rollouts)]

    yield make
    for actor in actors:
        actor.close()


def unroll(network, rollout, length):
    """Returns logits [T, B, A], values [T, B] over the first rows, from the rollout's core state."""
    observations = tf.nest.map_structure(lambda array: array[:length], rollout.observations)
    output, _ = network.unroll(observations, tf.constant(rollout.resets[:length]), rollout.core_state)
    batch = rollout.actions.shape[1]
    return output.logits.numpy().reshape(length, batch, -1), output.values.numpy().reshape(length, batch)


# Sampling


@pytest.mark.parametrize("probabilities", [[0.5, 0.3, 0.2], [0.25] * 4, [0.98, 0.01, 0.01], [1.0, 0.0]])
def test_samples_follow_softmax(probabilities):
    count = 40_000
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(probabilities), -1e3) + 7  # softmax does not mind the 7
    actions = sample(np.tile(logits.astype(np.float32), (count, 1)), np.random.default_rng(0))
    assert actions.dtype == np.int32
    frequencies = np.bincount(actions, minlength=len(probabilities)) / count
    deviations = np.sqrt(np.multiply(probabilities, np.subtract(1, probabilities)) / count)
    assert (np.abs(frequencies - probabilities) <= 5 * deviations).all()


def test_each_row_samples_its_own_logits():
    logits = np.full((6, 3), -1e3, np.float32)
    chosen = np.array([2, 0, 1, 1, 0, 2])
    logits[np.arange(6), chosen] = 1e3
    np.testing.assert_array_equal(sample(logits, np.random.default_rng(0)), chosen)


# Exploration

EPSILONS = np.float32([0, 0.01, 0.1, 0.5, 0.9, 1])  # a game each


def mixture(logits, epsilons):
    """Returns (1 - epsilon) softmax(logits) + epsilon / A in float64, [B, A]."""
    powers = np.exp(np.float64(logits) - logits.max(axis=1, keepdims=True))
    return (1 - epsilons[:, None]) * powers / powers.sum(axis=1, keepdims=True) + epsilons[:, None] / logits.shape[1]


def some_logits(actions=4, size=2.0):
    return np.random.default_rng(5).normal(scale=size, size=(len(EPSILONS), actions)).astype(np.float32)


def chosen_of(array, actions):
    return np.take_along_axis(array, actions[..., None], axis=-1)[..., 0]


def draws(logits, count, seed=0):
    """Returns `count` actions and log-probabilities for every game, each [count, B], from one call."""
    repeated = np.tile(logits, (count, 1)), np.tile(EPSILONS, count)
    actions, log_probs = explore(*repeated, np.random.default_rng(seed))
    assert actions.dtype == np.int32
    assert log_probs.dtype == np.float32
    return actions.reshape(count, -1), log_probs.reshape(count, -1)


@pytest.mark.parametrize("size", [0.1, 2.0, 30.0])
def test_explored_log_probs_are_those_of_the_mixture(size):
    logits = some_logits(size=size)
    actions, log_probs = draws(logits, 500)
    probabilities = np.tile(mixture(logits, EPSILONS), (500, 1, 1))
    np.testing.assert_allclose(log_probs, np.log(chosen_of(probabilities, actions)), rtol=1e-4, atol=1e-6)
    assert len(np.unique(actions[:, 2])) == 4  # with epsilon 0.1 the unlikely actions were among them
    assert explore(logits, EPSILONS.astype(np.float64), np.random.default_rng(0))[1].dtype == np.float32


@pytest.mark.parametrize("sure", [False, True])
def test_explored_actions_follow_the_mixture(sure):
    count, logits = 40_000, some_logits()
    probabilities = mixture(1e3 * logits if sure else logits, EPSILONS)
    actions, _ = draws(greedy(logits) if sure else logits, count)
    frequencies = np.stack([np.bincount(column, minlength=4) for column in actions.T]) / count
    deviations = np.sqrt(probabilities * (1 - probabilities) / count)
    assert (np.abs(frequencies - probabilities) <= 5 * deviations + 1e-12).all()


def test_games_explore_apart_from_each_other_and_from_their_policy():
    # A game that explores where its neighbour does, or that redraws the policy's own choice, would show here.
    logits = np.float32([[50, 0], [50, 0]])
    actions, _ = explore(np.tile(logits, (40_000, 1)), np.full(80_000, 0.5, np.float32), np.random.default_rng(0))
    others = actions.reshape(-1, 2) == 1  # with probability 1/4 each, independently
    assert np.mean(others.all(axis=1)) == pytest.approx(1 / 16, abs=5 * np.sqrt(15 / 256 / 40_000))


def test_epsilon_0_is_the_policy_and_draws_as_sample_does():
    logits = np.tile(some_logits(), (50, 1))
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(3):  # the streams stay in step
        actions, log_probs = explore(logits, np.zeros(len(logits), np.float32), one)
        np.testing.assert_array_equal(actions, sample(logits, other))
        np.testing.assert_array_equal(log_probs, chosen_of(log_softmax(logits, axis=1), actions))


def test_greedy_logits_surely_take_the_likeliest_action():
    logits = some_logits()
    best = logits.argmax(axis=1)
    sure = greedy(logits)
    for seed in range(100):
        actions, log_probs = explore(sure, np.zeros(len(sure), np.float32), np.random.default_rng(seed))
        np.testing.assert_array_equal(actions, best)
        np.testing.assert_array_equal(log_probs, 0)
    actions, log_probs = draws(sure, 500)
    expected = np.where(actions == best, np.log(1 - EPSILONS + EPSILONS / 4), np.log(np.maximum(EPSILONS, 1e-9) / 4))
    np.testing.assert_allclose(log_probs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(logits, some_logits())


def test_greedy_takes_one_of_equal_actions():
    np.testing.assert_array_equal(greedy(np.float32([[3, 3, 1], [0, 0, 0]])), [[0, -np.inf, -np.inf]] * 2)


def test_an_actor_records_the_probabilities_it_explores_with(play):
    asked = iter(np.float32([[0, 0.3, 1], [0.6, 0, 0.05]]))  # one answer for each rollout
    actor, network, _ = play(rollouts=0, epsilons=lambda: next(asked), rollout_length=20)
    policy = next(p for p in network.parameters if "policy" in p.name)
    policy.assign(300 * policy)  # a policy far from uniform: exploring changes its probabilities
    for epsilons in np.float32([[0, 0.3, 1], [0.6, 0, 0.05]]):
        rollout = actor.rollout()
        logits, _ = unroll(network, rollout, 20)
        probabilities = mixture(logits.reshape(60, 3), np.tile(epsilons, 20)).reshape(20, 3, 3)
        np.testing.assert_allclose(
            np.exp(rollout.log_probs), chosen_of(probabilities, rollout.actions), rtol=1e-4, atol=1e-6
        )
        unexplored = chosen_of(log_softmax(logits, axis=2), rollout.actions)
        apart = np.abs(rollout.log_probs - unexplored).max(axis=0)
        assert (apart[epsilons > 0.04] > 0.04).all()
        assert (apart[epsilons == 0] < 1e-4).all()


# Alignment


def test_observations_follow_actions(play):
    _, _, rollouts = play(endings=("terminated", "truncated"), rollouts=3)
    for rollout in rollouts:
        game, episode, time, action = codes(rollout)
        np.testing.assert_array_equal(game, np.tile([0, 1, 2], (8, 1)))
        goes_on = ~rollout.ends
        np.testing.assert_array_equal(action[1:][goes_on], rollout.actions[goes_on])
        np.testing.assert_array_equal((time[1:] - time[:-1])[goes_on], 1)
        np.testing.assert_array_equal((episode[1:] - episode[:-1]), rollout.ends)
        np.testing.assert_array_equal(time[1:][rollout.ends], 0)
        np.testing.assert_array_equal(time == 0, rollout.resets)
        for t, b in itertools.product(range(8), range(3)):
            expected = picture(b, episode[t, b], time[t, b], action[t, b])
            np.testing.assert_array_equal(rollout.observations[t, b], expected)
    assert len(np.unique(np.concatenate([rollout.actions for rollout in rollouts]))) == 3


def test_rewards_belong_to_their_actions_and_are_scaled(play):
    _, _, rollouts = play(rollouts=2)
    for index, rollout in enumerate(rollouts):
        numbers = np.arange(1, 8)[:, None] + 7 * index
        np.testing.assert_allclose(rollout.rewards, np.tile(0.5 * numbers, (1, 3)))


@pytest.mark.parametrize(
    ("scale", "expected"), [(0.5, [0.5, 1, 1.5, 2, 2.2, 2.2, 2.2]), (-0.5, [-0.5, -1, -1.5, -2, -2.2, -2.2, -2.2])]
)
def test_rewards_are_clipped_after_scaling_and_scores_are_not(play, scale, expected):
    actor, _, (rollout,) = play((3, 7), scale=scale, clip=2.2)
    np.testing.assert_allclose(rollout.rewards, np.tile(expected, (2, 1)).T, rtol=1e-6)
    episodes, _ = actor.take()
    assert [(e.game, e.score) for e in episodes] == [(0, 1 + 2 + 3), (0, 4 + 5 + 6), (1, 28)]


def test_ends_resets_and_discounts_agree(play):
    _, _, rollouts = play(endings=("terminated", "truncated", "both"), rollouts=4)
    seen = set()
    for rollout in rollouts:
        np.testing.assert_array_equal(rollout.resets[1:], rollout.ends)
        _, episode, time, _ = codes(rollout)
        for t, b in itertools.product(range(7), range(3)):
            ends = time[t, b] == [3, 4, 5][b] - 1
            ending = ("terminated", "truncated", "both")[episode[t, b] % 3] if ends else ""
            assert rollout.ends[t, b] == ends
            assert rollout.discounts[t, b] == np.float32(0 if ending in ("terminated", "both") else GAMMA)
            seen.add(ending)
    assert seen == {"", "terminated", "truncated", "both"}


def test_the_last_row_is_the_next_rollouts_first(play):
    # Rollout length 6 ends episodes of game 0 exactly at the seam, game 1's in the middle.
    _, _, rollouts = play((3, 4), rollouts=4, rollout_length=6)
    assert rollouts[0].resets[0].all()
    assert rollouts[1].resets[0].tolist() == [1, 0]
    for one, following in itertools.pairwise(rollouts):
        np.testing.assert_array_equal(one.observations[-1], following.observations[0])
        np.testing.assert_array_equal(one.resets[-1], following.resets[0])


def test_a_rollout_is_not_changed_by_the_next(play):
    actor, _, (first,) = play()
    copies = tf.nest.map_structure(np.array, first)
    actor.rollout()
    tf.nest.map_structure(np.testing.assert_array_equal, first, copies)


@pytest.mark.parametrize("variables", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_the_core_state_is_the_one_at_the_start(play, core, variables):
    _, network, rollouts = play(rollouts=3, core=core, variables=variables, endings=("terminated", "truncated"))
    for rollout in rollouts:
        logits, values = unroll(network, rollout, 7)
        chosen = np.take_along_axis(log_softmax(logits, axis=2), rollout.actions[..., None], axis=2)[..., 0]
        np.testing.assert_allclose(chosen, rollout.log_probs, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values, rollout.values, rtol=1e-4, atol=1e-6)
    if core == "lstm":  # or the test could not tell the start from zeros
        zeros = rollouts[1]._replace(core_state=network.initial_state(3))
        assert np.abs(unroll(network, zeros, 1)[1] - rollouts[1].values[0]).max() > 1e-3


def test_next_values_are_those_of_the_next_row(play):
    _, network, rollouts = play((3, 7, 20), endings=("terminated", "truncated"), rollouts=3)
    for rollout in rollouts:
        values = unroll(network, rollout, 8)[1]  # with the row behind the last decision: the bootstrap
        goes_on = ~rollout.ends
        np.testing.assert_allclose(rollout.next_values[goes_on], values[1:][goes_on], rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(rollout.next_values[:-1][goes_on[:-1]], rollout.values[1:][goes_on[:-1]])
        assert goes_on[-1, 2]


@pytest.mark.parametrize("variables", [False, True])
def test_a_truncation_is_valued_at_its_own_final_observation(play, variables):
    _, network, rollouts = play(endings=("truncated", "terminated"), variables=variables, rollouts=3)
    checked = []
    for rollout in rollouts:
        _, episode, time, _ = codes(rollout)
        for t, b in np.argwhere(rollout.ends & (rollout.discounts > 0)):
            history = tf.nest.map_structure(lambda array, t=t, b=b: array[: t + 1, b : b + 1], rollout.observations)
            start = tuple(part[b : b + 1] for part in rollout.core_state)
            _, core_state = network.unroll(history, tf.constant(rollout.resets[: t + 1, b : b + 1]), start)
            final = observation(variables, b, episode[t, b], time[t, b] + 1, rollout.actions[t, b])
            output, _ = network.step(row(final, None), tf.zeros(1), core_state)
            assert rollout.next_values[t, b] == pytest.approx(float(output.values[0]), rel=1e-4, abs=1e-6)
            checked.append((t, b))
    assert len(checked) >= 6
    assert any(t == 6 for t, _ in checked)  # one with the rollout's last decision
    assert {b for _, b in checked} == {0, 1, 2}


def test_several_truncations_at_once_keep_apart(play):
    # Five at a time: the valuation pads them to eight.
    _, _, (rollout,) = play((4,) * 5, endings=("truncated",), rollout_length=4)
    assert rollout.ends[3].all()
    assert len(np.unique(rollout.next_values[3])) == 5


# Episodes


def test_scores_are_unscaled_and_complete(play):
    actor, _, rollouts = play((3, 10), rollouts=3, endings=("terminated", "truncated"))
    episodes, faults = actor.take()
    assert faults == []
    first = [e for e in episodes if e.game == 0]
    assert [e.score for e in first] == [3 * (3 * i + 2) for i in range(7)]  # rewards 3i+1, 3i+2, 3i+3
    assert [e.length for e in first] == [3] * 7
    assert [(e.score, e.length) for e in episodes if e.game == 1] == [(55, 10), (155, 10)]  # across the seams
    values = np.concatenate([rollout.values for rollout in rollouts])
    np.testing.assert_allclose([e.value for e in first], values[:, 0].reshape(7, 3).mean(axis=1), rtol=1e-4, atol=1e-6)
    assert actor.take() == ([], [])


def test_an_episode_cut_by_a_fault_has_no_score(play):
    actor, _, _ = play((3, 4), endings=("truncated",), fault="engine died", rollout_length=6)
    assert actor.take() == ([], ["engine died"] * 3)


# Lives


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_a_lost_life_ends_the_return_and_nothing_else(play, core):
    actor, network, rollouts = play((4, 5, 7), rollouts=4, core=core, losses=(2, 3), endings=("terminated", "truncated"))
    for rollout in rollouts:
        _, episode, time, _ = codes(rollout)
        lost, over = np.isin(time[:-1], [1, 2]), time[:-1] == np.array([4, 5, 7]) - 1
        assert lost.any(axis=0).all()
        np.testing.assert_array_equal(rollout.ends, lost | over)
        np.testing.assert_array_equal(rollout.resets[1:], over)
        died = over & (episode[:-1] % 2 == 0)
        np.testing.assert_array_equal(rollout.discounts, np.where(lost | died, 0, np.float32(GAMMA)))
        # The core remembers across a lost life: what was played is what an unroll without a reset there gives.
        values = unroll(network, rollout, 8)[1]
        np.testing.assert_allclose(rollout.values, values[:-1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(rollout.next_values[~over], values[1:][~over], rtol=1e-4, atol=1e-6)
        if core == "lstm":
            reset = rollout._replace(resets=np.concatenate([rollout.resets[:1], rollout.ends.astype(np.float32)]))
            assert np.abs(unroll(network, reset, 7)[1] - values[:-1]).max() > 1e-3
    episodes, faults = actor.take()
    assert faults == []
    for game, length in enumerate((4, 5, 7)):
        firsts = np.arange(0, 28 - length + 1, length)
        played = [(e.score, e.length) for e in episodes if e.game == game]
        assert played == [(sum(range(first + 1, first + length + 1)), length) for first in firsts]


# Joining


def some_games(rollout, games):
    """Returns the part of a rollout that some of its games played."""
    columns = tf.nest.map_structure(lambda array: array[:, games], rollout._replace(core_state=()))
    return columns._replace(core_state=tuple(part[games] for part in rollout.core_state))


@pytest.mark.parametrize("variables", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
@pytest.mark.parametrize("seams", [(1,), (3,), (1, 2)])
def test_rollouts_of_some_games_each_join_to_that_of_all(play, core, variables, seams):
    _, _, rollouts = play((3, 4, 5, 6), rollouts=2, core=core, variables=variables)
    whole = rollouts[1]  # its core state is not zero
    bounds = itertools.pairwise((0, *seams, 4))
    joined = concatenated([some_games(whole, slice(*bound)) for bound in bounds])
    assert isinstance(joined, Rollout)
    tf.nest.assert_same_structure(joined, whole)
    for array, expected in zip(tf.nest.flatten(joined), tf.nest.flatten(whole), strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_a_single_rollout_joins_to_itself(play):
    _, _, (rollout,) = play()
    assert concatenated([rollout]) is rollout


def test_rollouts_of_different_lengths_do_not_join(play):
    (one,), (other,) = play()[2], play(rollout_length=6)[2]
    with pytest.raises(ValueError, match="dimension"):
        concatenated([one, other])


def test_without_bootstrap_only_the_values_after_the_rollout_are_missing(play):
    lengths, endings = (3, 7, 5), ("truncated",)  # the second game's episode ends with the rollout
    (whole,), (bare,) = (play(lengths, endings=endings, bootstrap=bootstrap)[2] for bootstrap in (True, False))
    goes_on = ~whole.ends[-1]
    assert goes_on.tolist() == [True, False, True]
    assert np.all(whole.next_values[-1])
    assert not bare.next_values[-1, goes_on].any()
    bare.next_values[-1, goes_on] = whole.next_values[-1, goes_on]
    for found, expected in zip(tf.nest.flatten(bare), tf.nest.flatten(whole), strict=True):
        np.testing.assert_array_equal(found, expected)


# Seeds


def test_workers_play_and_seed_differently(make_network):
    network = make_network()
    streams, seeds = set(), []
    for worker in range(16):
        games = [CountingEnv(i, 50) for i in range(2)]
        env = LocalVectorEnv([lambda game=game: game for game in games])
        actor = Actor(
            env,
            Policy(network),
            rollout_length=30,
            discount=GAMMA,
            reward_scale=1.0,
            seed=np.random.SeedSequence([0, 0, worker]),
        )
        actions = actor.rollout().actions
        actor.close()
        streams |= {tuple(actions[:, game]) for game in range(2)}
        seeds += [game.seeds[0] for game in games]
    assert len(streams) == 32
    assert len(set(seeds)) == 32
    assert None not in seeds


def test_a_seed_repeats_the_rollout(play):
    (one,), (same,), (other,) = (play(seed=seed)[2] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.actions, same.actions)
    np.testing.assert_array_equal(one.observations, same.observations)
    assert (one.actions != other.actions).any()
