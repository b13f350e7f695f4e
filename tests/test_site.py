"""The pages of docs/ that are made from the program are those that it makes today; the site is built by .ci/run."""

import importlib.util

import pytest
from commands import ROOT

pytestmark = pytest.mark.tools

spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)


@pytest.mark.parametrize("name", ["settings.md", "scenarios.md"])
def test_a_page_is_what_the_program_makes_of_it(name):
    assert (ROOT / "docs" / name).read_text() == site.PAGES[name](), "python docs/site.py writes it again"


def test_links_to_code_are_words_on_the_site_and_others_stay():
    text = "[`a.py`, `b`](../doom_a3c/a.py), [x](../tests/y.py), [page](watching.md#a), [far](https://example.org)"
    assert site.on_page_markdown(text) == "`a.py`, `b`, x, [page](watching.md#a), [far](https://example.org)"
