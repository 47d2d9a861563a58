"""The revision of a checkout, and that of an installation without one."""

import subprocess

import pytest

from tests.needs import ROOT
from train_bench.core import git

STATED = "0123456789abcdef0123456789abcdef01234567"


def repository(folder, *files):
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("one")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        said = ("-c", "user.name=me", "-c", "user.email=me@host.example")
        subprocess.run(["git", "-C", str(folder), *said, *words], check=True)
    return folder


def test_a_checkout_has_its_own_revision_whatever_a_variable_states(tmp_path, monkeypatch):
    monkeypatch.setenv(git.STATED, STATED)
    root = repository(tmp_path, "pyproject.toml", "train_bench/one.py")
    found = git.revision(root)
    assert found != STATED and len(found) == 40
    (root / "train_bench" / "one.py").write_text("two")
    assert git.revision(root) == f"{found}+changes"


def test_an_installation_in_the_checkout_of_others_is_not_of_their_revision(tmp_path):
    repository(tmp_path, "pyproject.toml")
    installed = tmp_path / "venv" / "site-packages"
    (installed / "train_bench").mkdir(parents=True)
    (installed / "train_bench" / "one.py").write_text("one")
    assert git.revision(installed) is None


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        (STATED, STATED),
        (f"{STATED}+changes", f"{STATED}+changes"),
        ("", None),
        ("main", None),
        ("x" * 40, None),
    ],
)
def test_an_installation_without_a_checkout_has_the_revision_that_its_build_states(
    tmp_path, monkeypatch, stated, found
):
    monkeypatch.setenv(git.STATED, stated)
    assert git.revision(tmp_path) == found


CONTAINER = ROOT / "examples" / "container"


def copied():
    """Parts of the checkout that each definition takes into the container."""
    dockerfile = (CONTAINER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    lines = (CONTAINER / "train_bench.def").read_text(encoding="utf-8").splitlines()
    section = lines[lines.index("%files") + 1 : lines.index("%post")]
    files = [words for line in section if (words := line.split()) and words[0] != "#"]
    return {
        "Dockerfile": {
            name for line in dockerfile if line.startswith("COPY ") for name in line.split()[1:-1]
        },
        "train_bench.def": {words[0] for words in files},
    }


@pytest.mark.parametrize("name", ["Dockerfile", "train_bench.def"])
def test_a_container_holds_what_is_installed_and_nothing_else_of_the_checkout(name):
    links = {path.readlink() for path in (ROOT / "train_bench").iterdir() if path.is_symlink()}
    wanted = {str(path).removeprefix("../") for path in links} | {"train_bench"}
    wanted |= {"pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"}
    assert copied()[name] == wanted
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == wanted


def test_a_container_runs_without_rights_and_states_its_revision():
    dockerfile = (CONTAINER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    (user,) = (line.split()[1] for line in dockerfile if line.startswith("USER "))
    assert user.partition(":")[0] not in ("0", "root")
    assert dockerfile.index(f"USER {user}") > max(
        at for at, line in enumerate(dockerfile) if line.startswith(("RUN ", "COPY "))
    )
    assert f"ENV {git.STATED}=$REVISION" in dockerfile
    assert "LABEL org.opencontainers.image.revision=$REVISION" in dockerfile
    definition = (CONTAINER / "train_bench.def").read_text(encoding="utf-8")
    assert f"export {git.STATED}={{{{ REVISION }}}}" in definition
    assert "org.opencontainers.image.revision {{ REVISION }}" in definition


def test_the_version_of_a_checkout_has_its_revision_unless_it_is_at_the_tag(tmp_path):
    run = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    source = tmp_path / "conf"
    source.mkdir()
    (source / "a.yaml").write_text("a")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run([*run, *words], check=True)
    head = git.revision(tmp_path)
    assert git.version(tmp_path, "0.3.0") == f"0.3.0+g{head[:7]}"
    subprocess.run([*run, "tag", "v0.3.0"], check=True)
    assert git.version(tmp_path, "0.3.0") == "0.3.0"
    (source / "a.yaml").write_text("b")
    assert git.version(tmp_path, "0.3.0") == f"0.3.0+g{head[:7]}.changes"


def test_the_version_of_an_installation_is_the_released_one(tmp_path, monkeypatch):
    monkeypatch.delenv(git.STATED, raising=False)
    assert git.version(tmp_path, "0.3.0") == "0.3.0"
