"""Large binaries that `.ci/run` refuses."""

import shutil
import subprocess
import sys

import pytest

LARGE = b"\0" + b"x" * 300_000


@pytest.fixture
def check(root, tmp_path):
    """Returns a function that runs the check in a new repository and returns its exit status and its messages."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(root / ".ci" / "binaries.py", tmp_path / ".ci")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)

    def run(*arguments):
        command = [sys.executable, ".ci/binaries.py", *arguments]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return result.returncode, result.stderr

    return run


def test_a_new_or_changed_large_binary_must_be_listed(check, tmp_path):
    film = tmp_path / "film of a run.gif"
    film.write_bytes(LARGE)
    status, message = check()
    assert status == 1
    assert film.name in message
    assert check("--update") == (0, "")
    assert check() == (0, "")
    film.write_bytes(LARGE + b"y")
    status, message = check()
    assert status == 1
    assert "changed" in message


def test_a_committed_binary_is_checked_too(check, tmp_path):
    (tmp_path / "model.ckpt").write_bytes(LARGE)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert check()[0] == 1


def test_small_binaries_long_texts_and_ignored_files_pass(check, tmp_path):
    (tmp_path / "small.gif").write_bytes(LARGE[:300_000])
    (tmp_path / "table.csv").write_text("1,2,3\n" * 100_000)
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "run.log").write_bytes(LARGE)
    assert check() == (0, "")


def test_a_deleted_binary_must_be_removed_from_the_list(check, tmp_path):
    (tmp_path / "film.gif").write_bytes(LARGE)
    check("--update")
    (tmp_path / "film.gif").unlink()
    status, message = check()
    assert status == 1
    assert "film.gif" in message
    check("--update")
    assert check() == (0, "")


def test_ci_runs_the_check(root):
    assert ".ci/binaries.py\n" in (root / ".ci" / "run").read_text()
