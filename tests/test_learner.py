"""The learner's gradients against a loss written out by hand."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from by_hand import (
    SETTINGS,
    B,
    T,
    advantages_by_hand,
    assert_close,
    corrected_by_hand,
    decided,
    differ,
    gae_by_hand,
    loss_by_hand,
    norm,
    own_rollout,
    played_by,
    ppo_by_hand,
    random_rollout,
    some_games,
    vtrace_by_hand,
)
from fakes import changed

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.rollouts import concatenate
from doom_a3c.agent.targets import PlayedTargets
from doom_a3c.algorithm.optimizers import Adam
from doom_a3c.algorithm.returns import n_step_returns
from doom_a3c.engines.train_metrics import summarize_updates


def learn(network, rollout, **changes):
    learner = Learner(network, changed(SETTINGS, **changes), 0)
    return learner.compute_gradients([learner.prepare(rollout)], 0)


def gradients_of(learner, rollouts, frames=0):
    return learner.compute_gradients([learner.prepare(rollout) for rollout in rollouts], frames)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("core", list_cores())
def test_gradients_match_the_loss_by_hand(make_network, core, normalize):
    network = make_network(core=core)
    rollout = random_rollout(network)
    gradients, metrics, finite, *_ = learn(network, rollout, normalize_advantages=normalize)
    terms, expected = gae_by_hand(network, rollout, normalize)
    for gradient, other in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(metrics[:3], terms, rtol=1e-4, atol=1e-6)
    assert metrics.grad_norm == pytest.approx(norm(expected), rel=1e-4)
    assert metrics.var_norm == pytest.approx(norm(network.parameters), rel=1e-4)
    assert finite


@pytest.mark.parametrize("tail", ["bootstrap", "zero"])
@pytest.mark.parametrize("n", [2, 50])
def test_n_step_gradients_match_the_loss_by_hand(make_network, n, tail):
    network = make_network()
    rollout = random_rollout(network)
    played = (rollout.rewards, rollout.discounts, rollout.ends, rollout.values, rollout.next_values)
    targets = n_step_returns(*played, n, tail)
    terms, expected = loss_by_hand(network, rollout, targets.advantages, targets.returns)
    gradients, metrics, *_ = learn(network, rollout, advantage="n_step", n_step=n, n_step_tail=tail)
    assert_close(gradients, expected)
    assert metrics.value_loss == pytest.approx(float(terms[1]), rel=1e-4)


@pytest.mark.parametrize(
    ("core", "changes"),
    [
        ("lstm", {"epsilon": 0.1}),
        ("none", {"engine": "queue"}),
        ("lstm", {"engine": "queue", "rho_clip": 1.4, "c_clip": 0.7}),
        ("lstm", {"engine": "queue", "rho_clip": 0.6, "normalize_advantages": True}),
    ],
)
def test_off_policy_gradients_match_the_loss_by_hand(make_network, core, changes):
    network = decided(make_network(core=core))
    rollout = random_rollout(network)
    ratios = np.exp(played_by(network, rollout)[0] - rollout.log_probs)
    clips = changes.get("rho_clip", 1.0), changes.get("c_clip", 1.0)
    assert ratios.min() < min(clips) <= max(clips) < ratios.max()
    terms, expected = vtrace_by_hand(network, rollout, *clips, changes.get("normalize_advantages", False))
    gradients, metrics, finite, *_ = learn(network, rollout, **changes)
    assert_close(gradients, expected)
    np.testing.assert_allclose(metrics[:3], terms, rtol=1e-4, atol=1e-6)
    assert finite
    # The values of the network that played do not count, except after an end.
    changed = rollout._replace(
        values=rollout.values + 1, next_values=np.where(rollout.ends, rollout.next_values, rollout.next_values + 1)
    )
    assert_close(learn(network, changed, **changes).gradients, gradients, rtol=1e-6)


@pytest.mark.parametrize("changes", [{"epsilon": 0.4}, {"engine": "queue"}, {"engine": "queue", "epochs": 2}])
def test_equal_rewards_with_normalized_advantages_teach_nothing(make_network, changes):
    network = decided(make_network(core="none"))
    rollout = random_rollout(network)  # its log-probabilities come from another policy, so the ratios differ
    one_state = np.broadcast_to(rollout.observations[:1, :1], rollout.observations.shape)
    bandit = rollout._replace(
        observations=one_state,
        rewards=np.ones((T, B), np.float32),
        discounts=np.zeros((T, B), np.float32),
        ends=np.ones((T, B), np.bool_),
    )
    free = {"entropy_cost": 0.0, "uniform_cost": 0.0, "value_cost": 0.0, "clip_range": 1e9}
    found = learn(network, bandit, normalize_advantages=True, **free, **changes)
    assert found.metrics.grad_norm < 1e-5
    assert learn(network, bandit, **free, **changes).metrics.grad_norm > 0.01


def test_without_vtrace_rollouts_are_treated_as_on_policy(make_network):
    network = decided(make_network())
    rollout = random_rollout(network)
    taken = learn(network, rollout, engine="queue", vtrace=False).gradients
    assert_close(taken, gae_by_hand(network, rollout)[1])
    assert differ(learn(network, rollout, engine="queue").gradients, taken)
    assert_close(learn(network, rollout).gradients, taken, rtol=1e-6)  # the threads engine alone is on-policy


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_vtrace_changes_nothing_on_policy(make_network, core):
    network = decided(make_network(core=core))
    rollout, own = random_rollout(network), own_rollout(network)
    expected = learn(network, own)
    for changes in ({"epsilon": 0.1}, {"engine": "queue", "rho_clip": 1e9, "c_clip": 1e9}):
        corrected = learn(network, own, **changes)
        assert_close(corrected.gradients, expected.gradients)
        assert corrected.metrics == pytest.approx(expected.metrics, rel=1e-4)
    assert differ(learn(network, rollout, engine="queue").gradients, learn(network, rollout).gradients)


# Several rollouts per update


@pytest.mark.parametrize("max_grad_norm", [1e6, 0.05])
@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_gradients_of_rollouts_in_turn_equal_those_of_one_batch(make_network, engine, max_grad_norm):
    network = decided(make_network())
    learner = Learner(network, changed(SETTINGS, engine=engine, max_grad_norm=max_grad_norm), 0)
    rollouts = [random_rollout(network, seed) for seed in range(3)]
    in_turn, at_once = gradients_of(learner, rollouts), gradients_of(learner, [concatenate(rollouts)])
    assert_close(in_turn.gradients, at_once.gradients)
    assert in_turn.metrics == pytest.approx(at_once.metrics, rel=1e-4, abs=1e-6)
    assert in_turn.metrics.grad_norm > 0.06
    if max_grad_norm < 1:  # the mean is clipped, not each part
        assert norm(in_turn.gradients) == pytest.approx(max_grad_norm, rel=1e-4)
    assert differ(gradients_of(learner, rollouts[:2]).gradients, in_turn.gradients)


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_rollouts_are_weighted_by_their_number_of_games(make_network, engine):
    network = decided(make_network())
    learner = Learner(network, changed(SETTINGS, engine=engine, max_grad_norm=0.05), 0)
    rollout = random_rollout(network)
    whole = gradients_of(learner, [rollout])
    for parts in ([slice(0, 1), slice(1, 3)], [slice(0, 1), slice(1, 2), slice(2, 3)]):
        in_parts = gradients_of(learner, [some_games(rollout, games) for games in parts])
        assert_close(in_parts.gradients, whole.gradients)
        assert in_parts.metrics == pytest.approx(whole.metrics, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("engine", ["threads", "queue"])
def test_one_non_finite_rollout_makes_the_update_non_finite(make_network, engine):
    network = make_network()
    rollouts = [random_rollout(network, seed) for seed in range(3)]
    learner = Learner(network, changed(SETTINGS, engine=engine), 0)
    assert gradients_of(learner, rollouts).finite
    rollouts[1].rewards[0, 0] = np.nan
    assert not gradients_of(learner, rollouts).finite


# Several updates from the same rollouts


@pytest.mark.parametrize(("engine", "by_hand"), [("threads", gae_by_hand), ("queue", vtrace_by_hand)])
def test_repeated_updates_use_the_current_weights(make_network, engine, by_hand):
    network, local = decided(make_network(name="global")), make_network(name="local")
    model, clips = GlobalModel(network, Adam(network.parameters)), (1.0, 1.0) if engine == "queue" else ()
    learner = Learner(local, changed(SETTINGS, engine=engine), 0)
    rollouts = [random_rollout(local, seed) for seed in range(2)]
    batches, steps = [learner.prepare(rollout) for rollout in rollouts], []
    for _ in range(4):
        model.pull(local)
        steps.append(learner.compute_gradients(batches, 0).gradients)
        each = [by_hand(local, rollout, *clips)[1] for rollout in rollouts]
        assert_close(steps[-1], [(one + other) / 2 for one, other in zip(*each, strict=True)])
        model.apply(steps[-1], 0.01)
    assert all(differ(one, other) for one, other in itertools.pairwise(steps))
    assert model.version == 4


# Schedules


@pytest.mark.parametrize("changes", [{}, {"engine": "queue"}])
def test_the_entropy_cost_follows_its_schedule(make_network, changes):
    network = decided(make_network())
    rollout = random_rollout(network)
    schedule = {"entropy_cost": 3.0, "final_entropy_cost": 1.0, "entropy_cost_frames": 1000}
    learner = Learner(network, changed(SETTINGS, **changes, **schedule), 0)
    nothing = np.zeros((T, B), np.float32)
    with_bonus, without = (loss_by_hand(network, rollout, nothing, nothing, cost)[1] for cost in (1.0, 0.0))
    bonus = [a - b for a, b in zip(with_bonus, without, strict=True)]  # the gradient of -H
    free = learn(network, rollout, entropy_cost=0.0, **changes).gradients
    for frames, cost in ((0, 3.0), (250, 2.5), (1000, 1.0), (9000, 1.0), (500, 2.0)):
        gradients = gradients_of(learner, [rollout], frames).gradients
        assert_close(gradients, [a + cost * b for a, b in zip(free, bonus, strict=True)])
        assert differ(gradients, [a + (cost + 0.4) * b for a, b in zip(free, bonus, strict=True)])


def test_every_parameter_gets_a_gradient(make_network):
    network = make_network()
    for parameter, gradient in zip(network.parameters, learn(network, random_rollout(network))[0], strict=True):
        assert np.abs(gradient).max() > 0, parameter.name


def test_the_bootstrap_row_does_not_affect_the_gradients(make_network):
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
    before = free.metrics.grad_norm
    clipped = learn(network, rollout, max_grad_norm=before / 3)
    assert norm(clipped.gradients) == pytest.approx(before / 3, rel=1e-4)
    assert clipped.metrics.grad_norm == pytest.approx(before, rel=1e-5)
    for a, b in zip(clipped.gradients, free.gradients, strict=True):
        np.testing.assert_allclose(a, b / 3, rtol=1e-4, atol=1e-8)


def test_small_gradients_are_not_clipped(make_network):
    network = make_network()
    rollout = random_rollout(network)
    free = learn(network, rollout)
    below = learn(network, rollout, max_grad_norm=2 * free.metrics.grad_norm)
    for a, b in zip(below.gradients, free.gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["rewards", "next_values"])
def test_non_finite_targets_are_reported(make_network, where, bad):
    network = make_network()
    rollout = random_rollout(network)
    assert learn(network, rollout).finite
    array = getattr(rollout, where).copy()
    array[0, 0] = bad
    assert not learn(network, rollout._replace(**{where: array})).finite


def test_non_finite_weights_are_reported(make_network):
    network = make_network()
    network.parameters[0].assign(np.full(network.parameters[0].shape, np.nan))
    assert not learn(network, random_rollout(network)).finite


def test_computing_gradients_leaves_the_weights_alone(make_network):
    network = make_network()
    before = [parameter.numpy() for parameter in network.parameters]
    learn(network, random_rollout(network))
    for parameter, array in zip(network.parameters, before, strict=True):
        np.testing.assert_array_equal(parameter, array)


@pytest.mark.parametrize("core", list_cores())
def test_the_first_epoch_follows_a3c_and_later_ones_ppo(make_network, core):
    network, clip = decided(make_network(core=core)), 0.02
    rollout = random_rollout(network)
    own = rollout._replace(log_probs=played_by(network, rollout)[0].astype(np.float32))
    learner = Learner(network, changed(SETTINGS, epochs=3, clip_range=clip), 0)
    batch, optimizer = learner.prepare(own), Adam(network.parameters)
    first = learner.compute_gradients([batch], 0)
    assert_close(first.gradients, learn(network, own).gradients)
    clipped = []
    for _ in range(3):
        optimizer.apply(learner.compute_gradients([batch], 0).gradients, 0.002)
        network.refresh()
        expected, count = ppo_by_hand(network, own, clip)
        assert_close(learner.compute_gradients([batch], 0).gradients, expected)
        clipped.append(count)
    assert 0 < clipped[-1] < T * B
    assert differ(expected, gae_by_hand(network, own)[1])


def test_each_epoch_reshuffles_the_games_of_every_batch(make_network):
    network, epochs = make_network(), 2
    learner = Learner(network, changed(SETTINGS, epochs=epochs, minibatches=2), 0)
    batches = [
        learner.prepare(concatenate([random_rollout(network, seed=seed)] * times)) for seed, times in ((1, 1), (2, 2))
    ]
    for place, batch in enumerate(batches):  # every array holds the index of its game
        marks = np.arange(batch.sequences, dtype=np.float32)
        whole = tf.nest.map_structure(
            lambda array, marks=marks: np.broadcast_to(marks, array.shape[:2]), batch._replace(core_state=())
        )
        batches[place] = whole._replace(core_state=tuple(marks for _ in batch.core_state))
    updates, orders = list(learner.deal_minibatches(batches)), []
    assert [last for _, last in updates] == [False, False, False, True]
    for half in (updates[:2], updates[2:]):
        for place, batch in enumerate(batches):
            parts = [part[place] for part, _ in half]
            dealt = [list(part.actions[0]) for part in parts]
            orders.append(list(itertools.chain(*dealt)))
            assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
            assert sorted(orders[-1]) == list(range(batch.sequences))
            for part, games in zip(parts, dealt, strict=True):
                assert all((array == games).all() for array in tf.nest.flatten(part))
    assert orders[1] != orders[3]


def test_without_a_core_single_steps_are_shuffled(make_network):
    network = make_network(core="none")
    learner = Learner(network, changed(SETTINGS, epochs=2, minibatches=3), 0)
    rollout = random_rollout(network)
    numbers = np.arange(T * B).reshape(T, B)  # every array holds the index of its step
    marked = rollout._replace(
        actions=numbers, log_probs=numbers.astype(np.float32), observations=np.arange((T + 1) * B).reshape(T + 1, B)
    )
    parts = [part for (part,), _ in learner.deal_minibatches([learner.prepare(marked)])]
    targets = PlayedTargets(SETTINGS, None).prepare(rollout)
    orders = [np.concatenate([part.actions[0] for part in half]).tolist() for half in (parts[:3], parts[3:])]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(T * B))
    assert orders[0] != orders[1] != list(range(T * B)) != orders[0]
    for part in parts:
        steps = part.actions[0]
        assert part.actions.shape == (1, T * B // 3)
        assert (part.log_probs == steps).all()
        assert (part.observations == steps).all()
        assert (part.resets == rollout.resets[:T].ravel()[steps]).all()
        for array, whole in zip(part.basis, targets, strict=True):
            assert (array == whole.ravel()[steps]).all()


@pytest.mark.parametrize("core", [name for name in list_cores() if name != "none"])
@pytest.mark.parametrize("changes", [{"engine": "threads"}, {"engine": "queue", "vtrace": False}])
def test_with_a_core_sequences_keep_their_initial_state(make_network, core, changes):
    network, length = decided(make_network(core=core)), 2
    settings = changed(SETTINGS, epochs=2, minibatches=3, sequence_length=length)
    learner, plain = Learner(network, changed(settings, **changes), 0), Learner(network, settings, 0)
    rollout = own_rollout(network)
    numbers = np.arange(T * B).reshape(T, B)  # of steps
    batch = learner.prepare(rollout)._replace(actions=plain.prepare(rollout._replace(actions=numbers)).actions)
    values = played_by(network, rollout)[1]
    orders, whole = [], Learner(network, changed(SETTINGS, **changes), 0).prepare(rollout)
    for (part,), _ in learner.deal_minibatches([batch]):
        steps = part.actions
        assert steps.shape == (length, T * B // length // 3)
        assert (steps[0] % (length * B) < B).all()
        assert (np.diff(steps, axis=0) == B).all()
        orders.append(steps[0].tolist())
        seen, _ = network.unroll(part.observations, part.resets, part.core_state)
        np.testing.assert_allclose(np.reshape(seen.values, steps.shape), values.ravel()[steps], atol=1e-5)
        for array, expected in zip((part.log_probs, *part.basis), (whole.log_probs, *whole.basis), strict=True):
            np.testing.assert_array_equal(array, np.reshape(expected, -1)[steps])
    first, second = orders[:3], orders[3:]
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == numbers[::length].ravel().tolist()
    assert first != second


def test_vtrace_keeps_games_whole_even_without_a_core(make_network):
    network = make_network(core="none")
    learner = Learner(network, changed(SETTINGS, engine="queue", epochs=1, minibatches=3), 0)
    games = np.tile(np.arange(B), (T, 1))  # of each step, in place of its action
    batch = learner.prepare(random_rollout(network)._replace(actions=games))
    parts = [part.actions for (part,), _ in learner.deal_minibatches([batch])]
    assert all(part.shape == (T, 1) and (part == part[0]).all() for part in parts)
    assert sorted(int(part[0, 0]) for part in parts) == list(range(B))


@pytest.mark.parametrize(("epochs", "ends"), [(1, False), (3, False), (3, True)])
def test_updates_continue_until_apply_returns_false(make_network, epochs, ends):
    network, steps = decided(make_network()), []
    learner = Learner(network, changed(SETTINGS, epochs=epochs), 0)

    def apply(gradients, last):
        steps.append("last" if last else "apply")
        return not (ends and len(steps) == 3)

    update = learner.learn([learner.prepare(own_rollout(network))], lambda: 0, apply, lambda: steps.append("pull"))
    whole = [*["apply", "pull"] * (epochs - 1), "last"]
    assert steps == (whole[:3] if ends else whole)
    assert (update is None) == ends
    assert update is None or update.clips == (epochs > 1)


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_train_metrics_match_those_of_stable_baselines3(make_network, core):
    network, clip = decided(make_network(core=core)), 0.2
    rollout = random_rollout(network)
    learner = Learner(network, changed(SETTINGS, epochs=2, minibatches=3, clip_range=clip), 0)
    update = learner.learn([learner.prepare(rollout)], lambda: 0, lambda *_: True, lambda: None)
    log_probs, values = played_by(network, rollout)
    ratios = np.exp(log_probs - rollout.log_probs)
    advantages, returns = advantages_by_hand(rollout)
    surrogates = np.minimum(ratios * advantages, np.clip(ratios, 1 - clip, 1 + clip) * advantages)
    fraction = (np.abs(ratios - 1) > clip).mean()
    assert 0 < fraction < 1
    assert summarize_updates(update)._asdict() == pytest.approx(
        {
            "policy_gradient_loss": -surrogates.mean(),
            "value_loss": np.mean((returns - values[:T]) ** 2),
            "entropy_loss": -float(loss_by_hand(network, rollout, advantages, returns)[0][2]),
            "approx_kl": (ratios - 1 - np.log(ratios)).mean(),
            "clip_fraction": fraction,
            "explained_variance": 1 - np.var(returns - rollout.values) / np.var(returns),
        },
        rel=1e-4,
    )


def test_the_kl_covers_the_last_epoch_and_other_metrics_all(make_network):
    network = decided(make_network())
    learner = Learner(network, changed(SETTINGS, epochs=2, minibatches=3), 0)
    batch, made = learner.prepare(random_rollout(network)), []

    def apply(gradients, last):
        made.append(gradients)
        for parameter in network.parameters if len(made) == 3 else ():
            parameter.assign(1.1 * parameter)
        return True

    train = summarize_updates(learner.learn([batch], lambda: 0, apply, network.refresh))
    assert train.approx_kl == pytest.approx(np.mean([each.change.kl for each in made[3:]]))
    assert train.approx_kl != pytest.approx(np.mean([each.change.kl for each in made]))
    assert train.clip_fraction == pytest.approx(np.mean([each.change.clip_fraction for each in made]))
    assert train.value_loss == pytest.approx(2 * np.mean([each.metrics.value_loss for each in made]))


@pytest.mark.parametrize("changes", [{}, {"engine": "queue"}])
def test_a_single_update_reports_a2cs_metrics(make_network, changes):
    network = decided(make_network())
    rollout = random_rollout(network)
    learner = Learner(network, changed(SETTINGS, **changes), 0)
    update = learner.learn([learner.prepare(rollout)], lambda: 0, lambda *_: True, lambda: None)
    assert summarize_updates(update).policy_gradient_loss == pytest.approx(update.made[-1].metrics.policy_loss)
    assert summarize_updates(update)[3:5] == (None, None)
    returns, values = advantages_by_hand(rollout)[1], rollout.values
    if changes:
        returns, values = corrected_by_hand(network, rollout, 1.0, 1.0)[1], played_by(network, rollout)[1][:T]
    explained = 1 - np.var(returns - values) / np.var(returns)
    assert summarize_updates(update).explained_variance == pytest.approx(explained, rel=1e-4)


def test_equal_returns_have_no_explained_variance(make_network):
    network = make_network()
    zeros = np.zeros((T, B), np.float32)
    rollout = random_rollout(network)._replace(rewards=zeros, values=zeros, next_values=zeros)
    learner = Learner(network, SETTINGS, 0)
    update = learner.learn([learner.prepare(rollout)], lambda: 0, lambda *_: True, lambda: None)
    assert summarize_updates(update).explained_variance is None


def test_minibatches_depend_on_the_seed_and_the_learner(make_network):
    network = make_network()

    def deals(seed, index):
        learner = Learner(network, changed(SETTINGS, minibatches=2, epochs=8, seed=seed), index)
        batch = learner.prepare(random_rollout(network))._replace(actions=np.tile(np.arange(B), (T, 1)))
        return [part[0].actions[0].tolist() for part, _ in learner.deal_minibatches([batch])]

    assert deals(1, 0) == deals(1, 0)
    assert deals(1, 0) != deals(1, 1) != deals(2, 1) != deals(1, 0)


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"engine": "queue"}])
@pytest.mark.parametrize("core", ["lstm", "none"])
@pytest.mark.parametrize("parts", [2, 3])  # of three games
def test_minibatch_gradients_average_to_the_full_batchs(make_network, core, changes, parts):
    network = decided(make_network(core=core))
    learner = Learner(network, changed(SETTINGS, minibatches=parts, max_grad_norm=1e9, **changes), 0)
    batch = learner.prepare(random_rollout(network))
    dealt = [part for part, _ in learner.deal_minibatches([batch])][:parts]
    shares = [one.sequences / batch.sequences for (one,) in dealt]
    of_games = {2: [1 / 3, 2 / 3], 3: [1 / 3] * 3}[parts]
    assert sorted(shares) == pytest.approx(of_games if batch.sequences == B else [1 / parts] * parts)
    gradients = [learner.compute_gradients(part, 0).gradients for part in dealt]
    averages = [
        sum(share * np.asarray(one) for share, one in zip(shares, each, strict=True))
        for each in zip(*gradients, strict=True)
    ]
    assert_close(averages, learner.compute_gradients([batch], 0).gradients)
    assert differ(gradients[0], gradients[1])


def test_vtrace_clips_ratios_and_applies_them_once(make_network):
    network = decided(make_network())
    rollout = random_rollout(network)
    changes = {"engine": "queue", "epochs": 2}
    unclipped = learn(network, rollout, **changes, clip_range=1e9)
    assert differ(learn(network, rollout, **changes, clip_range=0.1).gradients, unclipped.gradients)
    # A ratio is never below 0, so a clip range above 1 does not bind actions that should become less likely.
    assert_close(unclipped.gradients, learn(network, rollout, engine="queue").gradients, rtol=1e-5)
