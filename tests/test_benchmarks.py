"""The benchmarks package: its README lists every command, no module edits sys.path, and imports are acyclic."""

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def sources(root):
    """The source of each benchmark module, by module name."""
    paths = sorted((root / "benchmarks").rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts): path.read_text() for path in paths}


def list_imports(source):
    """Yields the modules that a source may import, including late imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def sort_modules(sources):
    """Returns the modules so that none imports a later one; raises CycleError if that is impossible."""
    graph = {name: {each for each in list_imports(source) if each in sources} for name, source in sources.items()}
    return list(TopologicalSorter(graph).static_order())


def test_imports_are_acyclic(sources):
    assert len(sort_modules(sources)) == len(sources) > 50
    with pytest.raises(CycleError):
        sort_modules({"a": "from b import c", "b": "def f():\n    import a"})


def test_no_module_edits_sys_path(sources):
    found = [name for name, source in sources.items() if re.search(r"sys\.path\b|E402", source)]
    assert found == []


def test_the_readme_lists_every_command(root, sources):
    table = (root / "benchmarks" / "README.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)", table, flags=re.MULTILINE))
    assert listed == {name.removeprefix("benchmarks.") for name, source in sources.items() if "    run_command(" in source}


def test_every_folder_with_modules_is_a_package(root):
    folders = {path.parent for path in (root / "benchmarks").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_page_of_self_play_is_a_matrix_of_shares():
    from benchmarks import self_play
    from benchmarks.self_play import BEST, Played

    names = [BEST, "1.0M", "2.5M", "5.0M", "7.5M", *self_play.MODELS]
    pairs = list(self_play.list_pairings(names))
    assert len(pairs) == 15
    assert pairs[:2] == [(BEST, "5.0M", self_play.MATCHES), (BEST, "deathmatch", self_play.MATCHES)]
    assert {pair[2] for pair in pairs[2:]} == {self_play.FEW}
    found = [
        Played(BEST, "5.0M", 11, [1.0] * 90 + [0.0] * 8 + [0.5] * 2, "abc"),
        Played(BEST, "deathmatch", 11, [1.0] * 20, "abc"),
        Played("5.0M", "deathmatch", 11, [1.0] * 15 + [0.0] * 5, "abc"),
    ]
    lines = list(self_play.list_page_lines([*found, Played(BEST, "4.9M", 12, [0.0] * 10, "abc")]))
    assert [line for line in lines if line.startswith("##")] == ["## Seed 11", "## Seed 12"]
    assert "| the best |  | 0.00 |" in lines
    assert "| the best |  | 0.91 | 1.00 |" in lines
    assert "| deathmatch | 0.00 | 0.25 |  |" in lines
    assert sum(line.startswith("- ") for line in lines) == 1
    assert any("wins 90 of 100 matches against 5.0M, a share of 0.91 (0.8" in line for line in lines)
