"""Two revisions of a repository that alternate: their worktrees, the order of their runs, and what ends them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from train_bench.campaign import revisions
from train_bench.core import git
from train_bench.errors import Interrupted, RequestError
from train_bench.judge.checks.environment import CODE
from train_bench.own_trainer import hidden, leftovers
from train_bench.own_trainer.confined import Confinement, can_confine
from train_bench.plan import process
from train_bench.plan.process import Ended


def in_git(*words):
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with two commits of a trainer, whose subfolder `here` is the working folder."""
    top = tmp_path / "repository"
    (top / "here").mkdir(parents=True)
    monkeypatch.chdir(top / "here")
    in_git("init", "--quiet", "--initial-branch=main", str(top))
    for text in ("before", "after"):
        (top / "here" / "train.py").write_text(text)
        in_git("add", ".")
        in_git("commit", "--quiet", "-m", f"train: {text}")
    return top


@pytest.fixture
def ran(monkeypatch):
    """Runs that take no time: the side, the run, and what the trainer was; `ran.at` is called before each."""

    class Ran(list):
        at = staticmethod(lambda index: None)

    made = Ran()

    def carry_out(launch, folder, tick, *, name, cwd, first):
        side, index = name.split("_")
        made.append((side, int(index), (cwd / "train.py").read_text(), launch, cwd))
        made.at(int(index))
        campaign = folder.parent / side
        campaign.mkdir(exist_ok=True)
        (campaign / "plan.json").write_text("{}")
        (campaign / f"result_{index}.txt").write_text("")
        return Ended(exit_code=0, stderr="")

    monkeypatch.setattr(process, "carry_out", carry_out)
    return made


def pair(folder, *words, pairs=4, names=("HEAD~1", "main")):
    return revisions.read(names, words, pairs, folder)


def silent(_text):
    pass


def worktrees():
    return in_git("worktree", "list").count("\n") + 1


def test_runs_alternate_in_worktrees_of_their_revisions_until_it_is_decided(repository, ran, tmp_path):
    answers = iter([False, False, True])
    said = []
    revisions.alternate(pair(tmp_path / "out"), said.append, lambda: next(answers))
    assert [one[:3] for one in ran] == [
        ("a", 0, "before"),
        ("b", 0, "after"),
        ("b", 1, "after"),
        ("a", 1, "before"),
        ("a", 2, "before"),
        ("b", 2, "after"),
    ]
    assert said[0] == f"a: run 0 (1 of at most 4), HEAD~1, {in_git('rev-parse', 'HEAD~1')[:8]}"
    assert {cwd.name for *_, cwd in ran} == {"here"}
    assert worktrees() == 1 and not (tmp_path / "out" / "source" / "a").exists()


def written(folder):
    (folder / "here").mkdir(parents=True, exist_ok=True)
    (folder / "here" / "train.py").write_text("cheat")
    (folder / "here" / "state").touch()


def linked(folder):
    written(folder.with_name(f"{folder.name}_elsewhere"))
    if not folder.exists():
        folder.symlink_to(f"{folder.name}_elsewhere", target_is_directory=True)


def a_file(folder):
    if not folder.exists():
        folder.touch()


@pytest.mark.parametrize("way", [written, linked, a_file])
def test_a_side_that_is_not_trusted_leaves_nothing_in_the_worktree_of_a_later_run(
    repository, ran, tmp_path, way
):
    seen = []

    def at(_index):
        side, _, text, _, cwd = ran[-1]
        seen.append((side, text, in_git("-C", str(cwd), "status", "--porcelain", "--ignored"), worktrees()))
        if side == "b":
            for other in "ab":
                way(tmp_path / "out" / "source" / other)

    ran.at = at
    revisions.alternate(
        pair(tmp_path / "out", pairs=3),
        silent,
        lambda: False,
        may_fail="b",
        foreign=revisions.Foreign(confined=False, network=True),
    )
    a, b = ("a", "before", "", 2), ("b", "after", "", 2)
    assert seen == [a, b, b, a, a, b]
    assert worktrees() == 1


def test_runs_of_foreign_code_have_empty_caches_of_compilers_and_write_nothing_else_in_the_repository(
    repository, ran, monkeypatch
):
    wanted, found, used = [], [], []
    kept = repository / "kept"
    kept.mkdir(mode=0o500)
    monkeypatch.setattr(revisions, "confine", wanted.append)

    def carry_out(launch, folder, tick, *, name, cwd, first):
        first()
        caches = [Path(launch.env[name]) for name in revisions.CACHES]
        found.append([path.is_dir() and not any(path.iterdir()) for path in caches])
        (caches[0] / "kernel").touch()
        (caches[1] / "elsewhere").symlink_to(kept, target_is_directory=True)
        for path in (caches[0], caches[0].parent):
            path.chmod(0o555)
        used.append(caches[0].parent)
        (folder.parent / name[0] / "plan.json").write_text("{}")
        (folder.parent / name[0] / f"result_{name[-1]}.txt").write_text("")
        return Ended(exit_code=0, stderr="")

    def remove(folder, **how):
        if folder in used:
            modes.extend(path.stat().st_mode & 0o777 for path in (folder, *folder.glob("*")))
        rmtree(folder, **how)

    rmtree, modes = shutil.rmtree, []
    monkeypatch.setattr(revisions.shutil, "rmtree", remove)
    monkeypatch.setattr(process, "carry_out", carry_out)
    out = repository / "here" / "out"
    foreign = revisions.Foreign(confined=True, network=False)
    revisions.alternate(pair(out, pairs=3), silent, lambda: False, may_fail="b", foreign=foreign)
    assert found == [[True] * 4] * 6 and len({*used}) == 6 and not any(path.exists() for path in used)
    assert kept.stat().st_mode & 0o777 == 0o500 and modes == [0o700] * 5 * 6
    assert [one.writable for one in wanted[:2]] == [
        (out / side, out / "source" / side, path) for side, path in zip("ab", used, strict=False)
    ]
    assert [one.read_only for one in wanted[::3]] == [(repository,), (repository, out / "a" / "result_0.txt")]
    assert {one.network for one in wanted} == {False}


def test_a_process_of_foreign_code_that_hides_from_its_run_ends_with_it(repository, ran, tmp_path):
    """In a session of its own, without the variables of its run, and with nobody left who looks after it."""
    left, running = [], []
    ours = leftovers.children()

    def at(_index):
        running.extend(number for number in left if Path("/proc", str(number)).exists())
        if not left:
            command = ["sh", "-c", "setsid env -i sleep 20 >&- & echo $!; kill -9 $$"]
            left.append(int(subprocess.run(command, stdout=subprocess.PIPE).stdout))

    ran.at = at
    foreign = revisions.Foreign(confined=False, network=True)
    revisions.alternate(pair(tmp_path / "out", pairs=3), silent, lambda: True, foreign=foreign)
    assert left and not running and leftovers.children() == ours


def test_what_git_keeps_outside_of_a_linked_worktree_is_frozen_too(repository, tmp_path, monkeypatch):
    assert revisions.frozen_folders(pair(tmp_path / "out")) == (repository,)
    in_git("worktree", "add", "--detach", str(tmp_path / "linked"))
    monkeypatch.chdir(tmp_path / "linked" / "here")
    assert revisions.frozen_folders(pair(tmp_path / "out")) == (tmp_path / "linked", repository / ".git")


def a_link(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("way", [Path.touch, a_link])
@pytest.mark.parametrize("known", [None, lambda side, index: index == 0])
def test_a_log_of_a_run_that_has_not_begun_is_refused(repository, ran, tmp_path, way, known):
    out = tmp_path / "out"
    step = f"remove {out}" if known is None else "--abandon ends the challenge"
    ran.at = lambda index: way(out / "b" / "result_2.txt") if ran[-1][:2] == ("b", 0) else None
    revisions._begin(pair(out))
    (out / "b").mkdir()
    foreign = revisions.Foreign(confined=False, network=True)
    with pytest.raises(RequestError, match=rf"b/result_2.txt is .*; another run wrote it.*: {step}\."):
        revisions.alternate(pair(out), silent, lambda: False, may_fail="b", foreign=foreign, begun=known)
    assert [one[:2] for one in ran] == [("a", 0), ("b", 0)]
    if known is not None:
        with pytest.raises(RequestError, match="another run wrote it"):
            revisions.alternate(pair(out), silent, lambda: False, begun=known)
        assert len(ran) == 2


def test_a_log_with_another_name_is_refused_because_a_later_run_could_edit_it(repository, ran, tmp_path):
    log, name = tmp_path / "out" / "a" / "result_0.txt", tmp_path / "out" / "a" / "another"

    def link(_index):
        log.parent.mkdir(exist_ok=True)
        log.touch()
        name.hardlink_to(log)

    ran.at = link
    foreign = revisions.Foreign(confined=False, network=True)
    with pytest.raises(RequestError, match=r"a/result_0.txt is a link; another run wrote it"):
        revisions.alternate(pair(tmp_path / "out"), silent, lambda: False, foreign=foreign)
    assert len(ran) == 1


def test_a_confined_run_cannot_edit_what_earlier_runs_of_its_side_left(repository, tmp_path, monkeypatch):
    out = repository / "out"
    caches = out / "caches"
    for folder in (out / "b" / "attempts", out / "source" / "b", caches):
        folder.mkdir(parents=True)
    log, attempt = out / "b" / "result_0.txt", out / "b" / "attempts" / "run_0_1.json"
    for path in (log, attempt):
        path.touch()
    foreign = revisions.Foreign(confined=True, network=True)
    first = revisions._confining(pair(out), "b", caches, foreign)

    def refused(attempt):
        try:
            attempt()
        except OSError:
            return True
        return False

    def is_kept():
        first()
        (out / "b" / "result_1.txt").touch()
        (attempt.parent / "run_1_1.json").touch()
        return all(
            map(
                refused,
                (
                    lambda: log.write_text("mine"),
                    log.unlink,
                    lambda: attempt.write_text("mine"),
                    lambda: attempt.parent.rename(out / "b" / "elsewhere"),
                ),
            )
        )

    assert hidden.holds_in_a_child(is_kept) is can_confine(Confinement(read_only=(repository,), network=True))


def test_the_first_run_of_a_side_begins_its_campaign_and_the_others_continue_it(repository, ran, tmp_path):
    revisions.alternate(pair(tmp_path / "out", "benchmark=waves", pairs=3), silent, lambda: False)
    typed = [launch.argv[launch.argv.index("run") + 1 :] for side, *_, launch, _ in ran if side == "a"]
    assert typed[0] == ("benchmark=waves", "seed=1", "runs=3", f"output={tmp_path / 'out' / 'a'}", "only=[0]")
    assert typed[1:] == [(f"resume={tmp_path / 'out' / 'a'}", f"only=[{index}]") for index in (1, 2)]


def test_a_second_call_carries_out_what_is_missing_and_other_options_are_refused(repository, ran, tmp_path):
    ran.at = lambda index: index and (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(Interrupted, match="continues"):
        revisions.alternate(pair(tmp_path / "out"), silent, lambda: False)
    assert worktrees() == 1
    assert len(ran) == 3
    ran.at = lambda index: None
    revisions.alternate(
        pair(tmp_path / "out"), silent, lambda: (tmp_path / "out" / "b" / "result_1.txt").exists()
    )
    assert [one[:2] for one in ran[3:]] == [("b", 1), ("a", 1)]
    with pytest.raises(RequestError, match="other revisions or options"):
        revisions.alternate(pair(tmp_path / "out", "seed=2"), silent, lambda: True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(RequestError, match="not empty"):
        revisions.alternate(pair(tmp_path / "full"), silent, lambda: True)


@pytest.mark.parametrize("code", [2, 1])
def test_a_run_that_fails_ends_both_with_its_sentence(code, repository, tmp_path, monkeypatch):
    said = "noise\ntrain-bench: There is no benchmark 'x'.\n"
    monkeypatch.setattr(process, "carry_out", lambda *_, **__: Ended(exit_code=code, stderr=said))
    with pytest.raises(
        RequestError, match=r"Run 0 of a failed: There is no benchmark 'x'\. Its output is in .*a_0"
    ):
        revisions.alternate(pair(tmp_path / "out"), silent, lambda: False)
    assert worktrees() == 1


def test_a_worktree_that_a_killed_process_left_is_replaced(repository, tmp_path):
    head = in_git("rev-parse", "HEAD")
    in_git("worktree", "add", "--detach", str(tmp_path / "left"), "HEAD~1")
    with git.worktree(repository, head, tmp_path / "left"):
        assert (tmp_path / "left" / "here" / "train.py").read_text() == "after"
    assert worktrees() == 1


@pytest.mark.parametrize(
    ("names", "words", "said"),
    [
        (("HEAD", "main"), (), "are the same commit"),
        (("HEAD", "nowhere"), (), "There is no revision nowhere in"),
        (("HEAD", "--help"), (), "There is no revision --help in"),
        (("HEAD~1", "HEAD"), ("runs=3",), "runs=3 cannot be given here: --pairs N"),
        (("HEAD~1", "HEAD"), ("against=seed=2",), "against=seed=2 cannot be given here"),
    ],
)
def test_what_cannot_be_compared_is_refused(names, words, said, repository, tmp_path):
    with pytest.raises(RequestError, match=said):
        revisions.read(names, words, 3, tmp_path / "out")


def test_a_folder_without_a_repository_and_one_that_a_revision_lacks_are_refused(
    repository, ran, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="is in no git repository"):
        pair(tmp_path / "out")
    (repository / "new").mkdir()
    monkeypatch.chdir(repository / "new")
    with pytest.raises(RequestError, match="has no folder new"):
        revisions.alternate(pair(tmp_path / "out"), silent, lambda: True)
    assert worktrees() == 1 and not ran


def test_what_git_does_not_track_stays_where_it_is(repository, tmp_path):
    python, data = repository / "here" / ".venv" / "bin" / "python", repository / "data"
    python.parent.mkdir(parents=True)
    python.touch()
    words = (
        "data_dir=../data",
        "command=.venv/bin/python train.py",
        "python=.venv/bin/python",
        "precision=bf16",
    )
    assert pair(tmp_path / "out", *words).words == (
        f"data_dir={data}",
        f"command={python} train.py",
        f"python={python}",
        "precision=bf16",
        "seed=1",
    )
    assert pair(tmp_path / "out", "command=./train.py x", "seed=3").words == (
        "command=./train.py x",
        "seed=3",
    )


def test_modules_and_benchmarks_of_the_repository_come_from_the_worktree(
    repository, ran, tmp_path, monkeypatch
):
    (repository / "src").mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{repository / 'lib'}{os.pathsep}{tmp_path / 'other'}")
    monkeypatch.setenv("TRAIN_BENCH_PATH", str(repository / "waves"))
    revisions.alternate(pair(tmp_path / "out", pairs=3), silent, lambda: True)
    launched = [launch.env for *_, launch, _ in ran]
    assert launched[0] == launched[1], "both sides have the same variables"
    assert launched[0]["PYTHONPATH"].split(os.pathsep) == ["..", "../src", "../lib", str(tmp_path / "other")]
    assert launched[0]["TRAIN_BENCH_PATH"] == "../waves"
    assert launched[0]["PYTHONDONTWRITEBYTECODE"] == "1"
    assert not [name for name in launched[0] if CODE.fullmatch(name) and name != "PYTHONPATH"]
