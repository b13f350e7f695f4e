"""The notebook in docs/ runs in place from its first cell to its last, and is kept with its outputs."""

import json
import os

import nbformat
import pytest
from commands import ROOT
from nbclient import NotebookClient

pytestmark = pytest.mark.process

MOST = 300_000  # bytes of all outputs


@pytest.fixture
def tour():
    return nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)


def outputs_of(tour):
    """Returns the outputs of each code cell."""
    return [cell.outputs for cell in tour.cells if cell.cell_type == "code"]


def assert_complete(tour):
    """Asserts that each code cell has run, in order, and that pictures and the panel of the training are shown."""
    counts = [cell.execution_count for cell in tour.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in outputs_of(tour) for output in cell]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {"image/png", "image/jpeg"} <= {kind for output in outputs for kind in output.get("data", {})}
    panel, agent = (output for output in outputs_of(tour)[1] if output.output_type != "stream")  # streams hold warnings
    shown = panel.data["text/plain"]
    assert all(name in shown for name in ("frames ", "evaluation ", "best weights"))
    assert "<Agent basic" in agent.data["text/plain"]
    assert "MOVE_" in str(outputs) or "ATTACK" in str(outputs)


def test_the_tour_runs_in_place(tour, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUR_SECONDS", "2")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    docs = ROOT / "docs"
    before = sorted(os.listdir(docs))
    client = NotebookClient(tour, timeout=240, resources={"metadata": {"path": str(docs)}})
    client.execute()  # raises where a cell does
    assert_complete(tour)
    assert sorted(os.listdir(docs)) == before
    assert list(tmp_path.glob("tour-*/result/index.html"))


def test_the_tour_is_kept_with_its_outputs(tour):
    assert_complete(tour)
    assert len(json.dumps(outputs_of(tour))) < MOST
