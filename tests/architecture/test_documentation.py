"""Documentation: its links lead somewhere, the site has every page, and commands are those of the program."""

import importlib.util
import json
import re
import tomllib

import pytest
import yaml

from tests.sandbox import ROOT
from train_bench.cli.verbs import COMPOSING, EXAMPLES, FIRST_STEPS, VERBS
from train_bench.plan import discover

PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("references/**/README.md")),
    ROOT / "bench" / "README.md",
]
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```[^\n]*$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?train-bench +(-?[\w-]+)(.*)$", re.MULTILINE)


def site():
    """tools/site.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("site_of_documentation", ROOT / "tools" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(text):
    """Anchors of headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page, text):
    """Links of a page to files or headings that do not exist."""
    for target in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    assert list(broken(page, page.read_text())) == []


def test_a_link_to_nothing_is_found():
    page = ROOT / "docs" / "index.md"
    text = "[a](nothing.md) [b](options.md#none) ![c](pictures/none.svg) [d](options.md) [e](https://x.y)"
    assert list(broken(page, text)) == ["nothing.md", "options.md#none", "pictures/none.svg"]


def navigated(node):
    """Pages of mkdocs' navigation."""
    if isinstance(node, str):
        yield node
        return
    for inner in node.values() if isinstance(node, dict) else node:
        yield from navigated(inner)


def test_the_navigation_of_the_site_has_every_page():
    pages = set(navigated(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = {page for page in written if not page.startswith("decisions/0")}
    assert listed <= pages
    assert pages - written <= {*site().outside().values(), "help.md", "messages.md"}


def test_links_of_the_site_lead_to_its_pages():
    relinked = site().relinked
    assert relinked("[R](../references/README.md#a)", "index.md") == "[R](references/README.md#a)"
    assert relinked("[R](../../README.md)", "tutorials/x.md") == "[R](../project.md)"
    assert relinked("![R](docs/pictures/run.svg)", "project.md") == "![R](pictures/run.svg)"
    assert (
        relinked("[E](../train_bench/rules/errata.yaml), [x](https://a.b)", "judging.md")
        == "E, [x](https://a.b)"
    )
    assert relinked("```\n[R](../README.md)\n```", "index.md") == "```\n[R](../README.md)\n```"


def test_pages_that_are_made_of_the_code_have_every_verb_and_the_sentences_of_errors():
    pages = site().generated()
    assert all(f"\n## {verb}\n" in pages["help.md"] for verb in VERBS)
    assert "There is no option" in pages["messages.md"]
    assert pages["messages.md"].count("\n- `") > 300


def test_the_readme_is_short_and_shows_two_pictures():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") < 120
    pictures = re.findall(r"!\[.+?\]\((docs/pictures/[\w.]+)\)", text)
    assert len(pictures) >= 2
    assert all((ROOT / picture).stat().st_size < 400_000 for picture in pictures)


def test_every_verb_is_on_the_page_of_commands_and_has_examples():
    page = (ROOT / "docs" / "commands.md").read_text()
    for verb in VERBS:
        assert f"train-bench {verb}" in page, verb
    assert {*EXAMPLES} == {*VERBS}
    for verb, examples in EXAMPLES.items():
        assert examples and all(words.split()[0] == verb for words in examples)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_verbs_and_options_that_exist(page):
    if page.name == "CHANGELOG.md" or "decisions" in page.parts:
        return
    for verb, words in COMMAND.findall(page.read_text()):
        check_command(verb, words)


@pytest.mark.parametrize("words", [*FIRST_STEPS, *(one for each in EXAMPLES.values() for one in each)])
def test_examples_name_verbs_and_options_that_exist(words):
    verb, _, arguments = words.partition(" ")
    check_command(verb, arguments)


INSTALLED = [*PAGES, *sorted((ROOT / "examples" / "container").iterdir()), ROOT / "Makefile"]


def test_what_pip_is_told_to_install_is_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        extra
        for path in INSTALLED
        for words in re.findall(r"pip install [^\n]*?\.\[([\w,]+)\]", path.read_text())
        for extra in words.split(",")
    }
    assert {"references", "docs", "wandb"} <= named <= extras.keys()


def check_command(verb, words):
    from train_bench.cli.overrides import is_option, name_of

    assert verb in VERBS or verb.startswith("-"), verb
    if verb in COMPOSING:
        typed = re.sub(r"'[^']*'|\"[^\"]*\"| -- .*|#.*", "", words).split()
        for word in typed:
            if re.match(r"[a-z_.]+=", word) and not word.startswith("hydra"):
                assert is_option(name_of(word)), word


UNMEASURED = "Not yet measured on a GPU."
MEASURED = re.compile(r"^Measured on an? [\w ]+ in \w+, [\d-]+: [^\n]+(?:\n[^\n]+)*", re.MULTILINE)
TARGET = re.compile(r"\((\.\./\.\./docs/gpu/[\w-]+)\.md\)")
CLAIM = re.compile(r"[\d,.]+ samples/s in steps of \d+|to its target in [\d.]+ s")
MIDIS = {"bert_midi": "bert", "llama_midi": "llama31_8b"}
"""Parts of gpu-check that run a reference to its target."""


def gpu_figures():
    """By reference, figures of the files of docs/gpu as a README spells them: samples/s, seconds to the target."""
    figures = {}
    for path in (ROOT / "docs" / "gpu").glob("*.json"):
        content = json.loads(path.read_text())
        for row in content["references"]:
            figures.setdefault(row["name"], set()).add(
                f"{row['ours']:,.1f} samples/s in steps of {row['batch']}"
            )
        for part in content["parts"]:
            if part["name"] in MIDIS and part["status"] == "ok":
                said = f"to its target in {60 * part['numbers']['minutes']:.1f} s"
                figures.setdefault(MIDIS[part["name"]], set()).add(said)
    return figures


def wrong_gpu_line(text, figures):
    """Reason why the text of a README does not have the line on GPUs that belongs to these figures; None if it has."""
    measured = MEASURED.findall(text)
    if len(measured) + text.splitlines().count(UNMEASURED) != 1:
        return "has not exactly one line on GPUs"
    if bool(measured) != bool(figures):
        return "is at odds with docs/gpu"
    if not measured:
        return None
    words = " ".join(measured[0].split())
    if TARGET.search(words) is None:
        return "links no page of docs/gpu"
    claims = {*CLAIM.findall(words)}
    return None if claims and claims <= figures else "has no figure, or another one than docs/gpu"


@pytest.mark.parametrize("name", discover.references())
def test_the_readme_of_a_reference_says_what_was_measured_on_which_gpu(name):
    text = (ROOT / "references" / name / "README.md").read_text()
    assert wrong_gpu_line(text, gpu_figures().get(name, set())) is None


ONE = "1.0 samples/s in steps of 8"
MADE_UP = "Measured on a Toy 1 in bf16, 2026-01-01: {} ([figures](../../docs/gpu/toy.md))."


@pytest.mark.parametrize(
    ("text", "figures", "wrong"),
    [
        ("", set(), "has not exactly one line on GPUs"),
        (f"{UNMEASURED}\n\n{UNMEASURED}", set(), "has not exactly one line on GPUs"),
        (UNMEASURED, {ONE}, "is at odds with docs/gpu"),
        (MADE_UP.format(ONE), set(), "is at odds with docs/gpu"),
        (MADE_UP.format(ONE).replace("docs", "pages"), {ONE}, "links no page of docs/gpu"),
        (MADE_UP.format("fast"), {ONE}, "has no figure, or another one than docs/gpu"),
        (
            MADE_UP.format(f"{ONE}, to its target in 2.0 s"),
            {ONE},
            "has no figure, or another one than docs/gpu",
        ),
    ],
)
def test_a_line_on_gpus_that_is_missing_or_made_up_is_found(text, figures, wrong):
    assert wrong_gpu_line(text, figures) == wrong


def test_the_search_of_the_site_fetches_nothing():
    """The plugin `offline` adds a script of the network unless one of this name is there."""
    scripts = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["extra"]["polyfills"]
    assert any("iframe-worker" in script for script in scripts)
    assert all((ROOT / "docs" / script).is_file() for script in scripts)
