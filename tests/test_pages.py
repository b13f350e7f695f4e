"""Every shell command in README and docs works: run in page order, with budgets of seconds."""

import re
import shutil

import pytest
import vizdoom
from commands import ROOT, call
from page_commands import NOT_RUN, RESOLVED, Prover, read_blocks, read_commands

pytestmark = pytest.mark.process

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in DOCS}
WITH_COMMANDS = [name for name, text in PAGES.items() if read_commands(text)]
MODULE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Mine-v0", CartPoleEnv, max_episode_steps=50)
"""


@pytest.fixture(scope="module")
def prover(tmp_path_factory):
    """Tries commands in a folder with finished runs and the user files that pages mention."""
    folder = tmp_path_factory.mktemp("pages")
    for kind in ("wad", "cfg"):
        shutil.copy(f"{vizdoom.scenarios_path}/basic.{kind}", folder / f"mine.{kind}")
    config = (folder / "mine.cfg").read_text()
    (folder / "mine.cfg").write_text(config.replace("basic.wad", "mine.wad"))
    (folder / "mine.toml").write_text('base = "basic"\n')
    (folder / "my_module.py").write_text(MODULE)
    (folder / "own").mkdir()
    for page, name in (("docs/own-scenario.md", "own/orchard.toml"), ("docs/atari.md", "sticky_pong.toml")):
        (folder / name).write_text(next(each for each in read_blocks(PAGES[page], "toml") if each.startswith("base = ")))
    prover = Prover(folder)
    longer = ("--frames", 30_000, "--evaluate-every", 0, "--evaluation-episodes", 1)  # 100 episodes, enough for a curve
    for scenario, name, seed in (("cartpole", "pong", 2), ("basic", "basic", 1)):  # runs that pages compare
        result = call("train", "--scenario", scenario, "--name", name, "--seed", seed, *longer, cwd=folder)
        assert result.returncode == 0, result.stderr
    prover.prove("python train.py --scenario basic.wad")
    (folder / "other").mkdir()
    return prover


def prove_page(page, prover):
    """Tries the commands of a page, with copies of the newest model under the names that pages use."""
    for copy in ("best.ckpt", "other/best.ckpt"):
        shutil.copy(prover.folder / "models" / "best.ckpt", prover.folder / copy)
    for command in read_commands(PAGES[page]):
        prover.prove(command)


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_work(page, prover):
    prove_page(page, prover)


def test_the_tutorial_produces_what_it_shows(prover):
    prove_page("docs/own-scenario.md", prover)
    own = prover.folder / "own"
    (config,) = read_blocks(PAGES["docs/own-scenario.md"], "ini")
    assert (own / "orchard.cfg").read_text() == config
    assert "map01 of orchard.wad is played" in prover.said["train", "--doctor", "--scenario", "own/orchard.wad"]
    assert {"index.html", "episode_000.gif", "scores.csv"} <= {path.name for path in (own / "result").iterdir()}
    assert (prover.folder / "frames" / "comparison.png").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python train.py --scenario basci.wad", "mean basic"),
        ("python train.py --scenario basic --engine cluster --hosst 2", "--hosst"),
        ("python play.py --list-modles", "--list-modles"),
        ("python -m benchmarks.throughput --secs 3", "--secs"),
        ("python -m benchmarks.time_to_score --evaluate-evry 0", "--evaluate-evry"),
        ("python -m benchmarks.gone", "gone"),
        ("ray start --hed", "--hed"),
        ("pip install -r requirements-gone.txt", "requirements-gone.txt"),
        ("tensorboard --logdir logs --gone", "--gone"),
        ("tensorboard --logdir nowhere", "nowhere"),
        ("python docs/gone.py", "does not know"),
        ("htop -d 5", "does not know"),
    ],
)
def test_a_wrong_command_is_caught(prover, command, message):
    with pytest.raises(Exception, match=message):
        prover.prove(command)


def test_commands_are_read_from_text_and_code_blocks():
    text = """
Say `python train.py --help` or `htop -d
5` or `podman stop -t 9`, not `train.py` or `--resume`.

    python3 -m venv x && pip install y  # once

```sh
tensorboard --logdir logs
```

```python
import x
```

- a list
    goes on
"""
    assert read_commands(text) == [
        "python train.py --help",
        "htop -d 5",
        "podman stop -t 9",
        "python3 -m venv x",
        "pip install y",
        "tensorboard --logdir logs",
    ]


def test_every_exception_matches_a_command():
    commands = [command for text in PAGES.values() for command in read_commands(text)]
    assert [known for known in NOT_RUN if not any(command.startswith(known) for command in commands)] == []
    calls = [command.removeprefix("python ").replace(".py ", " ") for command in commands]
    assert [pattern for pattern in RESOLVED if not any(re.search(pattern, call) for call in calls)] == []
