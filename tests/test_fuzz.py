"""The fuzzer, benchmarks.fuzz, without its guide: mutations vary, and guards catch what inputs must not do."""

import json
import subprocess
import sys

import pytest
from commands import ROOT

from benchmarks import fuzz
from benchmarks.stress.targets.mutations import Mutator, join_checkpoint, split_checkpoint, write_toml

pytestmark = pytest.mark.tools

TREE = {"a": [1, 2.5, "text"], "b": {"c": None, "d": True}}

GUARDED = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from benchmarks.stress.targets.guards import Guard, find_outcome
inside = Path(sys.argv[2])
guard = Guard([inside])
guard.know_modules()
guard.limit_memory()
deeds = {
    "good": lambda: None,
    "inside": lambda: (inside / "new").write_text("x"),
    "outside": lambda: (inside.parent / "new").write_text("x"),
    "dotted": lambda: open(f"{inside}/../new", "ab"),
    "suppressed": lambda: [open(f"{inside}/../new", "w") for _ in ()] or quiet(),
    "folder": lambda: os.mkdir(inside.parent / "new"),
    "renamed": lambda: os.rename(inside / "new", inside.parent / "new"),
    "shell": lambda: os.system("true"),
    "program": lambda: __import__("subprocess").run(["true"]),
    "connection": lambda: __import__("socket").create_connection(("127.0.0.1", 9)),
    "module": lambda: __import__("matplotlib"),
    "memory": lambda: bytearray(3 * 2**29),
    "hang": lambda: hang(),
    "error": lambda: {}["missing"],
}
def quiet():
    try:
        (inside.parent / "new").write_text("x")
    except OSError:
        pass
def hang():
    while True:
        try:
            while True:
                pass
        except Exception:
            pass
def take(data):
    deeds[data.decode()]()
    return True
from benchmarks.stress.targets import guards
guards.SECONDS = 0.2
print(json.dumps({name: find_outcome(guard, take, name.encode()) for name in deeds}))
"""


def test_mutations_differ_and_leave_their_input_alone():
    before = json.dumps(TREE)
    results = {repr(Mutator(seed).tree(TREE)) for seed in range(300)}
    assert json.dumps(TREE) == before
    assert len(results) > 250


def test_the_same_seed_makes_the_same_mutation():
    assert repr(Mutator(7, ("word",)).tree(TREE)) == repr(Mutator(7, ("word",)).tree(TREE))


def test_most_mutated_checkpoints_keep_a_readable_header():
    header = {"__metadata__": {"record": json.dumps(TREE)}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    data, whole, changed = join_checkpoint(header, b"abcd"), 0, set()
    for seed in range(200):
        mutated = Mutator(seed).checkpoint(data)
        changed.add(mutated)
        try:
            split_checkpoint(mutated)
            whole += 1
        except ValueError:
            continue
    assert 150 < whole < 200
    assert len(changed) > 150


def test_trees_are_written_as_toml():
    tomllib = pytest.importorskip("tomllib")
    tree = {"name": "x", "game": {"id": "CartPole-v1", "settings": {"sides": [1, 2.5], "on": True}, "odd key": "\x01"}}
    assert tomllib.loads(write_toml(tree)) == tree


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The outcome of every deed in a guarded process."""
    folder = tmp_path_factory.mktemp("guards") / "inside"
    folder.mkdir()
    command = [sys.executable, "-c", GUARDED, str(ROOT), str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert [path.name for path in folder.parent.iterdir()] == ["inside"]
    return json.loads(answer.stdout)


@pytest.mark.parametrize("deed", ["good", "inside"])
def test_guards_accept_good_inputs(seen, deed):
    assert seen[deed] == ["accepted", "", ""]


@pytest.mark.parametrize(
    ("deed", "signature"),
    [
        *((deed, "write") for deed in ("outside", "dotted", "suppressed", "folder", "renamed")),
        ("shell", "os.system"),
        ("program", "subprocess.Popen"),
        ("connection", "socket.connect"),
        ("module", "import"),
        ("memory", "MemoryError"),
        ("hang", "HangError"),
        ("error", "KeyError"),
    ],
)
def test_guards_report_forbidden_deeds(seen, deed, signature):
    verdict, message, _ = seen[deed]
    assert (verdict, message.split()[0]) == ("finding", signature)


def test_a_finished_campaign_is_not_rerun_and_counts_all_inputs(tmp_path, monkeypatch, capsys):
    batches = []

    def batch(target, inputs, seed, folder, first):
        batches.append((target, inputs, first))
        return {
            "target": target,
            "died": False,
            "interrupted": False,
            "inputs": inputs,
            "accepted": inputs,
            "seconds": 2.0,
            "findings": {},
        }

    monkeypatch.setattr(fuzz, "run_batch", batch)
    options = fuzz.parse(["--inputs", "500000", "--only", "records", "--folder", str(tmp_path)])
    fuzz.campaign(options)
    assert batches == [("records", 200_000, True), ("records", 200_000, False), ("records", 100_000, False)]
    fuzz.campaign(options)
    assert len(batches) == 3
    text, kinds = fuzz.make_table(options)
    assert "| records | 500,000 | 500,000 | 0 | 0, 0 | 83,333 |" in text
    assert kinds == 0


GOOD = """
import os, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from benchmarks.stress.targets.registry import TARGETS
for name, make in TARGETS.items():
    folder = Path(tempfile.mkdtemp(dir=sys.argv[2]))
    os.chdir(folder)
    target = make(folder)
    print(name, [target.take(seed) for seed in target.seeds])
"""


def test_every_target_accepts_all_its_good_inputs(tmp_path):
    command = [sys.executable, "-c", GOOD, str(ROOT), str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert [line for line in lines if "True" not in line or "False" in line] == []
