"""Exported networks decide like the trained one, over an episode with its recurrent state."""

import ast
import errno
import os
import shlex
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from commands import ROOT, call
from run_fakes import settings

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.optional_cores import OPTIONAL_CORES
from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.run.checkpoints.run_record import begin_run
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.export import export
from doom_a3c.settings.trust import NO_OVERRIDE, GameOverride

PRETRAINED = ROOT / "models" / "pretrained"


def agent_of(name, core=None):
    """An agent that decides in float32, with a policy far from uniform."""
    scenario, config = settings(name)
    if core is not None:
        scenario = replace(scenario, network=replace(scenario.network, core=core, core_size=8))
    builder = Builder(scenario, config, make_game_factory(scenario.game, scenario.observation, 0))
    network = ACNetwork(scenario.network, builder.inputs, builder.distribution, 1, "test", "float32")
    random = np.random.default_rng(0)
    for parameter in network.parameters[:2]:  # the heads
        parameter.assign(random.normal(size=parameter.shape))
    return TrainedAgent(builder, network, begin_run(scenario, config), "test")


def decide_by_tensorflow(agent):
    def decide(inputs):
        observations = agent.network.inputs.join({name: inputs[name] for name in agent.network.inputs.parts})
        states = tuple(inputs[name] for name in sorted(inputs) if name.startswith("state"))
        output, new = agent.network.step(observations, inputs["reset"], states)
        logits = output.logits.numpy()
        distribution = agent.network.distribution
        action = distribution.bound(distribution.mode(logits))
        return [action, logits, *(state.numpy() for state in new), output.values.numpy()]

    return decide


def decide_by_onnx(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # more would spin while waiting
    session = onnxruntime.InferenceSession(path, options)
    return lambda inputs: session.run(None, inputs)


def decide_by_saved_model(path):
    decide = tf.saved_model.load(str(path)).signatures["serving_default"]

    def call(inputs):
        outputs = decide(**{name: tf.constant(array) for name, array in inputs.items()})
        return [outputs[name].numpy() for name in sorted(outputs)]

    return call


@pytest.mark.parametrize(
    ("name", "core"),
    [
        *((name, None) for name in ("basic", "cartpole", "predict_position", "deathmatch", "Pendulum-v1")),
        *((f"registered_toys:tests/{name}-v0", None) for name in ("Mixture", "Barred")),
        *(("cartpole", core) for core in OPTIONAL_CORES),
    ],
)
@pytest.mark.parametrize("kind", ["onnx", "savedmodel"])
def test_an_exported_network_decides_like_the_trained_one(kind, name, core, tmp_path):
    agent = agent_of(name, core)
    target, *_ = export(agent, kind, tmp_path)
    deciders = [decide_by_tensorflow(agent), (decide_by_onnx if kind == "onnx" else decide_by_saved_model)(target)]
    states = [agent.network.initial_state(1)] * 2
    env = agent.builder.make_evaluation_env(1)
    observations, _ = env.reset(seed=np.array([4]))
    reset = np.ones(1, np.float32)
    for _ in range(60):
        seen = agent.network.inputs.split(observations)
        outputs = []
        for decide, state in zip(deciders, states, strict=True):
            named = {f"state_{index}": np.asarray(part, np.float32) for index, part in enumerate(state)}
            outputs.append(decide({**seen, "reset": reset, **named}))
        for wanted, found in zip(*outputs, strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)
        states = [output[2:-1] for output in outputs]
        observations, _, terminated, truncated, _ = env.step(outputs[0][0])
        reset = (terminated | truncated).astype(np.float32)
    env.close()


def test_agent_actions_are_within_the_bounds_of_the_game():
    agent = agent_of("Pendulum-v1")  # the weights of its heads are large
    with closing(agent.builder.make_evaluation_env(1)) as env:
        (observation,), _ = env.reset(seed=np.array([4]))
        for policy in ("greedy", "sample"):
            actions = [agent.act(scale * observation, policy=policy)[0] for scale in range(20)]
            assert all(env.single_action_space.contains(action) for action in actions)
            assert any(abs(action[0]) == 1 for action in actions)


@pytest.mark.parametrize("kind", ["onnx", "savedmodel"])
def test_a_full_disk_error_names_the_file(kind, tmp_path, monkeypatch):
    def full(*arguments, **options):
        if kind == "onnx":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise tf.errors.ResourceExhaustedError(None, None, "SaveV2: No space left on device")

    monkeypatch.setattr(*((Path, "write_bytes") if kind == "onnx" else (tf.saved_model, "save")), full)
    with pytest.raises(OSError, match="No space left") as raised:
        export(agent_of("basic"), kind, tmp_path)
    assert Path(raised.value.filename).parent == tmp_path
    assert os.listdir(tmp_path) == []  # and no example for a missing model


def test_a_scenario_name_injects_no_code_into_the_example(tmp_path):
    agent = agent_of("cartpole")
    agent.plays = 'x"); open("written", "w"); ("'
    export(agent, "onnx", tmp_path)
    calls = [node for node in ast.walk(ast.parse((tmp_path / "example_onnx.py").read_text())) if isinstance(node, ast.Call)]
    assert not any(getattr(call.func, "id", "") == "open" for call in calls)
    (made,) = [call for call in calls if getattr(call.func, "id", "") == "make"]
    assert made.args[0].value == agent.plays


@pytest.mark.process
@pytest.mark.parametrize("kind", ["onnx", "savedmodel"])
def test_the_printed_command_plays_from_any_folder(tmp_path, kind):
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    exporting = call("play", "--model", "basic", "--export", kind, "--out", elsewhere / "exported", cwd=tmp_path)
    assert exporting.returncode == 0, exporting.stderr
    _, _, command = exporting.stdout.partition("next:\n")
    words = shlex.split(command)
    assert words[0] == "python"
    result = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=elsewhere,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert -500 < float(result.stdout) < 100


def test_the_example_has_the_full_path_of_the_scenario_file(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('base = "cartpole"\n')
    monkeypatch.chdir(tmp_path)
    variables, record = load(PRETRAINED / "cartpole.ckpt")
    save(Path("mine.ckpt"), variables, record._replace(config=replace(record.config, scenario="./mine.toml")))
    agent = TrainedAgent.load("mine.ckpt")
    _, example = export(agent, "onnx", tmp_path)
    assert f"make({str(tmp_path / 'mine.toml')!r}, " in example.read_text()


def test_the_example_uses_the_frame_skip_of_the_run(tmp_path):
    agent = agent_of("basic")
    game = replace(agent.record.scenario.game, frame_skip=7)
    agent.record = agent.record._replace(scenario=replace(agent.record.scenario, game=game))
    _, example = export(agent, "onnx", tmp_path)
    assert "make('basic', frame_skip=7)" in example.read_text()


def test_the_example_has_the_full_path_of_an_override_file(tmp_path, monkeypatch):
    (tmp_path / "linked").write_text('base = "cartpole"\n')
    (tmp_path / "mine.toml").symlink_to("linked")  # whose name is not a scenario file's
    monkeypatch.chdir(tmp_path)
    for named, plays in (
        (NO_OVERRIDE, "cartpole"),
        (GameOverride("mine.toml"), str(tmp_path / "mine.toml")),
        (GameOverride("cartpole"), "cartpole"),
    ):
        agent = TrainedAgent.load(PRETRAINED / "cartpole.ckpt", named)
        _, example = export(agent, "savedmodel", tmp_path)
        assert f"make({plays!r}, frame_skip=1)" in example.read_text()
