"""The environments work with other libraries, in processes that never import TensorFlow."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import output_of

SCRIPT = Path(__file__).with_name("without_tensorflow.py")
needs_all = pytest.mark.skipif(not find_spec("stable_baselines3"), reason="needs all of requirements-test.txt")


@pytest.mark.parametrize("what", ["imports", "checks"])
def test_environments_need_no_tensorflow(tmp_path, what):
    output_of(SCRIPT, what, cwd=tmp_path)


@pytest.mark.tools
@needs_all
def test_stable_baselines3_accepts_every_kind_of_action_and_observation(tmp_path):
    assert output_of(SCRIPT, "accepted", cwd=tmp_path) == "15"


@pytest.mark.tools
@needs_all
def test_stable_baselines3_learns_from_the_environment(tmp_path):
    assert output_of(SCRIPT, "learns", cwd=tmp_path) == "(1000, True)"
