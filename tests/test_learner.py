"""The learner's gradients against a loss written out by hand, and the shared model's bookkeeping."""

import threading
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from fakes import changed

from doom_a3c.config import Config
from doom_a3c.learner import Learner
from doom_a3c.model import GlobalModel
from doom_a3c.networks import variable_name
from doom_a3c.optimizers import Adam, RMSProp
from doom_a3c.returns import n_step_returns
from doom_a3c.rollouts import Rollout, concatenated

T, B, A = 6, 3, 3
SETTINGS = changed(
    Config(),
    discount=0.95,
    gae_lambda=0.9,
    entropy_cost=0.02,
    value_cost=0.4,
    max_grad_norm=1e6,
    normalize_advantages=False,
)


def random_rollout(network, seed=0):
    """Returns a rollout of noise with a termination and a truncation inside, from a core state that is not zero."""
    random = np.random.default_rng(seed)
    terminated, truncated = np.zeros((2, T, B), np.bool_)
    terminated[2, 0] = truncated[3, 1] = True
    ends = terminated | truncated
    resets = np.zeros((T + 1, B), np.float32)
    resets[1:] = ends
    values = random.normal(size=(T, B)).astype(np.float32)
    return Rollout(
        observations=random.integers(256, size=(T + 1, B, 8, 8, 1), dtype=np.uint8),
        resets=resets,
        core_state=tuple(tf.constant(random.normal(size=part.shape), tf.float32) for part in network.initial_state(B)),
        actions=random.integers(A, size=(T, B)).astype(np.int32),
        rewards=random.normal(size=(T, B)).astype(np.float32),
        discounts=np.where(terminated, 0, SETTINGS.discount).astype(np.float32),
        ends=ends,
        values=values,
        next_values=random.normal(size=(T, B)).astype(np.float32),
        log_probs=-2 * random.random(size=(T, B)).astype(np.float32),
    )


def by_hand(network, rollout, normalize=False):
    """Returns the terms of the loss and its gradients from the formulas, one decision at a time."""
    deltas = rollout.rewards + rollout.discounts * rollout.next_values - rollout.values
    advantages = np.zeros((T, B))
    following = np.zeros(B)
    for t in reversed(range(T)):
        following = deltas[t] + SETTINGS.discount * SETTINGS.gae_lambda * following * ~rollout.ends[t]
        advantages[t] = following
    returns = advantages + rollout.values
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    return loss_by_hand(network, rollout, advantages, returns)


def loss_by_hand(network, rollout, advantages, returns, entropy_cost=SETTINGS.entropy_cost.start):
    """Returns the terms of the loss with these targets and its gradients, one decision at a time."""
    policy = value = nats = 0.0
    with tf.GradientTape() as tape:
        core_state = rollout.core_state
        for t in range(T):
            output, core_state = network.step(rollout.observations[t], tf.constant(rollout.resets[t]), core_state)
            probabilities = tf.nn.softmax(output.logits)
            for b in range(B):
                policy -= advantages[t, b] * tf.math.log(probabilities[b, rollout.actions[t, b]]) / (T * B)
                value += 0.5 * (returns[t, b] - output.values[b]) ** 2 / (T * B)
                nats -= tf.reduce_sum(probabilities[b] * tf.math.log(probabilities[b])) / (T * B)
        total = policy + SETTINGS.value_cost * value - entropy_cost * nats
    return (policy, value, nats), tape.gradient(total, network.parameters)


def played_by(network, rollout):
    """Returns log-probabilities [T, B] of the rollout's actions and values [T+1, B], one decision at a time."""
    log_probs, values, core_state = [], [], rollout.core_state
    for t in range(T + 1):
        output, core_state = network.step(rollout.observations[t], tf.constant(rollout.resets[t]), core_state)
        values.append(output.values.numpy())
        if t < T:
            log_probs.append(np.log(tf.nn.softmax(output.logits).numpy()[np.arange(B), rollout.actions[t]]))
    return np.stack(log_probs), np.stack(values)


def vtrace_by_hand(network, rollout, rho_clip, c_clip, normalize=False):
    """Returns the terms of the loss and its gradients with the targets of V-trace, a sum for every decision."""
    log_probs, values = played_by(network, rollout)
    ratios = np.exp(log_probs - rollout.log_probs)
    next_values = np.where(rollout.ends, rollout.next_values, values[1:])
    deltas = np.minimum(rho_clip, ratios) * (rollout.rewards + rollout.discounts * next_values - values[:T])
    traces = SETTINGS.gae_lambda * np.minimum(c_clip, ratios)
    corrections = np.zeros((T + 1, B))
    for b in range(B):
        for s in range(T):
            weight = 1.0
            for t in range(s, T):
                corrections[s, b] += weight * deltas[t, b]
                if rollout.ends[t, b]:
                    break
                weight *= rollout.discounts[t, b] * traces[t, b]
    later = SETTINGS.gae_lambda * np.where(rollout.ends, 0, corrections[1:])
    targets = rollout.rewards + rollout.discounts * (next_values + later)
    advantages = np.minimum(rho_clip, ratios) * (targets - values[:T])
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
    return loss_by_hand(network, rollout, advantages, values[:T] + corrections[:T])


def decided(network, size=100):
    """Returns the network with a policy far from uniform: its ratios and its entropy's gradient are not trivial."""
    policy = next(p for p in network.parameters if variable_name(p) == "policy/kernel")
    policy.assign(size * policy)
    return network


def some_games(rollout, games):
    """Returns the part of a rollout that some of its games played."""
    columns = tf.nest.map_structure(lambda array: array[:, games], rollout._replace(core_state=()))
    return columns._replace(core_state=tuple(part[games] for part in rollout.core_state))


def assert_close(gradients, expected, rtol=1e-3):
    """Compares gradients with a tolerance that goes with the size of each."""
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=rtol, atol=rtol * np.abs(other).max())


def differ(gradients, others):
    """Tells whether gradients are further apart than rounding explains."""
    return norm([a - b for a, b in zip(gradients, others, strict=True)]) > 0.01 * norm(others)


def norm(arrays):
    return float(np.sqrt(sum(np.sum(np.square(array, dtype=np.float64)) for array in map(np.asarray, arrays))))


def learn(network, rollout, **changes):
    return Learner(network, changed(SETTINGS, **changes)).gradients([rollout], 0, 0)


def model_and_gradients(make_network, optimizer="adam", seed=0, value=0.1):
    network = make_network(seed=seed, name="global")
    slots = {"adam": Adam, "rmsprop": RMSProp}[optimizer](network.parameters)
    return GlobalModel(network, slots), [tf.fill(p.shape, value) for p in network.parameters]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_gradients_equal_those_by_hand(make_network, core, normalize):
    network = make_network(core=core)
    rollout = random_rollout(network)
    gradients, metrics, finite, version = Learner(network, changed(SETTINGS, normalize_advantages=normalize)).gradients(
        [rollout], 17, 0
    )
    terms, expected = by_hand(network, rollout, normalize)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-5)
    tags = ("Losses/Policy Loss", "Losses/Value Loss", "Losses/Entropy")
    np.testing.assert_allclose([metrics[tag] for tag in tags], terms, rtol=1e-4, atol=1e-6)
    assert metrics["Losses/Grad Norm"] == pytest.approx(norm(expected), rel=1e-4)
    assert metrics["Losses/Var Norm"] == pytest.approx(norm(network.parameters), rel=1e-4)
    assert finite
    assert version == 17


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", [2, 50])
def test_gradients_of_n_step_returns_equal_those_by_hand(make_network, n, tail):
    network = make_network()
    rollout = random_rollout(network)
    played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
    targets = n_step_returns(*played, n, tail)
    terms, expected = loss_by_hand(network, rollout, targets.advantages, targets.returns)
    gradients, metrics, _, _ = learn(network, rollout, advantage="n_step", n_step=n, n_step_tail=tail)
    assert_close(gradients, expected)
    assert metrics["Losses/Value Loss"] == pytest.approx(float(terms[1]), rel=1e-4)


@pytest.mark.parametrize(
    ("core", "changes"),
    [
        ("lstm", {"epsilon": 0.1}),
        ("none", {"engine": "queue"}),
        ("lstm", {"engine": "queue", "rho_clip": 1.4, "c_clip": 0.7}),
        ("lstm", {"engine": "queue", "rho_clip": 0.6, "normalize_advantages": True}),
    ],
)
def test_gradients_of_another_policys_rollout_equal_those_by_hand(make_network, core, changes):
    network = decided(make_network(core=core))
    rollout = random_rollout(network)
    ratios = np.exp(played_by(network, rollout)[0] - rollout.log_probs)
    clips = changes.get("rho_clip", 1.0), changes.get("c_clip", 1.0)
    assert ratios.min() < min(clips) <= max(clips) < ratios.max()
    terms, expected = vtrace_by_hand(network, rollout, *clips, changes.get("normalize_advantages", False))
    gradients, metrics, finite, _ = learn(network, rollout, **changes)
    assert_close(gradients, expected)
    tags = ("Losses/Policy Loss", "Losses/Value Loss", "Losses/Entropy")
    np.testing.assert_allclose([metrics[tag] for tag in tags], terms, rtol=1e-4, atol=1e-6)
    assert finite
    # The values of the network that played do not count, except behind an end.
    changed = rollout._replace(
        values=rollout.values + 1, next_values=np.where(rollout.ends, rollout.next_values, rollout.next_values + 1)
    )
    assert_close(learn(network, changed, **changes).gradients, gradients, rtol=1e-6)


def test_without_vtrace_a_rollout_of_another_policy_is_taken_as_played(make_network):
    network = decided(make_network())
    rollout = random_rollout(network)
    taken = learn(network, rollout, engine="queue", vtrace=False).gradients
    assert_close(taken, by_hand(network, rollout)[1])
    assert differ(learn(network, rollout, engine="queue").gradients, taken)
    assert_close(learn(network, rollout).gradients, taken, rtol=1e-6)  # the threads engine alone is on-policy


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_vtrace_of_the_policys_own_rollout_changes_nothing(make_network, core):
    network = decided(make_network(core=core))
    rollout = random_rollout(network)
    log_probs, values = played_by(network, rollout)
    next_values = np.where(rollout.ends, rollout.next_values, values[1:])
    own = rollout._replace(log_probs=log_probs, values=values[:T], next_values=next_values)
    expected = learn(network, own)
    for changes in ({"epsilon": 0.1}, {"engine": "queue", "rho_clip": 1e9, "c_clip": 1e9}):
        corrected = learn(network, own, **changes)
        assert_close(corrected.gradients, expected.gradients)
        for tag, number in expected.metrics.items():
            assert corrected.metrics[tag] == pytest.approx(number, rel=1e-4)
    assert differ(learn(network, rollout, engine="queue").gradients, learn(network, rollout).gradients)


# Several rollouts for one update


@pytest.mark.parametrize("max_grad_norm", [1e6, 0.05])
@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_gradients_of_rollouts_in_turn_equal_those_of_all_at_once(make_network, engine, max_grad_norm):
    network = decided(make_network())
    learner = Learner(network, changed(SETTINGS, engine=engine, max_grad_norm=max_grad_norm))
    rollouts = [random_rollout(network, seed) for seed in range(3)]
    in_turn, at_once = learner.gradients(rollouts, 5, 0), learner.gradients([concatenated(rollouts)], 5, 0)
    assert_close(in_turn.gradients, at_once.gradients)
    assert in_turn.version == 5
    for tag, number in at_once.metrics.items():
        assert in_turn.metrics[tag] == pytest.approx(number, rel=1e-4, abs=1e-6)
    assert in_turn.metrics["Losses/Grad Norm"] > 0.06
    if max_grad_norm < 1:  # the mean is clipped, not each part
        assert norm(in_turn.gradients) == pytest.approx(max_grad_norm, rel=1e-4)
    assert differ(learner.gradients(rollouts[:2], 5, 0).gradients, in_turn.gradients)


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_rollouts_of_more_games_weigh_more(make_network, engine):
    network = decided(make_network())
    learner = Learner(network, changed(SETTINGS, engine=engine, max_grad_norm=0.05))
    rollout = random_rollout(network)
    whole = learner.gradients([rollout], 0, 0)
    for parts in ([slice(0, 1), slice(1, 3)], [slice(0, 1), slice(1, 2), slice(2, 3)]):
        in_parts = learner.gradients([some_games(rollout, games) for games in parts], 0, 0)
        assert_close(in_parts.gradients, whole.gradients)
        for tag, number in whole.metrics.items():
            assert in_parts.metrics[tag] == pytest.approx(number, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_one_rollout_that_is_not_finite_spoils_the_update(make_network, engine):
    network = make_network()
    rollouts = [random_rollout(network, seed) for seed in range(3)]
    learner = Learner(network, changed(SETTINGS, engine=engine))
    assert learner.gradients(rollouts, 0, 0).finite
    rollouts[1].rewards[0, 0] = np.nan
    assert not learner.gradients(rollouts, 0, 0).finite


# Schedules


@pytest.mark.parametrize("changes", [{}, {"engine": "queue"}])
def test_the_entropy_cost_follows_its_schedule(make_network, changes):
    network = decided(make_network())
    rollout = random_rollout(network)
    schedule = {"entropy_cost": 3.0, "final_entropy_cost": 1.0, "entropy_cost_frames": 1000}
    learner = Learner(network, changed(SETTINGS, **changes, **schedule))
    nothing = np.zeros((T, B), np.float32)
    with_bonus, without = (loss_by_hand(network, rollout, nothing, nothing, cost)[1] for cost in (1.0, 0.0))
    bonus = [a - b for a, b in zip(with_bonus, without, strict=True)]  # the gradient of -H
    free = learn(network, rollout, entropy_cost=0.0, **changes).gradients
    for frames, cost in ((0, 3.0), (250, 2.5), (1000, 1.0), (9000, 1.0), (500, 2.0)):
        gradients = learner.gradients([rollout], 0, frames).gradients
        assert_close(gradients, [a + cost * b for a, b in zip(free, bonus, strict=True)])
        assert differ(gradients, [a + (cost + 0.4) * b for a, b in zip(free, bonus, strict=True)])


def test_every_parameter_learns(make_network):
    network = make_network()
    for parameter, gradient in zip(network.parameters, learn(network, random_rollout(network))[0], strict=True):
        assert np.abs(gradient).max() > 0, parameter.name


def test_the_bootstrap_row_takes_no_part_in_the_loss(make_network):
    network = make_network()
    rollout = random_rollout(network)
    other = rollout.observations.copy()
    other[-1] = 255 - other[-1]
    resets = rollout.resets.copy()
    resets[-1] = 1 - resets[-1]
    changed = rollout._replace(observations=other, resets=resets)
    for a, b in zip(learn(network, rollout).gradients, learn(network, changed).gradients, strict=True):
        np.testing.assert_array_equal(a, b)


def test_clipping_keeps_the_direction(make_network):
    network = make_network()
    rollout = random_rollout(network)
    free = learn(network, rollout)
    before = free.metrics["Losses/Grad Norm"]
    clipped = learn(network, rollout, max_grad_norm=before / 3)
    assert norm(clipped.gradients) == pytest.approx(before / 3, rel=1e-4)
    assert clipped.metrics["Losses/Grad Norm"] == pytest.approx(before, rel=1e-5)
    for a, b in zip(clipped.gradients, free.gradients, strict=True):
        np.testing.assert_allclose(a, b / 3, rtol=1e-4, atol=1e-8)


def test_small_gradients_are_not_clipped(make_network):
    network = make_network()
    rollout = random_rollout(network)
    free = learn(network, rollout)
    below = learn(network, rollout, max_grad_norm=2 * free.metrics["Losses/Grad Norm"])
    for a, b in zip(below.gradients, free.gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["rewards", "next_values"])
def test_targets_that_are_not_finite_are_reported(make_network, where, bad):
    network = make_network()
    rollout = random_rollout(network)
    assert learn(network, rollout).finite
    array = getattr(rollout, where).copy()
    array[0, 0] = bad
    assert not learn(network, rollout._replace(**{where: array})).finite


def test_weights_that_are_not_finite_are_reported(make_network):
    network = make_network()
    network.parameters[0].assign(np.full(network.parameters[0].shape, np.nan))
    assert not learn(network, random_rollout(network)).finite


def test_gradients_leave_the_weights_alone(make_network):
    network = make_network()
    before = [parameter.numpy() for parameter in network.parameters]
    learn(network, random_rollout(network))
    for parameter, array in zip(network.parameters, before, strict=True):
        np.testing.assert_array_equal(parameter, array)


def test_pull_copies_what_apply_wrote(make_network):
    model, gradients = model_and_gradients(make_network)
    local = make_network(seed=1, name="local")
    before = [parameter.numpy() for parameter in model.network.parameters]
    model.apply(gradients, 0.01)
    assert model.pull(local) == 1
    for parameter, shared, old in zip(local.parameters, model.network.parameters, before, strict=True):
        np.testing.assert_array_equal(parameter, shared)
        np.testing.assert_allclose(shared, old - 0.01, rtol=1e-4, atol=1e-6)  # Adam's first step is the rate
    model.apply(gradients, 0.01)
    for parameter, shared in zip(local.parameters, model.network.parameters, strict=True):
        assert (parameter.numpy() != shared.numpy()).all()  # a copy, not the variable


def test_apply_returns_the_updates_before_it(make_network):
    model, gradients = model_and_gradients(make_network)
    assert [model.apply(gradients, 0.01) for _ in range(3)] == [0, 1, 2]
    assert model.version == 3


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_restored_model_goes_on_as_if_nothing_had_happened(make_network, optimizer):
    model, _ = model_and_gradients(make_network, optimizer)
    restored, _ = model_and_gradients(make_network, optimizer, seed=1)
    random = np.random.default_rng(0)
    updates = [[tf.constant(random.normal(size=p.shape), tf.float32) for p in model.network.parameters]] * 3
    for gradients in updates[:2]:
        model.apply(gradients, 0.01)
    restored.restore(model.snapshot(), model.version)
    assert restored.version == 2
    model.apply(updates[2], 0.01)
    restored.apply(updates[2], 0.01)
    one, other = model.snapshot(), restored.snapshot()
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_a_snapshot_holds_parameters_and_slots_of_the_global_network_alone(make_network):
    model, _ = model_and_gradients(make_network)
    parameters = {variable_name(parameter) for parameter in model.network.parameters}
    slots = {f"{name}/adam_{moment}" for name in parameters for moment in "mv"}
    assert model.snapshot().keys() == parameters | slots | {"adam_beta_1_power", "adam_beta_2_power"}


def test_a_snapshot_is_a_copy(make_network):
    model, gradients = model_and_gradients(make_network)
    snapshot = model.snapshot()
    copies = {name: array.copy() for name, array in snapshot.items()}
    model.apply(gradients, 0.01)
    for name, array in snapshot.items():
        np.testing.assert_array_equal(array, copies[name])


def test_a_snapshot_of_another_shape_changes_nothing(make_network):
    model, _ = model_and_gradients(make_network)
    before = model.snapshot()
    wrong = {name: array + 1 for name, array in before.items()}
    wrong["policy/kernel"] = np.zeros((5, 4), np.float32)
    with pytest.raises(ValueError, match="policy/kernel"):
        model.restore(wrong, 9)
    for name, array in model.snapshot().items():
        np.testing.assert_array_equal(array, before[name])
    assert model.version == 0


def test_a_snapshot_of_another_optimizer_or_network_raises(make_network):
    model, _ = model_and_gradients(make_network, "adam")
    other, _ = model_and_gradients(make_network, "rmsprop")
    with pytest.raises(ValueError, match="variables differ"):
        model.restore(other.snapshot(), 1)
    with pytest.raises(ValueError, match="lstm"):
        model.restore(model_and_gradients(partial(make_network, core="none"))[0].snapshot(), 1)


def test_updates_of_many_threads_all_count_and_are_never_torn(make_network):
    model, gradients = model_and_gradients(make_network)
    start = [parameter.numpy().astype(np.float64) for parameter in model.network.parameters]
    threads, each = 8, 25
    returned, torn = [], []

    def work():
        local = make_network(seed=3)
        for _ in range(each):
            returned.append(model.apply(gradients, 0.001))
            version = model.pull(local)
            # Equal gradients everywhere: every parameter has moved by the rate times the number of updates.
            moved = [
                np.abs(old - p.numpy() - 0.001 * version).max() for old, p in zip(start, local.parameters, strict=True)
            ]
            torn.extend(distance for distance in moved if distance > 1e-4)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(returned) == list(range(threads * each))
    assert model.version == threads * each
    assert torn == []
    power = model.snapshot()["adam_beta_2_power"]
    assert power == pytest.approx(0.999 ** (threads * each + 1), rel=1e-4)
