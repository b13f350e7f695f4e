"""The learner's gradients against a loss written out by hand, and the shared model's bookkeeping."""

import threading
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.config import Config
from doom_a3c.learner import GlobalModel, Learner
from doom_a3c.networks import variable_name
from doom_a3c.optimizers import Adam, RMSProp
from doom_a3c.rollouts import Rollout

T, B, A = 6, 3, 3
SETTINGS = {
    "discount": 0.95,
    "gae_lambda": 0.9,
    "entropy_cost": 0.02,
    "value_cost": 0.4,
    "max_grad_norm": 1e6,
    "normalize_advantages": False,
}


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
        discounts=np.where(terminated, 0, SETTINGS["discount"]).astype(np.float32),
        ends=ends,
        values=values,
        next_values=random.normal(size=(T, B)).astype(np.float32),
        log_probs=-random.random(size=(T, B)).astype(np.float32),
    )


def by_hand(network, rollout, normalize=False):
    """Returns the terms of the loss and its gradients from the formulas, one decision at a time."""
    deltas = rollout.rewards + rollout.discounts * rollout.next_values - rollout.values
    advantages = np.zeros((T, B))
    following = np.zeros(B)
    for t in reversed(range(T)):
        following = deltas[t] + SETTINGS["discount"] * SETTINGS["gae_lambda"] * following * ~rollout.ends[t]
        advantages[t] = following
    returns = advantages + rollout.values
    if normalize:
        advantages = (advantages - advantages.mean()) / advantages.std()
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
        total = policy + SETTINGS["value_cost"] * value - SETTINGS["entropy_cost"] * nats
    return (policy, value, nats), tape.gradient(total, network.parameters)


def norm(arrays):
    return float(np.sqrt(sum(np.sum(np.square(array, dtype=np.float64)) for array in map(np.asarray, arrays))))


def learn(network, rollout, **changes):
    return Learner(network, Config(**{**SETTINGS, **changes})).gradients([rollout], 0, 0)


def model_and_gradients(make_network, optimizer="adam", seed=0, value=0.1):
    network = make_network(seed=seed, name="global")
    slots = {"adam": Adam, "rmsprop": RMSProp}[optimizer](network.parameters)
    return GlobalModel(network, slots), [tf.fill(p.shape, value) for p in network.parameters]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_gradients_equal_those_by_hand(make_network, core, normalize):
    network = make_network(core=core)
    rollout = random_rollout(network)
    gradients, metrics, finite, version = Learner(
        network, Config(**{**SETTINGS, "normalize_advantages": normalize})
    ).gradients([rollout], 17, 0)
    terms, expected = by_hand(network, rollout, normalize)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-5)
    tags = ("Losses/Policy Loss", "Losses/Value Loss", "Losses/Entropy")
    np.testing.assert_allclose([metrics[tag] for tag in tags], terms, rtol=1e-4, atol=1e-6)
    assert metrics["Losses/Grad Norm"] == pytest.approx(norm(expected), rel=1e-4)
    assert metrics["Losses/Var Norm"] == pytest.approx(norm(network.parameters), rel=1e-4)
    assert finite
    assert version == 17


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
