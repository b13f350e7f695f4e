"""The network: its size, step and unroll, its memory, and its gradients."""

import numpy as np
import pytest
import tensorflow as tf
from unrolled import ACTIVATIONS, B, T, observe, state, unroll

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.inputs import Inputs, read_input_shapes
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.settings.checks import count_parameters
from doom_a3c.settings.network import Network


@pytest.fixture(scope="module")
def default_network():
    return ACNetwork(Network(), Inputs((84, 84, 1), 0), Categorical(3), 0, "global")


def test_the_default_network_is_the_size_of_the_a3c_doom_agent(default_network):
    assert sum(int(np.prod(parameter.shape)) for parameter in default_network.parameters) == 1_199_408


def test_the_initial_policy_is_nearly_uniform(default_network):
    pixels = np.random.default_rng(0).integers(256, size=(16, 84, 84, 1), dtype=np.uint8)
    output, _ = default_network.step(pixels, tf.ones(16), default_network.initial_state(16))
    assert np.abs(tf.nn.softmax(output.logits) - 1 / 3).max() < 0.01


def test_initial_weights_fill_their_ranges(default_network):
    def he(fan_in):
        return np.sqrt(6 / fan_in)

    glorot = np.sqrt(6 / (256 + 256 + 1024))
    limits = {
        "conv0/kernel": he(8 * 8 * 1),
        "conv1/kernel": he(4 * 4 * 16),
        "hidden0/kernel": he(9 * 9 * 32),
        "lstm/input_kernel": glorot,
        "lstm/recurrent_kernel": glorot,
    }
    weights = {variable_name(parameter): parameter.numpy() for parameter in default_network.parameters}
    for name, limit in limits.items():
        assert 0.97 * limit < np.abs(weights[name]).max() <= limit * (1 + 1e-6), name
        assert np.std(weights[name]) == pytest.approx(limit / np.sqrt(3), rel=0.05), name  # uniform
    for name, array in weights.items():
        assert array.any() != name.endswith("bias")


def test_initial_heads_have_the_intended_norms(default_network):
    columns = {variable_name(p): np.linalg.norm(p, axis=0) for p in default_network.parameters if len(p.shape) == 2}
    np.testing.assert_allclose(columns["policy/kernel"], 0.01, rtol=1e-5)
    np.testing.assert_allclose(columns["value/kernel"], 1.0, rtol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("variables", "layers"), [(0, ()), (2, ()), (2, (4, 3))])
@pytest.mark.parametrize("core", list_cores())
def test_steps_equal_the_unroll(make_network, core, variables, layers, shared):
    network = make_network(core=core, variables=variables, variable_hidden=layers, shared=shared)
    observations = observe(variables=variables)
    resets = np.zeros((T, B), np.float32)
    resets[0, 0] = resets[2, 1] = resets[3, 1] = 1
    logits, values, last = unroll(network, observations, resets, state(network))
    core_state = state(network)
    for t in range(T):
        row = tf.nest.map_structure(lambda array, t=t: array[t], observations)
        output, core_state = network.step(row, tf.constant(resets[t]), core_state)
        np.testing.assert_allclose(output.logits, logits[t], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(output.values, values[t], rtol=1e-4, atol=1e-6)
    for part, expected in zip(core_state, last, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize(("mean", "scale"), [(64.0, 64.0), (0.0, 255.0)])
def test_the_network_follows_its_equations(make_network, mean, scale, activation):
    network = make_network(pixel_mean=mean, pixel_scale=scale, activation=activation)
    weights = {variable_name(p): p.numpy().astype(np.float64) for p in network.parameters}
    observations = observe(length=2, batch=1)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    active = ACTIVATIONS[activation]
    cell = hidden = np.zeros(5)
    _, values, _ = unroll(network, observations)
    for t in range(2):
        image = (observations[t, 0].astype(np.float64) - mean) / scale
        patches = [[image[y : y + 3, x : x + 3] for x in (0, 2, 4)] for y in (0, 2, 4)]
        kernel = weights["conv0/kernel"]
        maps = active(np.array([[np.tensordot(patch, kernel, 3) for patch in row] for row in patches]))
        features = active(maps.reshape(-1) @ weights["hidden0/kernel"])
        gates = features @ weights["lstm/input_kernel"] + hidden @ weights["lstm/recurrent_kernel"]
        in_gate, candidate, forget_gate, out_gate = np.split(gates, 4)  # all biases start at 0
        cell = cell * sigmoid(forget_gate + 1) + sigmoid(in_gate) * np.tanh(candidate)
        hidden = np.tanh(cell) * sigmoid(out_gate)
        np.testing.assert_allclose(values[t, 0], hidden @ weights["value/kernel"][:, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("size", "stride"), [(4, 2), (3, 2), (2, 1), (4, 4)])  # strides that divide the kernel or not
def test_convolutions_follow_their_equations(size, stride):
    spec = Network(convolutions=((4, size, stride),), hidden=(), core="none")
    network = ACNetwork(spec, Inputs((8, 8, 3), 0), Categorical(2), 0, "network")
    weights = {variable_name(p): p.numpy().astype(np.float64) for p in network.parameters}
    network.load({**weights, "conv0/bias": weights["conv0/bias"] + 0.1})
    pixels = np.random.default_rng(0).integers(256, size=(1, 2, 8, 8, 3), dtype=np.uint8)
    logits = unroll(network, pixels)[0]
    for game in range(2):
        image = (pixels[0, game].astype(np.float64) - 64.0) / 64.0
        corners = [(y, x) for y in range(0, 9 - size, stride) for x in range(0, 9 - size, stride)]
        patches = [image[y : y + size, x : x + size] for y, x in corners]
        maps = np.array([np.tensordot(patch, weights["conv0/kernel"], 3) + 0.1 for patch in patches])
        expected = ACTIVATIONS["elu"](maps).reshape(-1) @ weights["policy/kernel"]
        np.testing.assert_allclose(logits[0, game], expected, rtol=1e-3, atol=1e-5)


def test_pixels_are_centred_without_convolutions_too():
    network = ACNetwork(
        Network(convolutions=(), hidden=(), core="none"), Inputs((2, 2, 1), 0), Categorical(2), 0, "network"
    )
    pixels = np.array([0, 64, 128, 255], np.uint8).reshape(1, 1, 2, 2, 1)
    weights = {variable_name(p): p.numpy() for p in network.parameters}
    expected = np.array([-1, 0, 1, 191 / 64]) @ weights["policy/kernel"]
    np.testing.assert_allclose(unroll(network, pixels)[0][0, 0], expected, rtol=1e-5)


def test_a_reset_within_a_rollout_equals_a_fresh_start(make_network):
    network, observations = make_network(), observe()
    resets = np.zeros((T, B), np.float32)
    resets[2] = 1
    logits, values, last = unroll(network, observations, resets, state(network))
    fresh = unroll(network, observations[2:])
    np.testing.assert_allclose(logits[2:], fresh[0], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(values[2:], fresh[1], rtol=1e-4, atol=1e-6)
    for part, expected in zip(last, fresh[2], strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-6)
    without = unroll(network, observations, None, state(network))[1]
    np.testing.assert_allclose(values[:2], without[:2], rtol=1e-5)
    assert (np.abs(values[2:] - without[2:]) > 1e-5).all()


def test_a_reset_of_one_game_leaves_the_others_alone(make_network):
    network, observations = make_network(), observe()
    resets = np.zeros((T, B), np.float32)
    resets[2, 1] = 1
    with_reset = unroll(network, observations, resets, state(network))[1]
    without = unroll(network, observations, None, state(network))[1]
    np.testing.assert_allclose(with_reset[:, [0, 2]], without[:, [0, 2]], rtol=1e-5)
    assert np.abs(with_reset[2:, 1] - without[2:, 1]).min() > 1e-5


def test_games_do_not_affect_each_other(make_network):
    network, observations = make_network(), observe()
    changed = observations.copy()
    changed[:, 0] = observe(seed=1)[:, 0]
    before, after = unroll(network, observations), unroll(network, changed)
    for a, b in zip(before[:2], after[:2], strict=True):
        np.testing.assert_allclose(a[:, 1:], b[:, 1:], rtol=1e-5, atol=1e-7)
        assert np.abs(a[:, 0] - b[:, 0]).max() > 1e-5


def test_the_future_does_not_change_the_past(make_network):
    network, observations = make_network(), observe()
    changed = observations.copy()
    changed[3:] = observe(seed=1)[3:]
    before, after = unroll(network, observations)[1], unroll(network, changed)[1]
    np.testing.assert_allclose(before[:3], after[:3], rtol=1e-5)
    assert (np.abs(before[3:] - after[3:]) > 1e-6).all()


def test_only_a_core_lets_the_past_affect_the_future(make_network):
    observations = observe()
    changed = observations.copy()
    changed[0] = observe(seed=1)[0]
    for core in list_cores():
        network, remembers = make_network(core=core), core != "none"
        difference = np.abs(unroll(network, observations)[1][-1] - unroll(network, changed)[1][-1])
        assert (difference > 1e-6).all() == remembers
        assert difference.any() == remembers


def test_skip_lstm_heads_see_both_inputs_and_memory(make_network):
    network = make_network(core="skip_lstm")
    weights = {variable_name(p): p.numpy() for p in network.parameters}
    heads = [name for name in weights if name.endswith(("policy/kernel", "value/kernel"))]
    inputs = weights["hidden0/kernel"].shape[1]
    whole = unroll(network, observe(), core_state=state(network))
    parts = []
    for core, rows in (("none", slice(None, inputs)), ("lstm", slice(inputs, None))):
        alone = make_network(core=core)
        alone.load(weights | {name: weights[name][rows] for name in heads})
        parts.append(unroll(alone, observe(), core_state=state(alone)))
    for place in range(2):  # logits, values
        np.testing.assert_allclose(whole[place], parts[0][place] + parts[1][place], rtol=1e-4, atol=1e-7)
        assert all(np.abs(part[place]).max() > 1e-5 for part in parts)
    for mine, its in zip(whole[2], parts[1][2], strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-5)


def test_a_network_without_core_has_no_state(make_network):
    network = make_network(core="none")
    assert network.initial_state(B) == ()
    assert unroll(network, observe())[2] == ()
    assert not any("lstm" in parameter.name for parameter in network.parameters)


def test_the_initial_state_is_zero(make_network):
    cell, hidden = make_network().initial_state(4)
    np.testing.assert_array_equal(cell, np.zeros((4, 5)))
    np.testing.assert_array_equal(hidden, np.zeros((4, 5)))


@pytest.mark.parametrize(("variables", "layers"), [(0, ()), (2, ()), (2, (4, 3))])
def test_gradients_equal_numerical_differences(make_network, variables, layers):
    network = make_network(variables=variables, variable_hidden=layers)
    observations, core_state = observe(variables=variables), state(network)
    resets = np.zeros((T, B), np.float32)
    resets[2, 1] = 1
    random = np.random.default_rng(2)
    # The policy's columns are 100 times smaller than the value's: this makes both count.
    logit_weights, value_weights = 100 * random.normal(size=(T * B, 3)), random.normal(size=T * B)

    def objective():
        output, _ = network.unroll(observations, tf.constant(resets), core_state)
        return tf.reduce_sum(output.logits * logit_weights) + tf.reduce_sum(output.values * value_weights)

    with tf.GradientTape() as tape:
        value = objective()
    gradients = tape.gradient(value, network.parameters)
    for parameter, gradient in zip(network.parameters, gradients, strict=True):
        before = parameter.numpy()
        for index in (np.abs(gradient).argmax(), random.integers(before.size)):
            ends = []
            for epsilon in (1e-2, -1e-2):
                moved = before.copy()
                moved.reshape(-1)[index] += epsilon
                parameter.assign(moved)
                ends.append(float(objective()))
            parameter.assign(before)
            numerical = (ends[0] - ends[1]) / 2e-2
            scale = float(np.abs(gradient).max())
            assert gradient.numpy().reshape(-1)[index] == pytest.approx(numerical, rel=0.02, abs=0.01 * scale)


def test_variables_affect_the_values(make_network):
    network, observations = make_network(variables=2), observe(variables=2)
    changed = {**observations, "variables": observations["variables"] + np.float32([0, 1])}
    difference = np.abs(unroll(network, observations)[1] - unroll(network, changed)[1])
    assert (difference > 1e-5).all()


def dense(features, weights, layers):
    for name in layers:
        features = ACTIVATIONS["elu"](features @ weights[f"{name}/kernel"] + weights[f"{name}/bias"])
    return features


@pytest.mark.parametrize("layers", [(4,), (4, 3)])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6)])
def test_variable_layers_join_the_picture_features_at_the_core(make_network, hidden, layers):
    network = make_network(core="none", variables=2, hidden=hidden, variable_hidden=layers)
    random = np.random.default_rng(1)
    for parameter in network.parameters:
        parameter.assign(random.normal(size=parameter.shape))  # biases too
    weights = {variable_name(p): p.numpy().astype(np.float64) for p in network.parameters}
    observations = observe(variables=2, length=1)
    centred = (tf.cast(observations["pixels"][0], tf.float32) - 64) / 64
    maps = tf.nn.elu(tf.nn.conv2d(centred, weights["conv0/kernel"].astype(np.float32), 2, "VALID") + weights["conv0/bias"])
    picture = dense(np.reshape(maps, (B, -1)).astype(np.float64), weights, [f"hidden{i}" for i in range(len(hidden))])
    numbers = dense(observations["variables"][0], weights, [f"variables{i}" for i in range(len(layers))])
    values = np.concatenate([picture, numbers], axis=1) @ weights["value/kernel"][:, 0]
    np.testing.assert_allclose(unroll(network, observations)[1][0], values, rtol=1e-4, atol=1e-4)


def test_variable_layers_have_no_effect_on_one_kind_of_input(make_network):
    plain, layered = (make_network(variable_hidden=layers) for layers in ((), (4,)))
    np.testing.assert_array_equal(unroll(plain, observe())[1], unroll(layered, observe())[1])
    numbers = [
        ACNetwork(Network(variable_hidden=layers), Inputs(None, 4), Categorical(3), 0, "network") for layers in ((), (4,))
    ]
    assert [p.shape for p in numbers[0].parameters] == [p.shape for p in numbers[1].parameters]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("layers", [(), (4, 3)])
@pytest.mark.parametrize("inputs", [Inputs((8, 8, 1), 0), Inputs((8, 8, 1), 2), Inputs(None, 2)])
@pytest.mark.parametrize("core", list_cores())
def test_count_parameters_matches_the_built_network(core, inputs, layers, shared):
    sizes = {"convolutions": ((4, 3, 2),), "hidden": (8, 6), "variable_hidden": layers, "core_size": 5}
    spec = Network(**sizes, core=core, shared=shared)
    network = ACNetwork(spec, inputs, Categorical(3), 0, "network")
    matrices = [p for p in network.parameters if "kernel" in p.name and not p.name.startswith(("policy", "value"))]
    assert count_parameters(spec, inputs.pixels, inputs.variables) == sum(int(np.prod(p.shape)) for p in matrices)


def test_the_seed_decides_the_weights(make_network):
    one, same, other = (make_network(seed=seed) for seed in (1, 1, 2))
    for a, b, c in zip(one.parameters, same.parameters, other.parameters, strict=True):
        assert variable_name(a) == variable_name(b) == variable_name(c)
        np.testing.assert_array_equal(a, b)
        assert np.any(a != c) or "bias" in a.name


def test_load_assigns_weights_by_name(make_network):
    source, target = make_network(seed=1), make_network(seed=2)
    weights = {variable_name(p): p.numpy() for p in reversed(source.parameters)}
    target.load({**weights, "something/else": np.zeros(3)})
    np.testing.assert_array_equal(unroll(source, observe())[1], unroll(target, observe())[1])
    with pytest.raises(KeyError):
        target.load({})
    with pytest.raises(ValueError, match="shape"):
        target.load({**weights, "policy/kernel": np.zeros((5, 4), np.float32)})


def test_input_shapes_are_read_from_the_space():
    from gymnasium.spaces import Box, Dict

    pixels = Box(0, 255, (8, 9, 3), np.uint8)
    assert read_input_shapes(pixels) == Inputs((8, 9, 3), 0)
    assert read_input_shapes(Dict(pixels=pixels, variables=Box(-1, 1, (4,)))) == Inputs((8, 9, 3), 4)
    assert read_input_shapes(Box(-1, 1, (4,))) == Inputs(None, 4)
    assert read_input_shapes(Dict(variables=Box(-1, 1, (4,)))) == Inputs(None, 4)
