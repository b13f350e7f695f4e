"""The notebook of docs/ runs from its first cell to its last, headless."""

import nbformat
import pytest
from commands import ROOT
from nbclient import NotebookClient

pytestmark = pytest.mark.process


@pytest.fixture
def tour():
    return nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)


def test_the_tour_runs_and_shows_what_it_says(tour, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUR_SECONDS", "5")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    client = NotebookClient(tour, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises where a cell does
    outputs = [output for cell in tour.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "image/gif"} <= kinds
    assert "MOVE_" in str(outputs) or "ATTACK" in str(outputs)
    assert (tmp_path / "result" / "index.html").exists()


def test_the_tour_is_kept_without_its_outputs(tour):
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in tour.cells)
