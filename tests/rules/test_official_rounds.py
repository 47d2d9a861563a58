"""Every official round: its files, targets and members are the official ones, and so is our official verdict."""

import ast
import json
import random

import pytest
import yaml
from mlperf_logging.benchmark_meta import get_allowed_benchmarks, get_result_file_counts
from mlperf_logging.compliance_checker import mlp_compliance

from tests.selection import others_in_full
from train_bench.core.event import Event
from train_bench.judge.compliance import judge_run
from train_bench.logs.record import EVALUATION, read_record
from train_bench.rules import errata, rulefile, ruleset
from train_bench.rules.allowed import allowed_keys
from train_bench.rules.checks import check
from train_bench.rules.rulefile import RuleFileError

OFFICIAL = ruleset.package_folder("compliance_checker")
ROUNDS = [name for name in ruleset.names() if name.startswith(("training-", "hpc-"))]
FILES = [path for name in ROUNDS for path in sorted((OFFICIAL / name.replace("-", "_")).glob("*.yaml"))]
RULES = [rules for name in ROUNDS for rules in ruleset.load(name).benchmarks.values()]


def id_of(thing):
    return (
        f"{thing.parent.name}/{thing.name}" if hasattr(thing, "parent") else f"{thing.ruleset}/{thing.name}"
    )


def defects_of(path):
    """Keys that errata name in a file: with a field twice, and with two records."""
    named = errata.of(path.parent.name.replace("_", "-").removeprefix("training-"))
    text = path.read_text()
    twice = [key for erratum in named for key in erratum.written_twice]
    repeated = [key for erratum in named for key in erratum.repeated]
    return twice, repeated, text


def test_the_table_has_every_round_that_the_package_has():
    folders = [*OFFICIAL.glob("training_[1-9]*"), *OFFICIAL.glob("hpc_*")]
    assert {name.replace("-", "_") for name in ROUNDS} == {path.name for path in folders}


@pytest.mark.parametrize("path", FILES, ids=id_of)
def test_a_rule_file_loads_strictly_with_its_errata(path):
    twice, repeated, _ = defects_of(path)
    assert rulefile.read(path, written_twice=twice, repeated=repeated).keys


def test_files_with_defects_are_those_that_errata_name():
    def loads(path):
        try:
            return bool(rulefile.read(path))
        except RuleFileError:
            return False

    defective = {id_of(path) for path in FILES if not loads(path)}
    assert defective == {
        "training_1.0.0/closed_ssd.yaml",
        "training_1.1.0/closed_ssd.yaml",
        "training_4.0.0/closed_llama2_70b_lora.yaml",
    }


@pytest.mark.parametrize("name", ROUNDS)
def test_members_and_run_counts_are_those_of_the_package(name):
    usage, number = name.split("-")
    members = ruleset.load(name).benchmarks
    assert set(members) == set(get_allowed_benchmarks(usage, number))
    counts = get_result_file_counts(usage)
    assert {name: rules.runs for name, rules in members.items()} == {name: counts[name] for name in members}


def begin_constants(file):
    """What the BEGIN code of a file sets in `s`."""
    state = {"s": {}}
    if file.begin is not None and "loglines" not in file.begin.co_names:
        exec(file.begin, state)
    return state["s"]


def bounds_of(text, state):
    """Every comparison of a value with a number: (metric or None, operator, number)."""
    found = set()
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                found |= bound(left, operator, right, state)
    return found


MIRRORED = {"LtE": "GtE", "Lt": "Gt", "GtE": "LtE", "Gt": "Lt"}


def bound(left, operator, right, state):
    name = type(operator).__name__
    if not isinstance(left, ast.Subscript):
        left, right, name = right, left, MIRRORED[name]
    metric = left.slice.value if isinstance(left.value, ast.Subscript) else None
    number = right.value if isinstance(right, ast.Constant) else state[right.slice.value]
    return {(metric, name, number)}


@pytest.mark.parametrize("rules", RULES, ids=id_of)
def test_the_target_is_the_one_in_the_closed_rule_file(rules):
    file = rules.files(f"closed_{rules.name}.yaml")
    texts = [rule.at_least_one.text for rule in file.keys.values() if rule.at_least_one is not None]
    assert len(texts) == 1
    bounds = bounds_of(texts[0], begin_constants(file))
    for threshold in rules.target.thresholds:
        metric = threshold.metric if len(rules.target.thresholds) > 1 else None
        operator = ("Gt" if threshold.strictly else "GtE") if threshold.higher_is_better else "LtE"
        assert (metric, operator, threshold.value) in bounds, texts[0]


@pytest.mark.parametrize("rules", RULES, ids=id_of)
@pytest.mark.parametrize("division", ["closed", "open"])
def test_what_is_allowed_can_be_said_of_every_benchmark(rules, division):
    keys = {allowed.key for allowed in allowed_keys(rules, division)}
    assert {"submission_benchmark", "run_start", "run_stop"} <= keys
    assert keys & set(EVALUATION)


def enqueued_elsewhere():
    """Files that a round's rules name in the folder of another round."""
    for path in FILES:
        for other in (name.replace("-", "_") for name in ROUNDS):
            if other != path.parent.name and f"{other}/" in path.read_text():
                yield path, other


def test_files_that_are_taken_from_another_round_are_the_same_there():
    """So that the round's own can be read instead."""
    taken = list(enqueued_elsewhere())
    assert {(id_of(path), other) for path, other in taken} == {
        ("training_1.1.0/open_common.yaml", "training_1.0.0"),
        ("training_4.0.0/closed_resnet.yaml", "training_3.1.0"),
    }
    for path, other in taken:
        prefix = "open_" if path.name == "open_common.yaml" else "closed_resnet_"
        for own in path.parent.glob(f"{prefix}*.yaml"):
            if own.name != path.name:
                theirs = OFFICIAL / other / own.name
                assert loaded(own) == loaded(theirs), own


def loaded(path):
    return yaml.load(path.read_text(), Loader=yaml.BaseLoader)


# How lines follow each other in a log; every other key stands between `init_start` and `init_stop`.
FIRST = [
    *("submission_org", "submission_platform", "submission_division", "submission_status"),
    *("submission_benchmark", "cache_clear", "init_start"),
]
LAST = [
    *(
        "init_stop",
        "run_start",
        "staging_start",
        "staging_stop",
        "block_start",
        "epoch_start",
        "eval_start",
        "eval_accuracy",
        "eval_error",
    ),
    *("eval_stop", "epoch_stop", "block_stop", "run_stop"),
]
GUESSES = (1, 0, 0.5, 0.001, 16, 100, 10**6, True, "text", [1, 2])


def metadata_of(position):
    counted = {"epoch_num": position, "step_num": position, "samples_count": position}
    return counted | {"first_epoch_num": 1, "epoch_count": 1, "status": "success", "tensor": "x"}


def candidates(text):
    """The constants of a check, and what lies on both sides of them."""
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            yield from (node.value, node.value * 1.01, node.value * 0.99)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def tensors_of(rules, division):
    """The names that the check after the last line demands (round 1.1.0, rnnt of 1.0.0)."""
    try:
        texts = [item.text for item in rules.files(f"{division}_{rules.name}.yaml").end_checks]
    except FileNotFoundError:
        return []
    lists = [
        node
        for text in texts
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.List)
    ]
    return [item.value for node in lists for item in node.elts]


class Generator:
    """Logs of one benchmark and division: as compliant as one change of a value after the other makes them,
    then mutated."""

    def __init__(self, rules, division, rng):
        self.rules, self.rng = rules, rng
        self.tensors = tensors_of(rules, division)
        keys = allowed_keys(rules, division)
        self.keys = [key for key in dict.fromkeys(item.key for item in keys) if self._is_logged(key)]
        fixed = {"submission_division": division, "submission_benchmark": rules.name, "cache_clear": True}
        fixed |= {"submission_status": "onprem", "submission_org": "org", "submission_platform": "machine"}
        self.choices = {
            key: [fixed[key]] if key in fixed else self._choices(key, division) for key in self.keys
        }

    @staticmethod
    def _is_logged(key):
        return key not in ("aggregated_eval_accuracy",)

    def _choices(self, key, division):
        names = ["common.yaml", f"{division}_common.yaml", f"{division}_{self.rules.name}.yaml"]
        names += [
            f"{division}_{self.rules.name}_{kind}.yaml" for kind in ("sgd", "lars", "lamb", "multistep")
        ]
        texts = []
        for name in names:
            try:
                rule = self.rules.files(name).keys.get(key)
            except FileNotFoundError:
                continue
            if rule is not None:
                once = (rule.at_least_one,) if rule.at_least_one else ()
                texts += [item.text for item in (*once, *rule.checks)]
        found = [value for text in texts for value in candidates(text)]
        return [*found, *GUESSES]

    def lines(self):
        order = [key for key in FIRST if key in self.keys]
        order += [key for key in self.keys if key not in FIRST and key not in LAST]
        order += [key for key in LAST if key in self.keys]
        values = {key: self.choices[key][0] for key in order}
        for _ in range(3):
            for key in {failure.key for failure in check(self.rules, self._events(order, values))} & set(
                order
            ):
                values[key] = self._best(order, values, key)
        return [(event.key, event.value, event.metadata) for event in self._events(order, values)]

    def _best(self, order, values, key):
        def broken(value):
            return len(check(self.rules, self._events(order, {**values, key: value})))

        return min(self.choices[key], key=broken)

    def _events(self, order, values):
        events = []
        for at, key in enumerate(order):
            if key == "eval_accuracy" and self.rules.name == "stable_diffusion":
                for position in (1000, 2000):
                    for metric, value in (("FID", 50.0), ("CLIP", 0.2)):
                        metadata = metadata_of(position) | {"metric": metric}
                        events.append(Event(key=key, value=value, time_ms=at, metadata=metadata))
            elif key == "weights_initialization":
                for name in self.tensors:
                    events.append(Event(key=key, value=None, time_ms=at, metadata={"tensor": name}))
            elif key == "eval_accuracy" and self.rules.name == "maskrcnn":
                value = {"BBOX": 0.38, "SEGM": 0.35}
                events.append(Event(key=key, value=value, time_ms=at, metadata=metadata_of(1)))
            else:
                events.append(Event(key=key, value=values[key], time_ms=at, metadata=metadata_of(1)))
        return events

    def mutated(self, lines):
        lines = list(lines)
        for _ in range(self.rng.randint(1, 2)):
            at = self.rng.randrange(len(lines))
            key, _, metadata = lines[at]
            how = self.rng.choice(["value", "value", "away", "again", "swap", "metadata"])
            if how == "value":
                lines[at] = (key, self.rng.choice([None, "", -1, {}, *self.choices[key]]), metadata)
            elif how == "away":
                del lines[at]
            elif how == "again":
                lines.insert(at, lines[at])
            elif how == "swap":
                other = self.rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            else:
                left = {name: metadata[name] for name in metadata if self.rng.random() < 0.7}
                lines[at] = (key, lines[at][1], left)
        return lines


def official(path, name):
    """Whether the official checker accepts a file; None where it crashes. Its queue outlives a crash."""
    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker(*name.split("-"), quiet=True, werror=False)
    try:
        return mlp_compliance.main(str(path), f"{name.replace('-', '_')}/common.yaml", checker)[0]
    except Exception:
        return None
    finally:
        mlp_compliance.enqueued_configs.clear()


def ours(path, rules):
    record, read = read_record(path, rules)
    return judge_run(record, read, rules).officially_compliant


def write(path, lines):
    text = ""
    for at, (key, value, metadata) in enumerate(lines):
        fields = {
            "key": key,
            "value": value,
            "time_ms": at,
            "metadata": metadata,
            "event_type": "POINT_IN_TIME",
        }
        text += f":::MLLOG {json.dumps(fields)}\n"
    path.write_text(text)


@pytest.fixture
def quick(monkeypatch):
    """The official checker with the parser of libyaml, which reads the same."""
    monkeypatch.setattr(mlp_compliance.yaml, "BaseLoader", yaml.CBaseLoader)


@pytest.mark.parametrize("division", others_in_full(["closed", "open"], ["closed"]))
@pytest.mark.parametrize("name", others_in_full(ROUNDS, ["training-6.1.0"]))
def test_random_logs_get_the_verdict_of_the_official_checker(name, division, quick, tmp_path):
    accepted = refused = crashed = 0
    rng = random.Random(f"{name} {division}")
    for rules in ruleset.load(name).benchmarks.values():
        generator = Generator(rules, division, rng)
        lines = generator.lines()
        for log in [lines, *(generator.mutated(lines) for _ in range(6))]:
            path = tmp_path / "result_0.txt"
            write(path, log)
            said, expected = ours(path, rules), official(path, name)
            if expected is None:
                crashed += 1
                continue
            assert said == expected, (rules.name, log)
            accepted += expected
            refused += not expected
    assert accepted >= 2
    assert refused >= 3
    assert crashed < refused + accepted
