"""The documentation names only symbols, settings, tests and metrics that exist.

A link into the code names a file of `doom_a3c` and a symbol in it, a link into a scenario file a key and its table:
[`FILE.py`, `Class.method`](../doom_a3c/FILE.py), [`FILE.toml`, `[table] key`](../scenarios/FILE.toml). A link to a line
number would be wrong after the next edit.
"""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[(?P<text>(?:`[^`\n]+`|[^\]`])*)\]\((?P<file>[^)\s#]*)(?:#(?P<anchor>[^)\s]*))?\)")
NAMED = re.compile(r"`(?P<file>[\w/]+\.(?:py|toml))`, `(?P<name>[^`]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FAULT = re.compile(r"[a-z]+(_[a-z]+)+")


# Links


def links(text):
    """Returns (text, file, anchor) of the links to files of this repository."""
    found = [match.group("text", "file", "anchor") for match in LINK.finditer(FENCE.sub("", text))]
    return [link for link in found if link[1] and "://" not in link[1] and not link[1].startswith("mailto:")]


def symbols(body, owner=""):
    """Yields the dotted names of the functions, classes and variables of a module, and of the classes in it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield owner + node.name
        if isinstance(node, ast.ClassDef):
            yield from symbols(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                stored = (name for name in ast.walk(target) if isinstance(name, ast.Name))
                yield from (owner + name.id for name in stored if isinstance(name.ctx, ast.Store))


def keys(table, name=""):
    """Yields the keys of a TOML table, those of the tables in it as `[table] key`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from keys(value, f"{name}.{key}".removeprefix("."))
        else:
            yield f"[{name}] {key}" if name else key


@functools.cache
def names_in(path):
    """Returns what a link to a Python or TOML file may name."""
    text = path.read_text()
    return set(keys(tomllib.loads(text)) if path.suffix == ".toml" else symbols(ast.parse(text).body))


def complaint(shown, file, anchor, folder, root):
    """Returns what is wrong with a link of a document in `folder`, or None if nothing is."""
    target = (folder / file).resolve()
    if not target.exists():
        return f"{file}: no such file"
    if re.fullmatch(r"L\d+.*", anchor or ""):
        return f"{file}#{anchor}: the line moves with the next edit, name a symbol"
    if target.parent == root / "tests":
        test = shown.strip("`")
        return f"{file}: no test {test}" if test.startswith("test_") and test not in names_in(target) else None
    code, scenarios = root / "doom_a3c", root / "scenarios"
    named = NAMED.fullmatch(shown)
    if named is None:
        unnamed = target.suffix == ".py" and target.is_relative_to(code)
        return f"{file}: {shown!r} names no symbol of it, as in [`FILE.py`, `SYMBOL`](...)" if unnamed else None
    if target != (code if target.suffix == ".py" else scenarios) / named["file"]:
        return f"{file}: is not {named['file']}"
    return None if named["name"] in names_in(target) else f"{file}: no {named['name']} in it"


def complaints(text, folder, root=ROOT):
    """Returns what is wrong with the links of a document in `folder`."""
    return [wrong for link in links(text) if (wrong := complaint(*link, folder, root))]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_what_they_say(path):
    assert complaints(path.read_text(), path.parent) == []


@pytest.fixture
def project(tmp_path):
    """A small program with one file of each kind."""
    files = {
        "doom_a3c/agent/nets.py": """
import numpy as np
SIZE, DEPTH = 3, 2
class Net:
    width: int = 5
    gain, bias = 1.0, 0.0
    def step(self, action): pass
    class Head:
        rate = 0.5
def play(net): pass
""",
        "scenarios/base/doom.toml": "frames = 5\n[game.settings]\nhud = false\n",
        "tests/test_nets.py": "def test_steps(): pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gone](nowhere.md)", "no such file"),
        ("![picture](nowhere.gif)", "no such file"),
        ("[`agent/nets.py`, `gone`](doom_a3c/agent/nets.py)", "no gone in it"),
        ("[`agent/nets.py`, `np`](doom_a3c/agent/nets.py)", "no np in it"),
        ("[`agent/nets.py`, `step`](doom_a3c/agent/nets.py)", "no step in it"),
        ("[`agent/nets.py`, `Net.gone`](doom_a3c/agent/nets.py)", "no Net.gone in it"),
        ("[`agent/nets.py`, `play.net`](doom_a3c/agent/nets.py)", "no play.net in it"),
        ("[`nets.py`, `Net`](doom_a3c/agent/nets.py)", "is not nets.py"),
        ("[`agent/nets.py`, `Net`](doom_a3c/agent/nets.py#L4)", "the line moves"),
        ("[`agent/nets.py`, `Net`](doom_a3c/agent/nets.py#L4-L9)", "the line moves"),
        ("[the network](doom_a3c/agent/nets.py)", "names no symbol"),
        ("[`agent/nets.py`](doom_a3c/agent/nets.py)", "names no symbol"),
        ("[`base/doom.toml`, `[game.settings] gone`](scenarios/base/doom.toml)", "no [game.settings] gone in it"),
        ("[`base/doom.toml`, `hud`](scenarios/base/doom.toml)", "no hud in it"),
        ("[`doom.toml`, `frames`](scenarios/base/doom.toml)", "is not doom.toml"),
        ("[`test_gone`](tests/test_nets.py)", "no test test_gone"),
    ],
)
def test_a_wrong_link_is_reported(project, text, message):
    (wrong,) = complaints(text, project, project)
    assert message in wrong


@pytest.mark.parametrize(
    "text",
    [
        *(f"[`agent/nets.py`, `{name}`](doom_a3c/agent/nets.py)" for name in ("Net", "play", "SIZE", "DEPTH")),
        *(f"[`agent/nets.py`, `Net.{name}`](doom_a3c/agent/nets.py)" for name in ("step", "width", "bias", "Head.rate")),
        "[`base/doom.toml`, `frames`](scenarios/base/doom.toml)",
        "[`base/doom.toml`, `[game.settings] hud`](scenarios/base/doom.toml)",
        "[`test_steps`](tests/test_nets.py)",
        "[settings of every game](scenarios/base/doom.toml)",
        "[the tests](tests)",
    ],
)
def test_a_correct_link_is_accepted(project, text):
    assert len(links(text)) == 1
    assert complaints(text, project, project) == []


def test_other_addresses_and_code_blocks_are_ignored():
    text = "[a](https://example.org/x.md) [b](#metrics) [c](mailto:a@example.org)\n```\n[d](nowhere.md)\n```\n"
    assert links(text) == []


# Metrics


def nodes(trees, kind):
    """Returns the nodes of one kind in some modules."""
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, kind)]


def strings(node):
    return {text.value for text in nodes([node], ast.Constant) if isinstance(text.value, str)}


def assigned(trees):
    """Returns the values that modules assign to each variable, by variable name."""
    values = {}
    for node in nodes(trees, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                values.setdefault(target.id, []).append(node.value)
    return values


def fault_kinds(trees):
    """Returns the kinds of faults that modules can count.

    Those are the words passed to `add_fault`, to `add_steps`, and to the errors that say why a process is gone.
    """
    values = assigned(trees)
    kinds = set()
    for call in nodes(trees, ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="add_fault"), args=[kind]):
                given = [kind]
            case ast.Call(func=ast.Attribute(attr="add_steps"), args=[_, _, _, kind]):
                given = [kind]
            case ast.Call(func=ast.Name(id="ProcessError" | "EngineError"), args=[kind, *_]):
                given = values.get(kind.id, []) if isinstance(kind, ast.Name) else [kind]
            case _:
                continue
        kinds.update(word for node in given for word in strings(node) if FAULT.fullmatch(word))
    named = (node for name in ("UNUSABLE", "NO_SCORE", "NON_FINITE", "COLLAPSED") for node in values.get(name, []))
    return kinds | {word for node in named for word in strings(node) if FAULT.fullmatch(word)}


def logged_tags(trees):
    """Returns all tags that modules log: those in the table `TAGS`, one per kind of fault, and those of texts and gifs."""
    tags = {tag for table in assigned(trees).get("TAGS", []) for tag in ast.literal_eval(table).values()}
    for text in nodes(trees, ast.JoinedStr):
        if isinstance(text.values[0], ast.Constant) and text.values[0].value == "Faults/":
            tags.update("Faults/" + kind for kind in fault_kinds(trees))
    for call in nodes(trees, ast.Call):
        match call:
            case ast.Call(func=ast.Attribute(attr="text" | "gif"), args=[ast.Constant(value=tag), *_]):
                tags.add(tag)
    return tags


@pytest.fixture(scope="module")
def modules():
    return [ast.parse(path.read_text()) for path in sorted((ROOT / "doom_a3c").rglob("*.py"))]


@pytest.fixture(scope="module")
def algorithm():
    return (ROOT / "docs" / "algorithm.md").read_text()


def section(text, title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL).group(1)


def documented_tags(text):
    """Returns the tags with their own row: those in the first column of the tables of metrics."""
    logs = section(text, "Metrics").partition("\n### `train.py")[0]
    return {tag for cell in re.findall(r"^\| (.*?) \|", logs, re.MULTILINE) for tag in re.findall(r"`([^`]+)`", cell)}


def test_every_logged_tag_has_a_row_and_every_row_is_logged(algorithm, modules):
    assert documented_tags(algorithm) == logged_tags(modules)


def test_a_tag_that_is_only_mentioned_does_not_count_as_a_row():
    rows = "| tag | meaning |\n|---|---|\n| `Perf/A`, `Perf/B` | see `Perf/C` |\n"
    assert documented_tags(f"## Metrics\n{rows}\n### `train.py --summary`\n| `d` | no tag |\n") == {"Perf/A", "Perf/B"}


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("progress.add_steps(0, 0, (), ['late_push'])", {"late_push"}),
        ("server.add_fault('host_gone')\nserver.retire('no_fault')", {"host_gone"}),
        ("raise EngineError('engine_hung' if hung else 'engine_died')", {"engine_hung", "engine_died"}),
        ("kind = 'server_hung' if late else 'server_died'\nProcessError(kind, 'a_word')", {"server_hung", "server_died"}),
        ("ProcessError(f'{kind}, {count} times', self.last_words('any_log'))", set()),
    ],
)
def test_every_kind_of_fault_is_found(code, kinds):
    tree = ast.parse(code)
    assert fault_kinds([tree]) == kinds
    assert logged_tags([tree, ast.parse("f'Faults/{kind}'")]) == {f"Faults/{kind}" for kind in kinds}


@pytest.mark.parametrize(
    ("code", "tags"),
    [
        ("TAGS = {'hosts': 'Cluster/Hosts', 'reward': 'By Episode/Reward'}", {"Cluster/Hosts", "By Episode/Reward"}),
        ("logger.gif('game', data)\nlogger.text('config', 'Perf/Reward, unscaled')", {"game", "config"}),
    ],
)
def test_every_tag_is_found(code, tags):
    assert logged_tags([ast.parse(code)]) == tags


def test_every_way_to_count_a_fault_is_recognized(modules):
    assert {"non_finite_update", "stale_push", "host_lost", "server_hung", "engine_died"} <= fault_kinds(modules)


# Faults of other programs


def test_every_fault_has_a_row_that_links_to_its_tests(algorithm):
    faults = section(algorithm, "Faults that must not return")
    rows = {int(number): row for number, row in re.findall(r"^\| (\d+) (\|.*)$", faults, re.MULTILINE)}
    assert sorted(rows) == list(range(1, 18))
    for number, row in rows.items():
        tests = [text for text, file, _ in links(row) if text.startswith("`test_") and file.startswith("../tests/")]
        assert tests, f"fault {number} names no test"
        assert len(tests) == len(re.findall(r"\btest_\w+`", row)), f"fault {number}: a test without a link to its file"
