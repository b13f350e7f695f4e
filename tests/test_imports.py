"""Imports go down only, and light modules stay light."""

import ast
import subprocess
import sys

import pytest

# By module, or by subpackage for all modules in it. A module may import those of lower rank, and its own subpackage.
RANKS = {
    "doom_a3c": 0,
    "settings": 1,
    "wads": 1.2,
    "config": 1.2,
    "files": 1,
    "quiet": 1,
    "returns": 1,
    "graphs": 1,
    "losses": 1,
    "lstm": 1,
    "precision": 1,
    "vtrace": 1,
    "curves": 1.2,
    "optimizers": 1,
    "progress": 1,
    "summaries": 1,
    "scenarios": 2,
    "catalog": 2.2,
    "networks": 2.5,
    "envs": 2.5,
    "rollouts": 3,
    "checkpoint": 3,
    "model": 3,
    "learner": 4,
    "engines": 5,
    "evaluation": 5,
    "recording": 4,
    "training": 5.5,
    "cli": 6,
}
HEAVY = ("tensorflow", "keras", "ray")


def module_names(root):
    package = root / "doom_a3c"
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(name, path, known):
    """Returns all modules that a module imports, at its top, inside functions, and for type checking."""
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).rstrip(".")
            # `from doom_a3c import scenarios` imports a module, `from doom_a3c.config import Config` does not
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return found


def room(name):
    """Returns what RANKS knows a module by."""
    return name.split(".")[1] if "." in name else name


@pytest.fixture(scope="module")
def modules(root):
    """All modules of the package with what they import."""
    known = module_names(root)
    return {name: imports(name, path, known) for name, path in known.items()}


def loaded(root, module):
    """Returns the top-level names in sys.modules after importing a module in a new process."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    output = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return set(output.stdout.split())


def test_every_module_has_a_rank(modules):
    assert len(modules) > 15
    assert [name for name in modules if room(name) not in RANKS] == []  # a new one: DESIGN says where it belongs


def test_imports_only_go_down(modules):
    upward = []
    for name, targets in modules.items():
        for target in (target for target in targets if target.partition(".")[0] == "doom_a3c"):
            inside = room(name) == room(target) and "." in name
            if not inside and RANKS[room(target)] >= RANKS[room(name)]:
                upward.append(f"{name} imports {target}")
    assert upward == []


def test_the_check_sees_nested_and_relative_imports(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "from __future__ import annotations\nfrom . import b\nfrom .b import thing\nfrom ..c import d\n"
        "def late():\n    import doom_a3c.envs.doom\n    from doom_a3c import training\n"
    )
    known = {"doom_a3c.envs.b", "doom_a3c.training"}
    assert imports("doom_a3c.envs.a", path, known) == {
        "__future__",
        "doom_a3c.envs.b",
        "doom_a3c.c",
        "doom_a3c.envs.doom",
        "doom_a3c.training",
    }


def tops(modules, prefix):
    return {
        target.partition(".")[0] for name in modules if name.startswith(f"doom_a3c.{prefix}") for target in modules[name]
    }


def test_games_know_no_tensorflow_and_no_engine(modules):
    assert not tops(modules, "envs") & set(HEAVY)
    assert not any(room(target) == "engines" for name in modules if room(name) == "envs" for target in modules[name])


def test_networks_know_no_environment(modules):
    targets = modules["doom_a3c.networks"]
    assert not {target.partition(".")[0] for target in targets} & {"gymnasium", "vizdoom", "ale_py"}
    assert not any(room(target) == "envs" for target in targets)


def test_mathematics_knows_nothing_else(modules):
    for name in ("returns", "losses", "lstm", "optimizers"):
        assert not any(target.startswith("doom_a3c") for target in modules[f"doom_a3c.{name}"])


def test_only_the_command_lines_know_games_and_engines(modules):
    both = [name for name, targets in modules.items() if {"envs", "engines"} <= {room(target) for target in targets}]
    assert all(room(name) == "cli" for name in both)
    assert not any(
        room(target) == "envs" for name in modules if room(name) in ("engines", "learner") for target in modules[name]
    )


def test_ray_is_for_the_cluster_engine_alone(modules):
    users = [name for name, targets in modules.items() if any(t.partition(".")[0] == "ray" for t in targets)]
    assert set(users) == {"doom_a3c.engines.cluster", "doom_a3c.engines.connection"}


@pytest.mark.parametrize("module", ["doom_a3c", "doom_a3c.config", "doom_a3c.scenarios", "doom_a3c.cli.train"])
def test_light_modules_load_neither_tensorflow_nor_an_engine(root, module):
    assert not loaded(root, module) & {*HEAVY, "vizdoom"}


def test_the_trainers_side_of_games_loads_no_engine(root):
    assert not loaded(root, "doom_a3c.envs.games") & {*HEAVY, "vizdoom"}


def test_games_load_no_tensorflow(root):
    names = [name for name in module_names(root) if room(name) == "envs"]
    assert len(names) >= 4
    assert not loaded(root, ", ".join(names)) & set(HEAVY)


def test_the_command_lines_import_tensorflow_without_keras(root):
    code = (
        "import sys; from doom_a3c.cli import command; command.import_tensorflow(1, False, 'cpu');"
        "assert not {'keras', 'matplotlib'} & set(sys.modules);"
        "import tensorflow; print(tensorflow.keras.optimizers.Adam.__name__)"  # who wants it later still gets it
    )
    output = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert output.stdout.split()[-1] == "Adam"
