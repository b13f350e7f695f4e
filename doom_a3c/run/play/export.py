"""Exports a trained network as a SavedModel or ONNX, with an example program that plays."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rewards import RewardScale
from doom_a3c.record.files import write_whole
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.interface import SHAPING

OPSET = 17  # of ONNX, supported by converters and runtimes for years
_BEGINNINGS = {
    "onnx": """import onnxruntime
from doom_a3c.envs.registry import make

session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))
sizes = {each.name: each.shape[1] for each in session.get_inputs() if each.name.startswith("state")}


def decide(inputs):
    return session.run(None, inputs)
""",
    "savedmodel": """import tensorflow as tf
from doom_a3c.envs.registry import make

model = tf.saved_model.load(Path(__file__).with_name("savedmodel"))
decision = model.signatures["serving_default"]
shapes = decision.structured_input_signature[1]  # in no particular order
sizes = {name: shapes[name].shape[1] for name in sorted(shapes) if name.startswith("state")}


def decide(inputs):
    outputs = decision(**{name: tf.constant(array) for name, array in inputs.items()})
    return [outputs[name].numpy() for name in sorted(outputs)]
""",
}
_EXAMPLE = '''"""Plays an episode with the exported network.

It needs NEEDED, and doom_a3c for the game.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(CHECKOUT)  # where doom_a3c was at the export, if it is not installed
BEGINNING

env = make(SCENARIO, frame_skip=FRAME_SKIP)
state = {name: np.zeros((1, size), np.float32) for name, size in sizes.items()}
(observation, _), over, score, reset = env.reset(seed=1), False, 0.0, np.ones(1, np.float32)
INITIALwhile not over:
    seen = observation if isinstance(observation, dict) else {OBSERVED: observation}
    batch = {name: np.asarray(array)[None] for name, array in seen.items()}
    action, logits, *new, value = decide(batch | state | {"reset": resetSEEN})
    state, reset = dict(zip(state, new)), np.zeros(1, np.float32)
    observation, reward, terminated, truncated, info = env.step(action[0])
    score, over = score + reward, terminated or truncated
FOLLOWINGprint(score)
'''
_NAMES = {"onnx": "model.onnx", "savedmodel": "savedmodel"}
_NEEDED = {"onnx": "onnxruntime", "savedmodel": "tensorflow"}


def export(agent: TrainedAgent, kind: str, folder: Path) -> tuple[Path, Path]:
    """Exports the network of an agent to an empty folder; returns the paths of the model and of its example.

    The network computes in float32. Inputs are the parts of an observation: `pixels` (uint8 [N, H, W, C]), `variables`
    (float32 [N, V]), `mask` (uint8 [N, A]), `previous` if the network sees the previous action or reward (float32 [N, Q]);
    `reset` (float32 [N], 1 at the first step of an episode); and the recurrent state, `state_0`, `state_1` and so on
    (float32 [N, size]). Outputs are the likeliest `action` [N, ...], as games play it, `logits` [N, P], the state after
    them, `next_state_0` and so on, and `value` [N], in this order.

    Raises:
        UserError: if a package is missing.
        OSError: naming the file that could not be written.
    """
    target, example = folder / _NAMES[kind], folder / f"example_{kind}.py"
    network = _convert_to_float32(agent.network)
    decide, signature = _make_decide(network)
    if kind == "savedmodel":
        module = tf.Module()
        module.decide = tf.function(decide, input_signature=signature)
        module.parameters = list(network.parameters)  # TensorFlow saves only attributes
        try:
            tf.saved_model.save(module, str(target), signatures={"serving_default": module.decide})
        except tf.errors.ResourceExhaustedError:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from None
        write_whole(example, _make_example(agent, kind))
        return target, example
    try:
        import tf2onnx  # late: an optional extra
    except ModuleNotFoundError as error:
        raise UserError(f"--export onnx needs {error.name}: pip install -r requirements-export.txt") from None
    made, _ = tf2onnx.convert.from_function(tf.function(decide, input_signature=signature), signature, opset=OPSET)
    write_whole(target, made.SerializeToString())
    write_whole(example, _make_example(agent, kind))
    return target, example


def _make_example(agent: TrainedAgent, kind: str) -> bytes:
    """Writes the example program, which plays an episode with the exported network."""
    parts = {
        "NEEDED": _NEEDED[kind],
        "BEGINNING": _BEGINNINGS[kind],
        "CHECKOUT": repr(str(Path(__file__).resolve().parents[3])),
        "OBSERVED": repr(next(iter(agent.network.inputs.parts))),
        "SCENARIO": repr(agent.plays),  # untrusted
        "FRAME_SKIP": str(agent.record.scenario.game.frame_skip),
        **_write_previous(agent),
    }
    return re.sub("|".join(parts), lambda match: parts[match[0]], _EXAMPLE).encode()


def _write_previous(agent: TrainedAgent) -> dict[str, str]:
    """Writes the parts of the example that pass on the previous action and reward, if the network sees them."""
    spec, size = agent.network.spec, agent.network.inputs.previous
    if not size:
        return {"INITIAL": "", "SEEN": "", "FOLLOWING": ""}
    scale = RewardScale.from_config(agent.record.config)
    bonus = f"info.get({SHAPING!r}, 0.0)"
    spread = agent.record.counters.reward_sums.spread
    learned = f"reward / {spread!r} + {bonus}" if scale.normalized else f"{scale.factor!r} * (reward + {bonus})"
    if scale.limit is not None:
        learned = f"np.clip({learned}, {-scale.limit!r}, {scale.limit!r})"
    sizes = list(agent.builder.action_sizes.choices)
    parts = []
    if spec.previous_action:
        choices = f"*(np.eye(n)[int(a)] for n, a in zip({sizes}, action.ravel()))"
        parts = [choices, f"action.ravel()[{len(sizes)}:]"]
    parts += [f"[{learned}]"] if spec.previous_reward else []
    return {
        "INITIAL": f"previous = np.zeros((1, {size}), np.float32)\n",
        "SEEN": ', "previous": previous',
        "FOLLOWING": f"    previous = np.concatenate([{', '.join(parts)}])[None].astype(np.float32)\n",
    }


def _convert_to_float32(trained: ACNetwork) -> ACNetwork:
    """Returns a network that computes in float32 with the weights of a trained one."""
    network = ACNetwork(trained.spec, trained.inputs, trained.distribution, 0, "exported", "float32")
    for mine, its in zip(network.parameters, trained.parameters, strict=True):
        mine.assign(its)
    return network


def _make_decide(network: ACNetwork) -> tuple[Callable[..., Any], list[tf.TensorSpec]]:
    """Returns the function that decides, and its signature."""
    inputs = network.inputs
    parts = [tf.TensorSpec((None, *shape), tf.as_dtype(dtype), name) for name, (shape, dtype) in inputs.parts.items()]
    sizes = [state.shape[1] for state in network.initial_state(1)]
    states = [tf.TensorSpec((None, size), tf.float32, f"state_{index}") for index, size in enumerate(sizes)]

    def decide(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        seen, reset, state = arguments[: len(parts)], arguments[len(parts)], arguments[len(parts) + 1 :]
        output, new = network.step(inputs.join(dict(zip(inputs.parts, seen, strict=True))), reset, tuple(state))
        action = network.distribution.mode_tensor(output.logits)
        outputs = {"action": action, "logits": output.logits, "value": output.values}
        return outputs | {f"next_state_{i}": each for i, each in enumerate(new)}

    return decide, [*parts, tf.TensorSpec((None,), tf.float32, "reset"), *states]
