"""Published submissions with one thing changed: our official verdict is that of the installed package checker."""

import json
import shutil

import pytest

from tests import needs
from tests.needs import CORPUS
from tests.selection import others_in_full
from train_bench.judge.official import installed_checkers
from train_bench.judge.tree import judge_tree


class Submission:
    """A copy of one published entry in the layout of a submission."""

    def __init__(self, root, name):
        self.round, self.submitter, system, benchmark = name.split("/")
        self.folder = root / self.round / self.submitter
        self.results = self.folder / "results" / system / benchmark
        self.description = self.folder / "systems" / f"{system}.json"
        shutil.copytree(CORPUS / self.round / self.submitter / "results" / system / benchmark, self.results)
        self.description.parent.mkdir()
        shutil.copy(
            CORPUS / self.round / self.submitter / "systems" / self.description.name, self.description
        )

    @property
    def logs(self):
        return sorted(self.results.glob("result_*.txt"))

    def describe(self, **changes):
        content = json.loads(self.description.read_text()) | changes
        kept = {key: value for key, value in content.items() if value is not None}
        self.description.write_text(json.dumps(kept))

    def change(self, change, logs=(0,)):
        """Apply `change`, of a line's fields to those that replace it (None takes it away), to all lines of logs."""
        for at in logs:
            path = self.logs[at]
            lines = []
            for text in path.read_text(encoding="latin-1").splitlines():
                before, token, rest = text.rpartition(":::MLLOG ")
                changed = change(json.loads(rest)) if token else rest
                lines += [] if changed is None else [before + token + (as_text(changed) if token else rest)]
            path.write_text("\n".join(lines) + "\n", encoding="latin-1")

    def power(self, runs=None, nodes=2, switches=1):
        """Power logs of each run."""
        for log in self.logs[:runs]:
            folder = self.results / "power" / log.stem
            folder.mkdir(parents=True)
            for name in [f"node_{at}" for at in range(nodes)] + [f"sw_{at}" for at in range(switches)]:
                (folder / f"{name}.txt").write_text("")

    def accepted(self):
        """Our official verdict on the package."""
        verdicts = [
            one.score.official_verdict.package_accepted
            for one in judge_tree(self.folder, ruleset_name=None, rcp_folders=[]).entries
        ]
        return "none" if None in verdicts else "pass" if all(verdicts) else "fail"

    def official(self):
        """The installed package checker's: nothing for a crash or a folder that it passes over."""
        opinion = installed_checkers.package(self.folder, f"{self.round[1:]}.0")
        nothing = opinion.verdict == "crash" or installed_checkers.SKIPPED in opinion.message
        return ("none" if nothing else opinion.verdict), opinion.message


def as_text(changed):
    return changed if isinstance(changed, str) else json.dumps(changed)


def every(**values):
    """Change of a whole log: other fields in each line."""
    return lambda line: line | values


def where(key, **values):
    """Other fields in the lines of one key."""
    return lambda line: line | values if line["key"] == key else line


def without(key):
    return lambda line: None if line["key"] == key else line


def twice(key):
    """Each line of one key twice."""
    return lambda line: json.dumps(line) + "\n:::MLLOG " + json.dumps(line) if line["key"] == key else line


def metadata(key, **values):
    """Other metadata in the lines of one key; None takes a field away."""

    def change(line):
        if line["key"] != key:
            return line
        kept = {name: one for name, one in (line["metadata"] | values).items() if one is not None}
        return line | {"metadata": kept}

    return change


def logs(change, *at):
    return lambda tree: tree.change(change, at or (0,))


def all_logs(change):
    return lambda tree: tree.change(change, range(len(tree.logs)))


def describe(**changes):
    return lambda tree: tree.describe(**changes)


def parameters(text, *, system=False):
    def write(tree):
        folder = tree.results.parent if system else tree.results
        (folder / "package_checker_params").write_text(text)

    return write


def also(*changes):
    def apply(tree):
        for change in changes:
            change(tree)

    return apply


def remove(name):
    return lambda tree: shutil.rmtree(tree.results / name)


def rename(old, new):
    return lambda tree: (tree.results / old).rename(tree.results / new)


def beside(name, text):
    def write(tree):
        (tree.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.folder / name).write_text(text)

    return write


def in_systems(content):
    return lambda tree: tree.description.write_text(content(tree.description.read_text()))


def extra_system(**changes):
    def write(tree):
        content = json.loads(tree.description.read_text()) | changes
        kept = {key: value for key, value in content.items() if value is not None}
        (tree.description.parent / "other.json").write_text(json.dumps(kept))

    return write


def log_dropped(tree):
    tree.logs[-1].unlink()


def log_added(tree):
    shutil.copy(tree.logs[0], tree.results / "result_99.txt")


def folder_renamed(tree):
    tree.results = tree.results.rename(tree.results.with_name(tree.results.name.upper()))


def seeds_alike(tree):
    tree.change(where("seed", value=7), range(len(tree.logs)))


def line_appended(text, *at):
    def write(tree):
        for one in at or (0,):
            path = tree.logs[one]
            path.write_text(path.read_text(encoding="latin-1") + text + "\n", encoding="latin-1")

    return write


def as_written(change, *at):
    """Change the bytes of logs."""

    def write(tree):
        for one in at or range(len(tree.logs)):
            tree.logs[one].write_bytes(change(tree.logs[one].read_bytes()))

    return write


def several_in_one(tree):
    """Two runs in the first file."""
    logs = tree.logs
    logs[0].write_bytes(logs[0].read_bytes() + logs[1].read_bytes())


NO_SEEDS = all_logs(without("seed"))
TWO = (0, 1)
CHANGES = {
    "nothing": lambda tree: None,
    # Descriptions
    "division in capitals": describe(division="Closed"),
    "division open": describe(division="open"),
    "division closed, without seeds": NO_SEEDS,
    "division in capitals, without seeds": also(describe(division="Closed"), NO_SEEDS),
    "no division": describe(division=None),
    "status of a log": describe(status="onprem"),
    "status in small letters": describe(status="available on-premise"),
    "status with a space behind": describe(status="Available cloud "),
    "no status": describe(status=None),
    "a field is missing": describe(cooling=None),
    "a count is a number": describe(accelerators_per_node=8),
    "a number where no text is joined": describe(number_of_nodes=1),
    "framework is an object": describe(framework={"a": "b"}),
    "a comma too many": in_systems(lambda text: text.rstrip().rstrip("}").rstrip() + ",}"),
    "a byte order mark": in_systems(lambda text: "\ufeff" + text),
    "description is a list": in_systems(lambda text: f"[{text}]"),
    "description is empty": in_systems(lambda text: ""),
    "no description": lambda tree: tree.description.rename(tree.description.with_name("box.json")),
    "a description of another system": extra_system(),
    "another description without a field": extra_system(hw_notes=None),
    "another description that is no JSON": beside("systems/other.json", "{"),
    "a hidden description that is no JSON": beside("systems/.other.json", "{"),
    # Parameters
    "seeds bypassed": also(NO_SEEDS, parameters("seed-checker-bypass")),
    "seeds bypassed, line ended": also(NO_SEEDS, parameters("seed-checker-bypass\n")),
    "seeds bypassed for the system": also(NO_SEEDS, parameters("seed-checker-bypass", system=True)),
    "seeds bypassed in the last of two lines": also(NO_SEEDS, parameters("rcp-bypass\nseed-checker-bypass")),
    "seeds bypassed in the first of two lines": also(NO_SEEDS, parameters("seed-checker-bypass\nrcp-bypass")),
    "seeds bypassed in capitals": also(NO_SEEDS, parameters("SEED-CHECKER-BYPASS")),
    "too fast": all_logs(metadata("eval_accuracy", epoch_num=1, samples_count=1)),
    "too fast, bypassed": also(
        all_logs(metadata("eval_accuracy", epoch_num=1, samples_count=1)), parameters("rcp-bypass")
    ),
    "too fast, bypassed with a space": also(
        all_logs(metadata("eval_accuracy", epoch_num=1, samples_count=1)), parameters("rcp-bypass ")
    ),
    "parameters are a folder": lambda tree: (tree.results / "package_checker_params").mkdir(),
    # Files
    "a log too few": log_dropped,
    "a log too many": log_added,
    "the folder is no benchmark": folder_renamed,
    "a file of another name": beside("results/notes.txt", "nothing"),
    "an empty log": lambda tree: tree.logs[0].write_text(""),
    "two empty logs": lambda tree: [tree.logs[at].write_text("") for at in TWO],
    "a folder of a benchmark without logs": lambda tree: (
        tree.results.parent / ("ssd" if tree.round == "v1.0" else "dlrm_dcnv2")
    ).mkdir(),
    "a folder of a benchmark without logs, open": also(
        describe(division="open"),
        lambda tree: (tree.results.parent / ("ssd" if tree.round == "v1.0" else "dlrm_dcnv2")).mkdir(),
    ),
    "a folder of a system without benchmarks": lambda tree: (tree.results.parent.parent / "other").mkdir(),
    "a hidden log": lambda tree: shutil.copy(tree.logs[0], tree.results / ".result_0.txt"),
    "a copy by an editor": lambda tree: shutil.copy(tree.logs[0], tree.results / "result_0.txt.bak"),
    "a gap in the numbers": lambda tree: tree.logs[0].rename(tree.results / "result_77.txt"),
    "a number with zeros": lambda tree: tree.logs[0].rename(tree.results / "result_000.txt"),
    "a factor beside the logs": lambda tree: (tree.results / "scaling.json").write_text(
        '{"scaling_factor": 1.0}'
    ),
    "a factor that is no number": lambda tree: (tree.results / "scaling.json").write_text("x"),
    # Compliance
    "no end": logs(without("run_stop")),
    "no end in two": logs(without("run_stop"), *TWO),
    "no target in two": logs(where("eval_accuracy", value=0.0001), *TWO),
    "a quality in words": logs(where("eval_accuracy", value="much")),
    "a division in capitals": logs(where("submission_division", value="CLOSED"), *TWO),
    "a key twice with one value": logs(twice("global_batch_size")),
    "a batch size of another run": logs(where("global_batch_size", value=12)),
    "no batch size": all_logs(without("global_batch_size")),
    "a batch size in words": all_logs(where("global_batch_size", value="256")),
    "an aborted run": logs(metadata("run_stop", status="aborted")),
    "two aborted runs": logs(metadata("run_stop", status="aborted"), *TWO),
    "no status of the end": logs(metadata("run_stop", status=None)),
    "a batch size with a point": all_logs(
        lambda line: line | {"value": float(line["value"])} if line["key"] == "global_batch_size" else line
    ),
    "a batch size that is true": all_logs(where("global_batch_size", value=True)),
    "a quality that is no number": logs(where("eval_accuracy", value=float("nan"))),
    "a quality that is no number in two": logs(where("eval_accuracy", value=float("nan")), *TWO),
    "an infinite quality": logs(where("eval_accuracy", value=float("inf")), *TWO),
    "a quality in a list": logs(where("eval_accuracy", value=[0.9]), *TWO),
    "a status in capitals": logs(metadata("run_stop", status="SUCCESS"), *TWO),
    "a benchmark in capitals": logs(where("submission_benchmark", value="BERT"), *TWO),
    "an organisation that is null": logs(where("submission_org", value=None), *TWO),
    "evaluations without progress": logs(metadata("eval_accuracy", epoch_num=None, samples_count=None)),
    "another kind of event": logs(where("run_stop", event_type="POINT_IN_TIME"), *TWO),
    "an unknown kind of event": logs(where("run_stop", event_type="END"), *TWO),
    # Lines
    "line ends of Windows": as_written(lambda content: content.replace(b"\n", b"\r\n")),
    "line ends of old Macs": as_written(lambda content: content.replace(b"\n", b"\r"), *TWO),
    "a log with a byte order mark": as_written(lambda content: b"\xef\xbb\xbf" + content, *TWO),
    "a byte that is no text": as_written(
        lambda content: content.replace(b"submission_org", b"\xff", 1), *TWO
    ),
    "a token in small letters": as_written(lambda content: content.replace(b":::MLLOG", b":::mllog"), *TWO),
    "a key twice in a line": as_written(
        lambda content: content.replace(b'"key": "seed"', b'"key": "x", "key": "seed"'), *TWO
    ),
    "times below zero": logs(lambda line: line | {"time_ms": -line["time_ms"]}, *TWO),
    "times with a fraction": all_logs(lambda line: line | {"time_ms": line["time_ms"] + 0.5}),
    "two runs in one file": several_in_one,
    "another namespace": logs(every(namespace="worker1"), *TWO),
    "metadata a text": logs(every(metadata="none"), *TWO),
    "metadata a text in one log": logs(every(metadata="none")),
    "metadata of a setting a text": all_logs(where("opt_name", metadata="")),
    "metadata of a stop a text": logs(where("init_stop", metadata=None)),
    "times as texts": all_logs(lambda line: line | {"time_ms": str(line["time_ms"])}),
    "times in words": logs(where("opt_name", time_ms="noon"), *TWO),
    "no time": logs(lambda line: {k: v for k, v in line.items() if k != "time_ms"}),
    "half a line": line_appended(':::MLLOG {"key": "eval_accuracy", "value"'),
    "half a line of no interest": line_appended(':::MLLOG {"key": "extra", "value"', *TWO),
    "a line that is a list": line_appended(":::MLLOG [1]"),
    "a line that is null": line_appended(":::MLLOG null", *TWO),
    "two events on a line": line_appended(
        ':::MLLOG {"key": "a", "value": 1, "time_ms": 1, "metadata": {}} '
        ':::MLLOG {"key": "b", "value": 1, "time_ms": 1, "metadata": {}}',
        *TWO,
    ),
    "UTF-16": lambda tree: tree.logs[0].write_bytes(tree.logs[0].read_text().encode("utf-16")),
    "UTF-16 in two": lambda tree: [
        tree.logs[at].write_bytes(tree.logs[at].read_text().encode("utf-16")) for at in TWO
    ],
    # Seeds
    "one seed for all": seeds_alike,
    "one seed for two": logs(where("seed", value=7), *TWO),
    "a seed twice in one log": logs(twice("seed")),
    "a seed in words": logs(where("seed", value="entropy")),
    "a seed as a text": all_logs(
        lambda line: line | {"value": str(line["value"])} if line["key"] == "seed" else line
    ),
    "a seed without a source": logs(metadata("seed", lineno=None)),
    "no seed in one log": logs(without("seed")),
    "a seed that is null": logs(where("seed", value=None)),
    "a seed that is null in all": all_logs(where("seed", value=None)),
    "a seed in a list": logs(where("seed", value=[7])),
    "seeds that are true": all_logs(where("seed", value=True)),
    "a seed with a fraction": logs(where("seed", value=7.5), *TWO),
    # Power
    "power of all": lambda tree: tree.power(),
    "power of all but one": lambda tree: tree.power(runs=-1),
    "power of all but two": lambda tree: tree.power(runs=-2),
    "power of one": lambda tree: tree.power(runs=1),
    "a folder of power without runs": lambda tree: (tree.results / "power").mkdir(),
    "a run with fewer nodes": also(
        lambda tree: tree.power(),
        lambda tree: (tree.results / "power" / tree.logs[0].stem / "node_1.txt").unlink(),
    ),
    "two runs with fewer nodes": also(
        lambda tree: tree.power(),
        lambda tree: [(tree.results / "power" / tree.logs[at].stem / "node_1.txt").unlink() for at in TWO],
    ),
    "nodes counted from 1": also(
        lambda tree: tree.power(),
        lambda tree: [
            (tree.results / "power" / tree.logs[at].stem / "node_0.txt").rename(
                tree.results / "power" / tree.logs[at].stem / "node_2.txt"
            )
            for at in TWO
        ],
    ),
    "a node without a number": also(
        lambda tree: tree.power(),
        lambda tree: (tree.results / "power" / tree.logs[0].stem / "node_a.txt").write_text(""),
    ),
}

RETINANET = "v5.1/Quanta_Cloud_Technology/D74H-7U/retinanet"
BASES = [
    RETINANET,
    "v1.0/Google/tpu-v4-128-TF/resnet",
    "v5.1/Quanta_Cloud_Technology/D75T-7U/llama2_70b_lora",
]
TREES = [(base, change) for base in BASES for change in CHANGES]
FEW = [(RETINANET, "seeds bypassed"), (RETINANET, "power of all but two")]


@needs.corpus
@pytest.mark.parametrize(("base", "change"), others_in_full(TREES, FEW))
def test_a_submission_with_one_change_gets_the_verdict_of_the_package_checker(tmp_path, base, change):
    tree = Submission(tmp_path, base)
    CHANGES[change](tree)
    verdict, message = tree.official()
    assert tree.accepted() == verdict, message
