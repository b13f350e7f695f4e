"""Test tiers: what README's command leaves out, what CI runs, and that a misspelt marker is an error."""

import os
import re
import subprocess
import sys

import pytest

TIERS = ("process", "tools", "learning")


def commands(text):
    """Returns the arguments of each `python -m pytest` in a text."""
    return re.findall(r"python -m pytest\b([^\n`#&|]*)", text)


def test_the_readmes_command_skips_all_tiers_and_ci_only_one(root, pytestconfig):
    expression = " and ".join(f"not {tier}" for tier in TIERS)
    assert expression in pytestconfig.getini("addopts")
    assert {marker.partition(":")[0] for marker in pytestconfig.getini("markers")} >= {*TIERS, "cluster"}
    (readme,) = commands((root / "README.md").read_text())
    assert "-m" not in readme.split()
    (ci,) = commands((root / ".ci" / "run").read_text())
    assert '-m "not learning"' in ci


@pytest.mark.parametrize(
    ("name", "markers"), [("README.md", TIERS), ("CONTRIBUTING.md", (*TIERS, "cluster"))], ids=["readme", "contributing"]
)
def test_docs_say_how_to_run_each_tier(root, name, markers):
    text = (root / name).read_text()
    assert [marker for marker in markers if f"-m {marker}`" not in text] == []


MARKED = """
import pytest
def test_of_none(): pass
"""


@pytest.fixture
def run(root, tmp_path):
    """Runs pytest with this project's settings on a test of each tier; returns its status and output."""
    tests = [f"@pytest.mark.{tier}\ndef test_{tier}(): pass\n" for tier in TIERS]

    def run(*arguments, more=""):
        (tmp_path / "test_tiers.py").write_text("\n".join([MARKED, *tests, more]))
        place = ("-c", str(root / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider")
        settings = (*place, "-p", "xdist.plugin")  # importing all other plugins would take longer than the test
        command = [sys.executable, "-m", "pytest", *settings, *arguments, "test_tiers.py"]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
        return ended.returncode, ended.stdout

    return run


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [((), "1 passed, 3 deselected"), (("-m", "not learning"), "3 passed, 1 deselected"), (("-m", "tools"), "1 passed")],
)
def test_marker_expressions_select_tiers(run, arguments, outcome):
    status, output = run(*arguments)
    assert (status, outcome in output) == (0, True), output


def test_a_misspelt_marker_is_an_error(run):
    status, output = run(more="@pytest.mark.proces\ndef test_misspelt(): pass\n")
    assert status != 0
    assert "'proces' not found in `markers`" in output
