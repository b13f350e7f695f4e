"""The global model: applying and pulling, also by many threads at once, and snapshots."""

import threading
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.rollouts import RolloutStats
from doom_a3c.algorithm.optimizers import Adam, RMSProp
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.local import capture_state
from doom_a3c.engines.updates import count_rollout
from doom_a3c.record.metrics.progress import Progress


def model_and_gradients(make_network, optimizer="adam", seed=0, value=0.1):
    network = make_network(seed=seed, name="global")
    slots = {"adam": Adam, "rmsprop": RMSProp}[optimizer](network.parameters)
    return GlobalModel(network, slots), [tf.fill(p.shape, value) for p in network.parameters]


def test_pull_copies_what_apply_wrote(make_network):
    model, gradients = model_and_gradients(make_network)
    local = make_network(seed=1, name="local")
    before = [parameter.numpy() for parameter in model.network.parameters]
    model.apply(gradients, 0.01)
    model.pull(local)
    assert local.version == 1
    for parameter, shared, old in zip(local.parameters, model.network.parameters, before, strict=True):
        np.testing.assert_array_equal(parameter, shared)
        np.testing.assert_allclose(shared, old - 0.01, rtol=1e-4, atol=1e-6)  # Adam's first step is the learning rate
    model.apply(gradients, 0.01)
    for parameter, shared in zip(local.parameters, model.network.parameters, strict=True):
        assert (parameter.numpy() != shared.numpy()).all()  # a copy, not the variable


def test_apply_returns_the_number_of_updates_before_it(make_network):
    model, gradients = model_and_gradients(make_network)
    assert [model.apply(gradients, 0.01) for _ in range(3)] == [0, 1, 2]
    assert model.version == 3


def test_gradients_from_before_a_roll_back_are_not_applied(make_network):
    model, gradients = model_and_gradients(make_network)
    model.roll_back(model.snapshot())
    before = model.snapshot()
    assert model.apply(gradients, 0.01, version=0) is None
    assert model.version == 1
    assert all(np.array_equal(value, before[name]) for name, value in model.snapshot().items())
    assert model.apply(gradients, 0.01, version=1) == 1


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_restored_model_continues_identically(make_network, optimizer):
    model, _ = model_and_gradients(make_network, optimizer)
    restored, _ = model_and_gradients(make_network, optimizer, seed=1)
    random = np.random.default_rng(0)
    updates = [[tf.constant(random.normal(size=p.shape), tf.float32) for p in model.network.parameters]] * 3
    for gradients in updates[:2]:
        model.apply(gradients, 0.01)
    restored.restore(model.snapshot(), model.updates)
    assert restored.version == 2
    model.apply(updates[2], 0.01)
    restored.apply(updates[2], 0.01)
    one, other = model.snapshot(), restored.snapshot()
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_a_snapshot_holds_only_global_parameters_and_slots(make_network):
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


def test_a_snapshot_of_another_shape_raises_and_changes_nothing(make_network):
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


def test_concurrent_updates_are_all_applied_whole(make_network):
    model, gradients = model_and_gradients(make_network)
    start = [parameter.numpy().astype(np.float64) for parameter in model.network.parameters]
    threads, each = 8, 25
    returned, torn = [], []

    def work():
        local = make_network(seed=3)
        for _ in range(each):
            returned.append(model.apply(gradients, 0.001))
            model.pull(local)
            # Equal gradients everywhere: every parameter has moved by the rate times the number of updates.
            moved = [
                np.abs(old - p.numpy() - 0.001 * local.version).max()
                for old, p in zip(start, local.parameters, strict=True)
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


def test_captured_weights_and_counters_are_consistent(make_network):
    (model, gradients), progress, stop = model_and_gradients(make_network), Progress(), threading.Event()

    def learn():
        while not stop.is_set():
            count_rollout(RolloutStats(10, 40, [], [], [], RunningMoments(10, 1.0, 2.0)), progress, model.reward_stats)
            model.apply(gradients, 1e-3)
            progress.add_update(0.0, 0)

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    states = [capture_state(model, progress) for _ in range(50)]
    stop.set()
    for thread in threads:
        thread.join()
    for state in states:  # Adam counts its updates, too
        assert state.counters.reward_sums.size <= state.counters.steps
        power = float(state.variables["adam_beta_2_power"])
        assert power == pytest.approx(0.999 ** (state.counters.updates + 1), rel=3e-4)
        assert state.counters.steps >= 10 * state.counters.updates
