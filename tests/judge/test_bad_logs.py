"""Broken logs and trees: a finding or one sentence and an exit code, strict JSON, and nothing of a log runs."""

import json
import math
import os
import random
import re
import subprocess
import sys

import pytest

from tests import needs
from tests.command_line import typed
from tests.judge.campaigns import campaign
from tests.selection import others_in_full
from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.judge.tree import judge_tree
from train_bench.logs import log
from train_bench.rules import ruleset

ROUND = "training-1.1.0"
HEAD = [
    ("submission_org", "an organisation", {}),
    ("submission_platform", "a machine", {}),
    ("submission_division", "closed", {}),
    ("submission_status", "onprem", {}),
    ("submission_benchmark", "resnet", {}),
    ("cache_clear", True, {}),
    ("init_start", None, {}),
    ("global_batch_size", 4096, {}),
    ("opt_name", "sgd", {}),
    ("opt_base_learning_rate", 1.5, {}),
    ("seed", 7, {"file": "train.py", "lineno": 12}),
    ("train_samples", 1281167, {}),
    ("eval_samples", 50000, {}),
    ("init_stop", None, {}),
    ("run_start", None, {}),
    ("block_start", None, {"first_epoch_num": 1, "epoch_count": 4}),
    ("eval_accuracy", 0.76, {"epoch_num": 4}),
    ("block_stop", None, {"first_epoch_num": 1}),
    ("run_stop", None, {"status": "success"}),
]
STRANGE = [
    *(None, True, False, 0, -1, 1, 10**400, -(10**400), 1e308, math.nan, math.inf, -math.inf, 0.1),
    *("", "x", "closed", "\ud800", "\x00", "{0.__class__}", "../../x", "/etc/passwd", "training-1.0.0"),
    *("__import__('os').mkdir('evaluated')", "{v.__globals__}", "%s%n"),
    *([], [[]], [1, "x"], {}, {"a": {}}, {"BBOX": "x", "SEGM": None}, {"first_epoch_num": []}),
]


def line(key, value=None, metadata=None, time_ms=1_600_000_000_000, **others):
    fields = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps(fields | {'metadata': metadata or {}} | others)}\n"


def good_log(head=HEAD):
    lines = [
        line(key, value, meta, 1_600_000_000_000 + at * 1000) for at, (key, value, meta) in enumerate(head)
    ]
    return "".join(lines).encode("utf-8", "surrogatepass")


@pytest.fixture
def ask(capsys, monkeypatch, tmp_path):
    """Ask a verb in this process: exit code, output, error output. JSON has to be strict."""
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    monkeypatch.chdir(empty)

    def answer(path, verb="judge", ruleset=ROUND, as_json=True):
        arguments = [
            str(path),
            *(["--ruleset", ruleset] if ruleset else []),
            *(["--json"] if as_json else []),
        ]
        code = guarded(lambda: command(verb)(arguments))
        printed = capsys.readouterr()
        assert code in (0, 1, 2)
        assert list(empty.iterdir()) == [], "something of a log ran"
        if code != 0 and not printed.out:
            assert printed.err.startswith("train-bench: "), printed.err
            assert printed.err.count("\n") == 1
            assert len(printed.err) < 2000
            return code, None, printed.err
        return code, json.loads(printed.out, parse_constant=_refuse) if as_json else printed.out, printed.err

    return answer


def _refuse(name):
    raise AssertionError(f"{name} is no strict JSON")


@pytest.fixture
def judged(ask, tmp_path):
    """The findings of one log with this content."""

    def judge(content, **options):
        path = tmp_path / "result_0.txt"
        path.write_bytes(content)
        _, tree, error = ask(path, **options)
        if tree is None:
            return error
        (entry,) = tree["entries"]
        return [finding for run in entry["runs"] for finding in run["findings"]]

    return judge


def messages(findings):
    return findings if isinstance(findings, str) else " ".join(finding["message"] for finding in findings)


def test_the_log_that_is_broken_below_is_read_whole(judged):
    assert "Unreadable" not in messages(judged(good_log()))


def test_a_log_cut_off_at_every_byte_is_judged(judged, tmp_path):
    """By the parser and the rules, where a byte may change anything; the whole verb at every 20th."""
    content = good_log()
    for end in range(0, len(content), 20):
        judged(content[:end])
    path = tmp_path / "result_0.txt"
    for end in range(len(content)):
        path.write_bytes(content[:end])
        read = log.read(path)
        assert len(read.problems) <= 1
        assert len(read.events) + len(read.problems) <= len(HEAD)


def test_random_bytes_are_judged(judged):
    rng = random.Random(1)
    content = good_log()
    for _ in range(60):
        broken = bytearray(content)
        for _ in range(rng.randint(1, 30)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        judged(bytes(broken))
    for _ in range(20):
        judged(b":::MLLOG " + rng.randbytes(rng.randint(0, 300)))


@pytest.mark.parametrize("position", range(len(HEAD)), ids=[key for key, _, _ in HEAD])
def test_a_value_of_any_type_is_judged(judged, position):
    key, _, metadata = HEAD[position]
    for value in STRANGE:
        judged(good_log([*HEAD[:position], (key, value, metadata), *HEAD[position + 1 :]]))


@pytest.mark.parametrize("position", others_in_full([10, 15, 16, 17, 18], [17]), ids=lambda at: HEAD[at][0])
def test_metadata_of_any_type_is_judged(judged, position):
    key, value, metadata = HEAD[position]
    for strange in STRANGE:
        judged(good_log([*HEAD[:position], (key, value, strange), *HEAD[position + 1 :]]))
        for name in metadata:
            changed = (key, value, {**metadata, name: strange})
            judged(good_log([*HEAD[:position], changed, *HEAD[position + 1 :]]))


@pytest.mark.parametrize("field", ["namespace", "time_ms", "event_type", "key", "value", "metadata"])
def test_a_field_of_any_type_or_left_out_is_judged(judged, field):
    first, rest = good_log().split(b"\n", 1)
    fields = json.loads(first.removeprefix(b":::MLLOG "))
    for strange in STRANGE:
        judged(f":::MLLOG {json.dumps({**fields, field: strange})}\n".encode("utf-8", "replace") + rest)
    judged(
        f":::MLLOG {json.dumps({name: fields[name] for name in fields if name != field})}\n".encode() + rest
    )


@pytest.mark.parametrize(
    "name",
    others_in_full(
        [name for name in ruleset.names() if not name.startswith("mini-")],
        [ROUND, "training-6.1.0", "hpc-3.0.0"],
    ),
)
def test_every_key_of_every_benchmark_may_have_any_value(name, ask, tmp_path):
    """One log per benchmark and every fourth strange value, in which every key that the rules read has it."""
    from train_bench.judge.entry import judge_entry
    from train_bench.judge.locate import find
    from train_bench.rules.allowed import allowed_keys

    path = tmp_path / "result_0.txt"
    for at, (benchmark, rules) in enumerate(ruleset.load(name).benchmarks.items()):
        keys = sorted({allowed.key for allowed in allowed_keys(rules, "closed")})
        for strange in STRANGE[at % 4 :: 4]:
            head = [entry for entry in HEAD if entry[0] not in keys or entry[0].startswith("submission_")]
            head = [(key, benchmark if key == "submission_benchmark" else value, m) for key, value, m in head]
            body = [(key, strange, {}) for key in keys if not key.startswith("submission_")]
            path.write_bytes(good_log(head + body * 2))
            (location,) = find(path, name).locations
            json.dumps(judge_entry(location, rcp_folders=[tmp_path]).as_json(), allow_nan=False)


def test_many_unreadable_lines_of_one_kind_are_told_once_and_break_the_rules(judged):
    described = [entry for entry in HEAD if entry[0].startswith("submission_")]
    others = [entry for entry in HEAD if entry not in described]
    lines = [line(key, value, meta, "2021-10-11T14:30:00Z") for key, value, meta in others]
    found = judged(good_log(described) + "".join(lines).encode())
    found = [one for one in found if one["check"] in ("parse", "died")]
    assert [(one["check"], one["grade"]) for one in found] == [("died", "slow"), *[("parse", "breaks")] * 4]
    assert f"run_stop in line {len(HEAD)} cannot be read" in messages(found)
    assert f"{len(others) - 3} more lines likewise, the first of them line {len(described) + 4}." in messages(
        found
    )


def test_names_in_a_log_lead_to_no_file(judged, tmp_path):
    (tmp_path / "closed_x.yaml").write_text("- BEGIN:\n    CODE: \"__import__('os').mkdir('evaluated')\"\n")
    for value in (
        "x",
        "../../x",
        str(tmp_path / "x"),
        "../training_1.0.0/resnet",
        "resnet.yaml",
        "*",
        "\x00",
    ):
        for key in ("submission_division", "submission_benchmark", "opt_name"):
            head = [(name, value if name == key else old, meta) for name, old, meta in HEAD]
            judged(good_log(head))


def test_line_ends_and_encodings(judged):
    content = good_log()
    whole = judged(content)
    assert judged(content.replace(b"\n", b"\r\n")) == whole
    assert judged(content.replace(b"\n", b"\r")) == whole
    assert "Unreadable" not in messages(judged("préface\n".encode("latin-1") + content))
    assert "Unreadable" not in messages(judged(content.replace(b"a machine", "é".encode("latin-1"))))
    assert "Unreadable" not in messages(judged("\ufeff".encode() + content))


def test_a_key_that_is_written_twice_has_its_last_value(judged):
    content = good_log().replace(b'"value": "closed"', b'"value": "x", "value": "closed"')
    assert judged(content) == judged(good_log())


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_unreadable(judged, opening):
    nested = f':::MLLOG {{"value": {opening * 200_000}\n'.encode()
    assert "Unreadable line" in messages(judged(good_log() + nested))


def test_a_line_of_a_hundred_megabytes_needs_bounded_memory(tmp_path):
    """In a process that may have 1.5 GB of addresses: a few copies of the line and no more."""
    path = tmp_path / "result_0.txt"
    with path.open("wb") as file:
        file.write(good_log() + b':::MLLOG {"key": "seed", "value": "')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'", "time_ms": 0, "metadata": {}}\n')
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1_500_000_000,) * 2);"
        "from train_bench.cli import main; main()"
    )
    arguments = ["judge", str(path), "--ruleset", ROUND, "--json"]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1, done.stderr[-500:]
    assert len(done.stdout) < 100_000


def test_a_rule_that_multiplies_does_not_repeat_a_text(tmp_path):
    """`num_prompts_per_step * v['value']` of the 6.1.0 rules, with a number and a text from a log."""
    rules = ruleset.load("training-6.1.0").benchmark("qwen35_397b_grpo")
    from train_bench.core.event import Event
    from train_bench.rules.checks import check

    values = {"submission_division": "closed", "submission_benchmark": rules.name, "global_batch_size": 256}
    values |= {"num_prompts_per_step": 10**11, "num_generations_per_prompt": "text"}
    events = [Event(key=key, value=value, time_ms=0) for key, value in values.items()]
    assert "num_generations_per_prompt" in {failure.key for failure in check(rules, events)}


def tree(folder, content=None):
    """A submission with one entry of five logs."""
    entry = folder / "v1.1" / "org" / "results" / "machine" / "resnet"
    entry.mkdir(parents=True)
    for number in range(5):
        (entry / f"result_{number}.txt").write_bytes(good_log() if content is None else content)
    return entry


def test_what_is_no_file_is_a_finding(ask, tmp_path):
    entry = tree(tmp_path)
    for number in range(5):
        (entry / f"result_{number}.txt").unlink()
    (entry / "result_0.txt").mkdir()
    os.mkfifo(entry / "result_1.txt")
    (entry / "result_2.txt").symlink_to("nowhere")
    (entry / "result_3.txt").symlink_to("result_3.txt")
    (entry / "result_4.txt").symlink_to("/dev/zero")
    (entry / "loop").symlink_to("..")
    code, judged_tree, _ = ask(tmp_path, ruleset=None)
    assert code == 1
    for run in judged_tree["entries"][0]["runs"]:
        assert "cannot be read" in messages(run["findings"])


@pytest.mark.skipif(os.geteuid() != 0, reason=needs.NO_ROOT)
@pytest.mark.parametrize("closed", ["result_0.txt", "."], ids=["file", "folder"])
def test_what_may_not_be_read_is_said(tmp_path, closed):
    """Permissions do not bind root, so another user asks."""
    entry = tree(tmp_path)
    (entry / closed).chmod(0)
    program = (
        "import os, sys; from train_bench.cli.commands import judge; from train_bench.cli.exit_codes import guarded;"
        "from train_bench.rules import ruleset; ruleset.load('training-1.1.0').benchmark('resnet');"
        "os.chdir('/'); os.setuid(65534); sys.exit(guarded(lambda: judge.main(sys.argv[1:])))"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o555)
    arguments = [str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "cannot be read" in done.stdout + done.stderr


BROKEN_PLANS = [
    *(b"", b"{", b"[]", b"null", b"1", b'"text"', b"\xff\xfe", b"{}", b'{"ruleset": 1}', b"[" * 100_000),
    *(b'{"ruleset": "no such"}', b'{"ruleset": "../x"}', b'{"a": NaN}', b'{"n": ' + b"9" * 5000 + b"}"),
    *(b'{"ruleset": "training-1.1.0", "benchmark": 3}', b'{"ruleset": "training-1.1.0", "benchmark": []}'),
    *(b'{"ruleset": "training-1.1.0", "changes": 3}', b'{"ruleset": "training-1.1.0", "jobs": {}}'),
    b'{"ruleset": "training-1.1.0", "world_size": NaN, "seeds": [], "launcher": {}, "variant": Infinity}',
    *(b'{"scaling_factor": NaN}', b'{"scaling_factor": []}', b'{"scaling_factor": 1e999}'),
    *(b'{"division": 1, "submitter": [], "status": {}}', b'{"division": null, "status": NaN}'),
]


@pytest.mark.parametrize("content", BROKEN_PLANS, ids=lambda content: repr(content[:40]))
@pytest.mark.parametrize("name", ["plan.json", "scaling.json", "../../../systems/machine.json"])
@pytest.mark.parametrize("verb", ["judge", "score"])
def test_a_broken_file_is_said(ask, tmp_path, name, content, verb):
    entry = tree(tmp_path)
    path = (entry / name).resolve()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    for as_json in (True, False):
        ask(tmp_path, verb=verb, ruleset=None, as_json=as_json)


@pytest.mark.parametrize("name", ["plan.json", "scaling.json", "../../../systems/machine.json"])
def test_what_is_no_file_is_said(ask, tmp_path, name):
    path = (tree(tmp_path) / name).resolve()
    path.mkdir(parents=True)
    ask(tmp_path, ruleset=None)
    path.rmdir()
    path.symlink_to(path.name)
    ask(tmp_path, ruleset=None)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"deaths": 3}', b'{"deaths": {"a": NaN}}', b"[" * 100_000]
)
def test_a_broken_note_of_how_a_run_ended_is_left_aside(ask, tmp_path, content):
    entry = tree(tmp_path)
    ended = entry / "ranks" / "run_0" / "exit.json"
    ended.parent.mkdir(parents=True)
    ended.write_bytes(content)
    ask(entry)


def test_empty_folders_and_folders_without_logs_say_so(ask, tmp_path):
    assert "result_" in ask(tmp_path)[2]
    assert "does not exist" in ask(tmp_path / "nowhere")[2]
    (tmp_path / "result.txt").write_text("x")
    assert "result_" in ask(tmp_path)[2]


def test_a_benchmark_that_no_round_has_is_said(ask, tmp_path):
    head = [(key, "chess" if key == "submission_benchmark" else value, m) for key, value, m in HEAD]
    path = tmp_path / "result_0.txt"
    path.write_bytes(good_log(head))
    assert "chess" in ask(path)[2]


def test_logs_of_two_benchmarks_in_one_folder_are_said(ask, tmp_path):
    entry = tree(tmp_path)
    head = [(key, "bert" if key == "submission_benchmark" else value, m) for key, value, m in HEAD]
    (entry / "result_3.txt").write_bytes(good_log(head))
    _, judged_tree, _ = ask(tmp_path, ruleset=None)
    assert "log is of bert" in messages(judged_tree["entries"][0]["runs"][3]["findings"])


@pytest.mark.parametrize("name", ["result_.txt", "result_٣.txt", "result_²¹.txt", f"result_{'9' * 200}.txt"])
def test_an_odd_number_of_a_file_is_no_crash(ask, tmp_path, name):
    (tmp_path / name).write_bytes(good_log())
    ask(tmp_path)


def test_one_broken_entry_hides_no_other(ask, tmp_path):
    """Many bytes, so that several processes judge."""
    entry = tree(tmp_path, good_log() + b"x" * 1_000_000)
    other = entry.parent / "bert"
    other.mkdir()
    (other / "result_0.txt").write_bytes(b"\xff" * 1000)
    code, judged_tree, _ = ask(tmp_path, ruleset=None)
    assert (code, len(judged_tree["entries"])) == (1, 2)


def test_an_unknown_ruleset_is_said(ask, tmp_path):
    assert "9.9.9" in ask(tree(tmp_path), ruleset="9.9.9")[2]


def changed(folder, change):
    """A campaign of good logs with their text changed, and what `judge` answers."""
    campaign(folder, ["good"] * 5)
    for path in folder.glob("result_*.txt"):
        path.write_text(change(path.read_text()))
    return typed("judge", str(folder), "--ruleset", "mini-1.0")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda text: text.replace(":::MLLOG {", ":::MLLOG{"),
            "only in line 6 of result_0.txt, which is not an MLLOG line",
        ),
        (lambda text: text.replace(":::MLLOG ", ":::MLLOG\t"), "it needs `:::MLLOG ` with one space"),
        (lambda text: text.replace('"key": "s', '"key": "S'), "the key in lower case"),
        (lambda text: text.replace("}}\n", "}}\x1b[0m\n"), "it has control characters of a terminal"),
        (lambda text: text.replace('"', "'"), "it has single quotes"),
        (
            lambda text: text.replace("submission_benchmark", "submission_bench"),
            "(submission_benchmark is not logged)",
        ),
    ],
)
def test_a_benchmark_that_some_line_names_is_not_called_unlogged(tmp_path, change, sentence):
    assert sentence in changed(tmp_path, change).stderr


@pytest.mark.parametrize("status", ["SUCCESS", "success "])
def test_a_misspelt_status_is_not_called_a_missed_target(tmp_path, status):
    done = changed(tmp_path, lambda text: text.replace('"status": "success"', f'"status": "{status}"'))
    assert "5 run(s) have no status that counts (index 0, 1, 2, 3, 4)" in done.stdout
    assert (
        f"run_stop has the status '{status}'; a run counts as converged with the status 'success'"
        in done.stdout
    )
    assert "did not converge (index" not in done.stdout


def test_several_runs_in_one_file_are_named_as_such(tmp_path):
    campaign(tmp_path, ["good"] * 5)
    one, other = (tmp_path / f"result_{index}.txt" for index in (0, 1))
    one.write_text(one.read_text() + other.read_text())
    other.unlink()
    done = typed("judge", str(tmp_path), "--ruleset", "mini-1.0")
    assert "result_0.txt breaks the rules: The file has the logs of 2 runs (run_start in lines" in done.stdout


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("RESULT_0.TXT", "RESULT_0.TXT and 4 more may be meant: name the logs result_0.txt"),
        ("result_0.log", "result_0.log and 4 more may be meant: name the logs"),
        ("result_0.txt.gz", "result_0.txt.gz and 4 more may be meant: unpack them, and name the logs"),
    ],
)
def test_logs_of_other_names_are_named_with_those_that_are_read(tmp_path, name, sentence):
    campaign(tmp_path, ["good"] * 5)
    for index in range(5):
        (tmp_path / f"result_{index}.txt").rename(tmp_path / name.replace("0", str(index)))
    assert sentence in typed("judge", str(tmp_path), "--ruleset", "mini-1.0").stderr


@pytest.mark.parametrize("name", ["9.9", "v4.7.0", ""])
def test_an_unknown_round_is_named_before_a_folder_without_logs(tmp_path, name):
    done = typed("judge", str(tmp_path), "--ruleset", name)
    assert done.returncode == 2
    assert "ruleset" in done.stderr and "result_*.txt" not in done.stderr


@pytest.mark.parametrize("epoch", [10**9, -3])
def test_a_speed_that_no_load_explains_is_not_called_a_disturbance(tmp_path, epoch):
    campaign(tmp_path, ["good"] * 5)
    path = tmp_path / "result_0.txt"
    path.write_text(path.read_text().replace('"epoch_num": 3', f'"epoch_num": {epoch}'))
    assert "Disturbed" not in typed("judge", str(tmp_path), "--ruleset", "mini-1.0").stdout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: "", "The log is empty, and the run counts as not converged"),
        (
            lambda text: text.replace(":::MLLOG ", ":::MLLOG\u00a0"),
            "run_stop is only in line 43 of result_0.txt, which is not an MLLOG line: it needs `:::MLLOG `",
        ),
        (
            lambda text: re.sub(r'"time_ms": (\d+)', r'"time_ms": \g<1>000000', text),
            "time_ms is not a time in milliseconds (it may be one in nanoseconds)",
        ),
        (
            lambda text: "".join(json.dumps({"log": line}) + "\n" for line in text.splitlines()),
            "not JSON (its quotes are escaped: the line is in the JSON of a container",
        ),
        (
            lambda text: re.sub(r'"time_ms": (\d+)', r'"time_ms": \g<1>000000', text),
            "run_stop in line 43 cannot be read",
        ),
        (
            lambda text: text.replace('"status": "success"', '"status": true'),
            "The last evaluation reached the target, but run_stop has the status True",
        ),
        (
            lambda text: text + text.splitlines()[42].replace("success", "aborted") + "\n",
            "run_stop in line 43 has the status 'success', and that in line 48 the status 'aborted'",
        ),
        (
            lambda text: "".join(f"0: {line}\n8: {line}\n" for line in text.splitlines()),
            "3 of 6 evaluations are logged again with the same value",
        ),
    ],
)
def test_the_message_names_what_was_done_to_a_log(tmp_path, change, sentence):
    campaign(tmp_path, ["good"] * 5)
    path = tmp_path / "result_0.txt"
    path.write_text(change(path.read_text()))
    (judged,) = judge_tree(tmp_path, ruleset_name="mini-1.0", rcp_folders=[]).entries
    said = [one.message for one in judged.verdicts[0].findings]
    assert any(sentence in message for message in said), said
    assert not any("due at" in message or "the run went on" in message for message in said)
    assert not any("cut off" in message for message in said)
