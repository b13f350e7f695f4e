"""Files as they are written."""

import json

from doom_a3c.record.files import write_json


def test_numbers_that_json_has_no_word_for_are_null(tmp_path):
    write_json(tmp_path / "data.json", {"mean": float("nan"), "scores": [1.0, float("-inf")], "within": ({"a": 2},)})
    assert json.loads((tmp_path / "data.json").read_text()) == {"mean": None, "scores": [1.0, None], "within": [{"a": 2}]}
