"""The documentation site: generated pages are up to date; links and search work."""

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from commands import ROOT

pytestmark = pytest.mark.tools

spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)


@pytest.mark.parametrize("folder", ["scenarios", "results/learned"])
def test_the_page_of_scenarios_shows_every_film_and_curve(root, folder):
    text = (root / "docs" / "scenarios.md").read_text()
    pictures = [path.relative_to(root / "docs") for path in (root / "docs" / folder).iterdir()]
    assert pictures
    assert [str(path) for path in pictures if f"]({path})" not in text] == []


@pytest.mark.parametrize("name", ["settings.md", "scenarios.md"])
def test_generated_pages_are_up_to_date(name):
    assert (ROOT / "docs" / name).read_text() == site.PAGES[name](), "python docs/site.py updates it"


class Html(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.places, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.places.add(value)
            elif name in ("href", "src") and tag != "base":
                self.links.append(value)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def pages(built):
    return {page: Html(page.read_text()) for page in built.rglob("*.html")}


def complaint(page, link, pages, root):
    """Returns what is wrong with a link of a page; None if its target exists or lies outside the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = page
    if parts.path:
        target = root / unquote(parts.path).lstrip("/") if parts.path.startswith("/") else page.parent / unquote(parts.path)
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "no such page"
    known = pages.get(target.resolve())
    return None if not parts.fragment or known is None or unquote(parts.fragment) in known.places else "no such place"


def test_no_link_of_the_site_is_broken(built, pages):
    wrong = {
        (str(page.relative_to(built)), link): said
        for page, html in pages.items()
        for link in html.links
        if (said := complaint(page, link, pages, built))
    }
    assert wrong == {}


def test_broken_links_are_detected(tmp_path):
    for name, text in {"index.html": '<a href="a/#x">', "a/index.html": '<p id="y"><a href="../b/">'}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    pages = {page: Html(page.read_text()) for page in tmp_path.rglob("*.html")}
    said = [complaint(page, link, pages, tmp_path) for page, html in sorted(pages.items()) for link in html.links]
    assert said == ["no such page", "no such place"]
    assert complaint(tmp_path / "index.html", "a/#y", pages, tmp_path) is None


def test_links_to_code_lead_to_the_code(built, pages):
    code = {
        (page.parent / link).resolve()
        for page, html in pages.items()
        if "code" not in page.relative_to(built).parts
        for link in html.links
        if "code/" in link
    }
    assert {"doom_a3c/agent/learner.py", "scenarios/basic.toml", "docs/own_scenario/make_orchard.py"} <= {
        str(page.relative_to(built / "code")) for page in code
    }
    assert "deal_minibatches" in (built / "code" / "doom_a3c" / "agent" / "learner.py" / "index.html").read_text()


@pytest.mark.parametrize("words", ["frames", "learning rate", "epochs"])
def test_the_search_finds_a_setting_by_its_name(built, words):
    index = json.loads((built / "search" / "search_index.json").read_text())["docs"]
    titles = {each["location"]: re.sub(r"<[^>]+>", "", each["title"]) for each in index}
    assert titles[f"settings/#-{words.replace(' ', '-')}"].replace("-", " ").split() == words.split()
    boosts = {each["location"]: each.get("boost", 1) for each in index}
    assert all(boost < 1 for location, boost in boosts.items() if location.startswith(("notes/", "results/")))
    assert not any(location.startswith("code/") for location in boosts)


def test_the_site_follows_the_systems_dark_mode(built):
    assert (
        'data-md-color-media="(prefers-color-scheme: dark)" data-md-color-scheme="slate"'
        in (built / "index.html").read_text()
    )


def test_the_page_of_play_follows_the_systems_dark_mode():
    text = (ROOT / "doom_a3c" / "run" / "play" / "page.html").read_text()
    assert "color-scheme: light dark" in text
    assert "@media (prefers-color-scheme: dark)" in text
