"""The shell commands on a documentation page, and how each is checked in a folder."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise

import pytest
from commands import ROOT, call

TENSORBOARD = find_spec("tensorboard.main").origin.removesuffix(".py")
PART = re.compile(
    r"^```(?P<language>\w*)\n(?P<fenced>.*?)^```$|(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n)+)|`(?P<span>[^`]+)`",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = r"python3?|pip|apt|ray|docker|tensorboard|train\.py|play\.py|doom-a3c-\w+"
# How a code span that is a command begins
CALL = re.compile(rf"(?:{PROGRAMS})\s|[a-z][\w./-]*(?:\s[a-z]+)?\s-{{1,2}}\w")

# Placeholders and their values
PLACEHOLDERS = {
    "reference/NAME": "reference/r1_a3c_doom",
    "NAME": "basic",
    "GAME": "basic",
    "ENGINE": "queue",
    "SEED": "3",
    "S": "3",
    "FRAMES": "300",
    "FILE": "summary.json",
    "PEERS/bin/python": sys.executable,
}

TRAINING = {"--workers": "1", "--envs-per-worker": "2", "--evaluate-every": "0", "--evaluation-episodes": "1"}
OWN = r" --scenario (mine|my_module)\b"  # play.py needs such a game named, so its run must not be the newest
QUICK = ("--doctor", "--compare-runs", "--list-scenarios", "--list-models", "--export")

# Commands of train.py that are not run: --print-settings only resolves their settings
RESOLVED = {
    r" --(hosts|address) ": "needs a cluster, which tests/test_cluster.py starts",
    r" --engine cluster|/r3_parameter_server": "starts Ray; tests/test_cluster.py trains so",
    r" --workers 16": "needs sixteen cores",
    r" --minutes 90": "another name of a game that docs/atari.md trains by its id",
    r"^train --scenario \w+( --seed \d+)?$": "a tuned game: tests/test_scenarios.py loads and plays each",
}

# Commands that no test can or need run
NOT_RUN = {
    "apt install": "needs root and the network",
    "docker": "needs a Docker daemon",
    "export RAY_": "tests/test_cluster.py sets what the program itself needs",
    "ray up": "needs cloud machines; the page says that it was not tried",
    "ssh -X": "needs another machine",
    "kill -9": "a signal, not a command; tests/test_signals.py and tests/test_nothing_lost.py send it",
    "python3 -m venv .venv": ".ci/run makes an environment",
    ". .venv/bin/activate": ".ci/run makes an environment",
    "python -m pytest": "it runs this",
    "python docs/site.py": "it writes into docs; tests/test_site.py compares what it makes",
}


def read_blocks(text, language):
    """Returns the contents of the fenced blocks of a language."""
    return [part["fenced"] for part in PART.finditer(text) if part["language"] == language]


def read_commands(text):
    """Returns the commands of a page in order: lines of shell and indented blocks, and code spans that are commands."""
    lines = []
    for part in PART.finditer(text):
        if part["language"] == "sh" or part["indented"]:
            lines += (part["fenced"] or part["indented"]).splitlines()
        elif part["span"] and CALL.match(part["span"]):
            lines.append(part["span"])
    words = [shlex.split(line, comments=True) for line in lines]
    return [command.strip() for each in words for command in shlex.join(each).split("'&&'")]


def shorten(words, folder):
    """Returns the words of a call of train.py or play.py, with flags that shorten it and its outputs in the folder."""
    line = " ".join(words)
    if words[0] == "train" and any(re.search(pattern, line) for pattern in RESOLVED):
        engine = ("--engine", "cluster") if "--resume" in words else ()  # the resumed run was trained without it
        return [*words, *engine, "--print-settings"]
    if any(word in words for word in QUICK):
        return words
    if words[0] == "train":
        given = {"--frames": "1500" if "--resume" in words else "300"}
        added = TRAINING | given | ({"--models-dir": "mine"} if re.search(OWN, line) else {})
    else:
        given = {"--episodes": "2" if "--compare" in words else "1"}
        added = given if "--compare" in words else given | {"--random-episodes": "1"}
    words = [str(folder / "result") if word == "/tmp/result" else word for word in words]
    words = [given.get(before, word) for before, word in pairwise(["", *words])]
    return [*words, *(word for flag, value in added.items() if flag not in words for word in (flag, value))]


def find_requirements(*arguments):
    """Raises AssertionError if a file named to pip does not exist: installing needs the network."""
    assert arguments[0] == "install"
    for flag, file in pairwise(arguments):
        assert flag not in ("-r", "-c") or (ROOT / file).is_file(), f"pip {shlex.join(arguments)}: no {file}"


def parse_ray(name, *arguments):
    """Parses a command of Ray, since running it needs several machines; skips the test if Ray is not installed."""
    commands = pytest.importorskip("ray.scripts.scripts").cli.commands
    commands[name].make_context(f"ray {name}", list(arguments))


class Prover:
    """Runs commands in a folder; commands that are equal once shortened run only once."""

    def __init__(self, folder):
        self.folder = folder
        self.said = {}  # the output of each command, by its sorted words

    def prove(self, command):
        """Runs a command of a page, or as much of it as possible; raises AssertionError if it is wrong or unknown."""
        if any(command.startswith(known) for known in NOT_RUN):
            return
        program, *arguments = (PLACEHOLDERS.get(word, word) for word in shlex.split(command.removeprefix("python ")))
        program = program.removeprefix("doom-a3c-").removesuffix(".py")
        if program in ("train", "play"):
            self._call(*shorten([program, *arguments], self.folder))
        elif program == "-m" and arguments[0].startswith("benchmarks."):
            self._call(ROOT / "tests" / "only_parse", *arguments)
        elif program == "docs/own_scenario/make_orchard":
            self._call(program, *arguments)
        elif program == "tensorboard":
            found = self._call(TENSORBOARD, *arguments, "--inspect")
            assert "Found event files in:" in found, (command, found)
        elif program == "pip":
            find_requirements(*arguments)
        elif program == "ray":
            parse_ray(*arguments)
        elif program == "ls":
            subprocess.run([program, *arguments], cwd=self.folder, check=True, capture_output=True)
        else:
            raise AssertionError(f"{command}: tests/page_commands.py does not know how to prove this command")

    def _call(self, program, *arguments):
        key = (str(program), *sorted(arguments))
        if key not in self.said:
            result = call(program, *arguments, cwd=self.folder, timeout=600, PYTHONPATH=str(self.folder))
            assert result.returncode == 0, (program, *arguments, result.stdout, result.stderr)
            self.said[key] = result.stdout
        return self.said[key]
