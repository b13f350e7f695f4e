"""Imports only go down, and light modules stay light."""

import ast
import os
import subprocess
import sys

import pytest

# Ranks of rooms: subpackages and top-level modules. A module may import its own room and those of lower rank.
RANKS = {
    "doom_a3c": 0,
    "quiet": 0.5,
    "settings": 1,
    "algorithm": 2,
    "record": 3,
    "envs": 3,
    "agent": 4,
    "engines": 5,
    "run": 6,
    "cli": 7,
    "api": 8,
}
# Inner rooms: what each may import of its outer room besides itself.
INNER = {
    "doom_a3c.envs.processes": (),
    "doom_a3c.envs.doom": ("doom_a3c.envs.processes", "doom_a3c.envs.pixels"),
    "doom_a3c.record.metrics": ("doom_a3c.record.files",),
    "doom_a3c.record.films": ("doom_a3c.record.files", "doom_a3c.record.metrics"),
    "doom_a3c.run.checkpoints": (),
    "doom_a3c.run.play": ("doom_a3c.run",),
}
OF_THE_PACKAGE = {
    "doom_a3c.api",
    "doom_a3c.envs.parallel",
    "doom_a3c.envs.registry",
    "doom_a3c.run.imports",
    "doom_a3c.settings.renames",
}  # modules that the package's own __init__ may import
HEAVY = ("tensorflow", "keras", "ray")
READING_LIST = (  # explains an update completely, in this order
    *("algorithm/returns.py", "algorithm/losses.py"),
    *("agent/rollouts.py", "agent/targets.py", "agent/learner.py", "agent/model.py"),
    "engines/threads.py",
)


def module_names(root):
    package = root / "doom_a3c"
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def nodes(tree, *, late):
    """Yields the nodes of a tree; without `late`, skips functions and TYPE_CHECKING blocks."""
    yield tree
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if late or not (for_types or isinstance(node, ast.FunctionDef)):
            yield from nodes(node, late=late)


def imports(name, path, known, *, late=True):
    """Returns all modules that a module imports; without `late`, only the imports made while it loads."""
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes(ast.parse(path.read_text()), late=late):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            # `from doom_a3c.settings import config` imports a module, `from doom_a3c.settings.fields import plain` does not
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return found


def closure(start, known):
    """Returns the modules of this package that run when `start` is imported, directly or indirectly."""
    found, left = set(), {start}
    while left:
        found |= left
        left = set().union(*(imports(name, known[name], known, late=False) for name in left)) & known.keys() - found
    return found


def line_count(paths):
    """Returns the number of lines in some files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def room(name):
    """Returns a module's key in RANKS."""
    return name.split(".")[1] if "." in name else name


@pytest.fixture(scope="module")
def modules(root):
    """Maps each module of the package to its imports."""
    known = module_names(root)
    return {name: imports(name, path, known) for name, path in known.items()}


def loaded(root, module):
    """Returns the top-level names in sys.modules after importing a module in a new process."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    output = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return set(output.stdout.split())


def test_every_module_has_a_rank(modules):
    assert len(modules) > 60
    assert {room(name) for name in modules} == RANKS.keys()  # for a new one, DESIGN says where it belongs


def test_imports_only_go_down(modules):
    upward = []
    for name, targets in modules.items():
        for target in (target for target in targets if target.partition(".")[0] == "doom_a3c"):
            inside = room(name) == room(target) and "." in name
            if name == "doom_a3c" and target in OF_THE_PACKAGE:
                continue
            if not inside and RANKS[room(target)] >= RANKS[room(name)]:
                upward.append(f"{name} imports {target}")
    assert upward == []


def lies_in(module, package):
    """Returns whether a module is a package or belongs to it."""
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("inner", INNER)
def test_inner_rooms_import_only_allowed_modules(modules, inner):
    own = {name: targets for name, targets in modules.items() if lies_in(name, inner)}
    assert len(own) > 3
    outer, allowed = inner.rpartition(".")[0], (inner, *INNER[inner])
    targets = {(name, target) for name in own for target in own[name] if lies_in(target, outer)}
    assert {pair for pair in targets if not any(lies_in(pair[1], one) for one in allowed)} == set()


def test_run_does_not_import_run_play(modules):
    others = {name: targets for name, targets in modules.items() if room(name) == "run" and ".play" not in name}
    assert {
        (name, target) for name, targets in others.items() for target in targets if lies_in(target, "doom_a3c.run.play")
    } == set()


def cycle(graph):
    """Returns the nodes along a cycle in an import graph, or [] if there is none."""
    done = set()

    def visit(name, path):
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for target in sorted(graph[name] & graph.keys()):
                if found := visit(target, [*path, name]):
                    return found
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in sorted(graph))), [])


@pytest.mark.parametrize("name", sorted(RANKS))
def test_no_room_has_an_import_cycle(modules, name):
    assert cycle({module: targets for module, targets in modules.items() if room(module) == name}) == []


def test_the_check_finds_cycles():
    graph = {"a": {"b", "c", "elsewhere"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert cycle(graph) == []
    assert cycle({**graph, "d": {"b"}}) == ["b", "c", "d", "b"]
    assert cycle({**graph, "d": {"d"}}) == ["d", "d"]


def test_the_check_finds_nested_and_relative_imports(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "from __future__ import annotations\nfrom . import b\nfrom .b import thing\nfrom ..c import d\n"
        "def late():\n    import doom_a3c.envs.doom.env\n    from doom_a3c.run import training\n"
        "if TYPE_CHECKING:\n    import doom_a3c.envs.games\n"
    )
    known = {"doom_a3c.envs.b", "doom_a3c.run.training"}
    assert imports("doom_a3c.envs.a", path, known) == {
        "__future__",
        "doom_a3c.envs.b",
        "doom_a3c.c",
        "doom_a3c.envs.doom.env",
        "doom_a3c.run.training",
        "doom_a3c.envs.games",
    }
    assert imports("doom_a3c.envs.a", path, known, late=False) == {"__future__", "doom_a3c.envs.b", "doom_a3c.c"}


def rooms(targets):
    """Returns the rooms of this package among some imported modules."""
    return {room(target) for target in targets if target.partition(".")[0] == "doom_a3c"}


def imported_in(modules, name):
    """Returns all modules imported in a room."""
    return {target for module in modules if room(module) == name for target in modules[module]}


def tops(targets):
    """Returns the top-level packages of some modules."""
    return {target.partition(".")[0] for target in targets}


def test_envs_import_no_tensorflow_and_only_settings(modules):
    assert not tops(imported_in(modules, "envs")) & set(HEAVY)
    assert rooms(imported_in(modules, "envs")) == {"settings", "envs"}


def test_envs_and_record_do_not_import_each_other(modules):
    assert "record" not in rooms(imported_in(modules, "envs"))
    assert "envs" not in rooms(imported_in(modules, "record"))


def test_agent_imports_no_environments(modules):
    assert not tops(imported_in(modules, "agent")) & {"vizdoom", "ale_py"}
    assert "envs" not in rooms(imported_in(modules, "agent"))
    assert "gymnasium" not in tops(modules["doom_a3c.agent.networks"])


def test_the_code_of_an_update_stays_short(root):
    assert len(READING_LIST) <= 7
    assert line_count(root / "doom_a3c" / name for name in READING_LIST) <= 1200


def test_the_code_of_the_threads_engine_stays_short(root):
    known = module_names(root)
    names = closure("doom_a3c.engines.threads", known)
    assert {"doom_a3c.agent.networks", "doom_a3c.engines.updates"} < names
    assert line_count(known[name] for name in names) <= 3080


def test_agent_imports_only_algorithm_and_settings(modules):
    assert rooms(imported_in({name: modules[name] for name in modules if name != "doom_a3c.agent.saliency"}, "agent")) <= {
        *("agent", "algorithm", "settings")
    }


def test_algorithm_imports_only_itself(modules):
    assert rooms(imported_in(modules, "algorithm")) <= {"algorithm"}


def test_only_run_and_cli_import_both_envs_and_engines(modules):
    both = [name for name, targets in modules.items() if {"envs", "engines"} <= rooms(targets)]
    assert {room(name) for name in both} <= {"run", "cli"}
    assert "envs" not in rooms(imported_in(modules, "engines"))


def test_only_the_cluster_engine_imports_ray(modules):
    users = [name for name, targets in modules.items() if "ray" in tops(targets)]
    assert users == ["doom_a3c.engines.cluster.ray"]


@pytest.mark.parametrize(
    "module",
    [
        *("doom_a3c", "doom_a3c.settings.config", "doom_a3c.settings.scenarios", "doom_a3c.cli.train"),
        *("doom_a3c.engines.cluster.ray", "doom_a3c.run.remote"),
    ],
)
def test_light_modules_load_neither_tensorflow_nor_vizdoom(root, module):
    assert not loaded(root, module) & {*HEAVY, "vizdoom"}


def test_the_trainers_side_of_games_loads_no_vizdoom(root):
    assert not loaded(root, "doom_a3c.envs.games") & {*HEAVY, "vizdoom"}


def test_games_load_no_tensorflow(root):
    names = [name for name in module_names(root) if room(name) == "envs"]
    assert len(names) >= 4
    assert not loaded(root, ", ".join(names)) & set(HEAVY)


def test_the_command_lines_import_tensorflow_without_keras(root):
    code = (
        "import sys; from doom_a3c.run.imports import import_tensorflow; import_tensorflow(1, False, 'cpu');"
        "import doom_a3c.run.launch, doom_a3c.record.metrics.tensorboard;"
        "assert not {'keras', 'matplotlib'} & set(sys.modules);"
        "import tensorflow; print(tensorflow.keras.optimizers.Adam.__name__)"  # still available on demand
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert output.stdout.split()[-1] == "Adam"


@pytest.mark.process
@pytest.mark.parametrize(("asked", "got"), [({}, "True"), ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "False")])
def test_tensorflow_uses_onednn_unless_disabled(root, asked, got):
    code = (
        "from doom_a3c.run.imports import import_tensorflow; import_tensorflow(1, False, 'cpu');"
        "from tensorflow.python.util import _pywrap_util_port; print(_pywrap_util_port.IsMklEnabled())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"} | asked
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [got]


@pytest.mark.process
@pytest.mark.parametrize(("level", "shown"), [("0", True), ("2", False)])
def test_tensorflow_respects_the_users_log_level(root, level, shown):
    code = "from doom_a3c.run.imports import import_tensorflow; import_tensorflow(1, False, 'cpu')"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": level}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert ("oneDNN custom operations" in result.stderr) == shown
    assert shown or all(line[0] in "EF" for line in result.stderr.splitlines())
