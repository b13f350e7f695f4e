"""Writing JSON, and the checks of output paths."""

import json
import os
import re

import pytest

from doom_a3c.record.files import output_file, output_folder, write_json
from doom_a3c.settings.errors import UserError


def test_non_finite_numbers_are_written_as_null(tmp_path):
    write_json(tmp_path / "data.json", {"mean": float("nan"), "scores": [1.0, float("-inf")], "within": ({"a": 2},)})
    assert json.loads((tmp_path / "data.json").read_text()) == {"mean": None, "scores": [1.0, None], "within": [{"a": 2}]}


@pytest.mark.parametrize("path", ["/proc/none/s.json", "/proc/s.json", "file/s.json", "file/more/s.json", "folder"])
def test_an_unwritable_path_is_named_as_given(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=rf"^--summary {re.escape(path)}\b.*name .*file"):
        output_file(path, "--summary")
    with pytest.raises(UserError, match=r"^--out file: it is a file; name a folder"):
        output_folder("file", "--out")


def test_the_folder_of_a_file_is_created(tmp_path):
    assert output_file(str(tmp_path / "new" / "s.json"), "--summary") == tmp_path / "new" / "s.json"
    assert os.listdir(tmp_path / "new") == []
