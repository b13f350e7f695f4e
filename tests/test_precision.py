"""Reduced precision: which machines use it, and that it changes the network only by rounding."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from fakes import complaint

from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.model import SharedNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.precision import add_bias, check_can_learn, choose_matrix_type

T, B = 3, 6
SIZES = {"convolutions": ((8, 2, 2), (8, 2, 1)), "hidden": (32,), "core_size": 32}


def played(network):
    """Returns values and gradients of a rollout with a reset inside."""
    random = np.random.default_rng(0)
    pixels = random.integers(256, size=(T, B, *network.inputs.pixels), dtype=np.uint8)
    observations = pixels
    if network.inputs.variables:
        observations = {"pixels": pixels, "variables": random.normal(size=(T, B, 2)).astype(np.float32)}
    resets = np.zeros((T, B), np.float32)
    resets[2, 1] = 1

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            output, _ = network.unroll(observations, tf.constant(resets), network.initial_state(B))
            total = tf.reduce_sum(output.values) + 100 * tf.reduce_sum(output.logits[:, 0])
        return output.values, tape.gradient(total, network.parameters)

    return gradients()


CHANNELS, CORES, NUMBERS = (1, 4), tuple(list_cores()), ((0, ()), (2, ()), (2, (4, 3)))
KINDS = [  # all combinations, alternating shared and separate torsos so that each pair gets both
    (channels, core, *numbers, (i + j + k) % 2 == 0)
    for (i, channels), (j, core), (k, numbers) in itertools.product(*map(enumerate, (CHANNELS, CORES, NUMBERS)))
]


@pytest.mark.parametrize(("channels", "core", "variables", "layers", "shared"), KINDS)
def test_bfloat16_matches_float32_up_to_rounding(make_network, channels, core, variables, layers, shared):
    kind = {**SIZES, "channels": channels, "core": core, "shared": shared}
    kind |= {"variables": variables, "variable_hidden": layers}
    exact, rounded = make_network(**kind), make_network(**kind, precision="bfloat16")
    assert [p.dtype for p in rounded.parameters] == [tf.float32] * len(exact.parameters)
    assert [variable_name(p) for p in rounded.parameters] == [variable_name(p) for p in exact.parameters]
    (values, gradients), (rounded_values, rounded_gradients) = played(exact), played(rounded)
    assert rounded_values.dtype == tf.float32
    assert np.any(values != rounded_values)
    for expected, found in zip([values, *gradients], [rounded_values, *rounded_gradients], strict=True):
        assert found.dtype == tf.float32
        assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("shape", [(20_000, 4), (40, 20, 20, 4)])
def test_bias_gradients_are_summed_in_full_precision(shape):
    upstream = np.random.default_rng(0).uniform(0.5, 1, shape).astype(np.float32)
    bias = tf.Variable(tf.zeros(4))
    with tf.GradientTape() as tape:  # uncompiled, TensorFlow uses its kernel for CPUs without AVX512
        added = add_bias(tf.zeros(shape, tf.bfloat16), bias)
        total = tf.reduce_sum(upstream * tf.cast(added, tf.float32))
    assert added.dtype == tf.bfloat16
    np.testing.assert_allclose(tape.gradient(total, bias), upstream.reshape(-1, 4).sum(axis=0), rtol=0.01)


def test_rounded_copies_follow_the_weights(make_network):
    source = make_network(**SIZES, seed=1)
    pulled, loaded, made = (make_network(**SIZES, seed=seed, precision="bfloat16") for seed in (2, 3, 1))
    SharedNetwork(source).pull(pulled)
    loaded.load({variable_name(p): p.numpy() for p in source.parameters})
    for network in (pulled, loaded):
        np.testing.assert_array_equal(played(network)[0], played(made)[0])


def test_bfloat16_is_refused_where_its_gradients_would_be_wrong(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text("flags : fpu avx2\n")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert "AVX512" in complaint(check_can_learn, "bfloat16", info)
    for precision in ("auto", "float32"):
        check_can_learn(precision, info)
    info.write_text("flags : fpu avx512f\n")
    check_can_learn("bfloat16", info)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert "TF_ENABLE_ONEDNN_OPTS" in complaint(check_can_learn, "bfloat16", info)


def test_auto_is_float32_without_onednn(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text("flags : fpu amx_bf16\n")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert choose_matrix_type("auto", info) == tf.float32
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    assert choose_matrix_type("auto", info) == tf.bfloat16


def test_auto_is_bfloat16_on_cpus_that_are_fast_with_it(tmp_path):
    info = tmp_path / "cpuinfo"
    for vendor, flags in (("GenuineIntel", "avx512_bf16 amx_bf16 amx_tile"), ("AuthenticAMD", "avx512f avx512_bf16")):
        info.write_text(f"vendor_id : {vendor}\nflags : fpu {flags}\n")
        assert choose_matrix_type("auto", info) == tf.bfloat16
        assert choose_matrix_type("float32", info) == tf.float32
    info.write_text("vendor_id : AuthenticAMD\nflags : fpu avx512f\n")
    assert choose_matrix_type("auto", info) == tf.float32
    info.write_text("vendor_id : GenuineIntel\nflags : fpu avx512_bf16\n")
    assert choose_matrix_type("auto", info) == tf.float32
    assert choose_matrix_type("bfloat16", info) == tf.bfloat16
    assert choose_matrix_type("auto", tmp_path / "missing") == tf.float32
