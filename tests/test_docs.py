"""The documentation names lines, tests and metrics that exist.

A link to a line says in its text what stands on that line: [`def normalized`](../doom_a3c/returns.py#L99). After a change
of the code, `python tests/test_docs.py` moves such links to the nearest line that holds their text.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = [path for path in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md") if path.is_file()]
LINK = re.compile(r"\[(?P<text>`[^`\n]+`|[^\]\n]*)\]\((?P<file>[^)\s#]*)(?:#(?P<anchor>[^)\s]*))?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Of an f-string the part before its first field.
TAG = re.compile(r"""["']((?:Perf|By Episode|Losses|Schedules|Queue|Faults|Evaluation)/[^"'{]*)""")


def links(text):
    """Returns (text, file, anchor) of the links to files of this repository."""
    found = [match.group("text", "file", "anchor") for match in LINK.finditer(FENCE.sub("", text))]
    return [link for link in found if link[1] and "://" not in link[1] and not link[1].startswith("mailto:")]


def complaints(text, folder):
    """Returns what is wrong with the links of a document in `folder`."""
    wrong = []
    for shown, file, anchor in links(text):
        target, span = folder / file, shown.strip("`")
        if not target.exists():
            wrong.append(f"{file}: no such file")
        elif target.parent.name == "tests" and span.startswith("test_"):
            if not re.search(rf"^def {re.escape(span)}\(", target.read_text(), re.MULTILINE):
                wrong.append(f"{file}: no test {span}")
        elif re.fullmatch(r"L\d+", anchor or ""):
            lines = target.read_text().splitlines()
            number = int(anchor[1:])
            if not 1 <= number <= len(lines) or span not in lines[number - 1]:
                held = [index for index, line in enumerate(lines, 1) if span in line]
                wrong.append(f"{file}#{anchor}: not the line of {span!r}, which is on {held or 'none'}")
    return wrong


def fields(path, name):
    """Returns the field names of a NamedTuple in a source file, without importing it."""
    body = re.search(rf"^class {name}\(NamedTuple\):\n(.*?)(?=^\S)", path.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^    (\w+): ", body.group(1), re.MULTILINE)


def logged_tags():
    """Returns the tags in the code, those of evaluations spelled out."""
    sources = sorted((ROOT / "doom_a3c").rglob("*.py"))
    tags = {tag for path in sources for tag in TAG.findall(path.read_text())}
    evaluation = ROOT / "doom_a3c" / "evaluation.py"
    policies, numbers = fields(evaluation, "Evaluation"), fields(evaluation, "Scores")
    return tags | {f"Evaluation/{policy.capitalize()} {key.capitalize()}" for policy in policies for key in numbers}


def section(text, title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL).group(1)


@pytest.fixture(scope="module")
def algorithm():
    return (ROOT / "docs" / "algorithm.md").read_text()


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_to_what_they_say(path):
    assert complaints(path.read_text(), path.parent) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gone](nowhere.md)", "no such file"),
        ("![picture](nowhere.gif)", "no such file"),
        ("[`def normalized`](doom_a3c/returns.py#L1)", "not the line"),
        ("[`def normalized`](doom_a3c/returns.py#L99999)", "not the line"),
        ("[`returns[t] = b`](doom_a3c/returns.py#L1)", "on none"),
        ("[`test_of_nothing`](tests/test_docs.py)", "no test"),
    ],
)
def test_a_wrong_link_is_seen(text, message):
    (complaint,) = complaints(text, ROOT)
    assert message in complaint


def test_other_addresses_and_code_are_no_links_to_files():
    text = "[a](https://example.org/x.md) [b](#metrics) [c](mailto:a@example.org)\n```\n[d](nowhere.md)\n```\n"
    assert links(text) == []


def test_every_fault_has_its_row_and_its_tests_exist(algorithm):
    faults = section(algorithm, "Faults that must not return")
    rows = {int(number): row for number, row in re.findall(r"^\| (\d+) (\|.*)$", faults, re.MULTILINE)}
    assert sorted(rows) == list(range(1, 18))
    for number, row in rows.items():
        tests = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/\w+\.py)\)", row)
        assert tests, f"fault {number} names no test"
        for name, file in tests:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {name}"
        assert len(tests) == len(re.findall(r"\btest_\w+`", row)), f"fault {number}: a test without a link to its file"


def test_every_logged_tag_is_documented(algorithm):
    metrics = section(algorithm, "Metrics")
    tags = logged_tags()
    assert {"Perf/Reward", "Losses/Grad Norm", "Faults/", "Evaluation/Sampled Max"} <= tags
    assert [tag for tag in sorted(tags) if f"`{tag}" + ("" if tag.endswith("/") else "`") not in metrics] == []


def test_every_documented_tag_is_logged(algorithm):
    documented = set(
        re.findall(r"`((?:Perf|By Episode|Losses|Schedules|Queue|Evaluation)/[^`]+)`", section(algorithm, "Metrics"))
    )
    assert documented - logged_tags() == set()


def moved(text, folder):
    """Returns the document with its links to lines moved to the nearest line that holds their text."""

    def move(match):
        shown, file, anchor = match.group("text", "file", "anchor")
        target = folder / file
        if not re.fullmatch(r"L\d+", anchor or "") or not target.is_file():
            return match.group()
        held = [i for i, line in enumerate(target.read_text().splitlines(), 1) if shown.strip("`") in line]
        nearest = min(held, key=lambda line: abs(line - int(anchor[1:])), default=None)
        return match.group() if nearest is None else f"[{shown}]({file}#L{nearest})"

    return LINK.sub(move, text)


def test_a_link_moves_to_the_nearest_line_of_its_text():
    number = next(i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.startswith("def moved("))
    assert moved("[`def moved(text`](test_docs.py#L1)", ROOT / "tests") == f"[`def moved(text`](test_docs.py#L{number})"
    absent = "[`" + "no " * 3 + "`](test_docs.py#L1)"
    assert moved(absent, ROOT / "tests") == absent


if __name__ == "__main__":
    for document in DOCS:
        document.write_text(moved(document.read_text(), document.parent))
        print(*complaints(document.read_text(), document.parent), sep="\n")
