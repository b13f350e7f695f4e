"""The package of benchmarks: its README lists every command, modules need no path of their own and import in no circle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter

import pytest

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def sources(root):
    """The source of each module of benchmarks, by its name."""
    paths = sorted((root / "benchmarks").rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts): path.read_text() for path in paths}


def list_imports(source):
    """Yields the modules that a source may import, late imports included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def sort_modules(sources):
    """Returns the modules in an order in which none imports a later one; raises CycleError where there is none."""
    graph = {name: {each for each in list_imports(source) if each in sources} for name, source in sources.items()}
    return list(TopologicalSorter(graph).static_order())


def test_modules_import_in_no_circle(sources):
    assert len(sort_modules(sources)) == len(sources) > 50
    with pytest.raises(CycleError):
        sort_modules({"a": "from b import c", "b": "def f():\n    import a"})


def test_no_module_changes_the_path(sources):
    found = [name for name, source in sources.items() if re.search(r"sys\.path\b|E402", source)]
    assert found == []


def test_the_readme_lists_every_command(root, sources):
    table = (root / "benchmarks" / "README.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)", table, flags=re.MULTILINE))
    assert listed == {name.removeprefix("benchmarks.") for name, source in sources.items() if "    run_command(" in source}


def test_every_package_is_one(root):
    folders = {path.parent for path in (root / "benchmarks").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
