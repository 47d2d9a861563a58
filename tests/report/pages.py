"""Folders of results for tests of the page, made from the good log."""

import json
import shutil

import numpy as np

from tests.judge.campaigns import campaign, log_text, plan
from train_bench.core import files
from train_bench.core.job import samples_file
from train_bench.run.drawn_samples import as_json
from train_bench.task import SampleSheet

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    '"><svg onload="window.hacked = 1">',
    "<a href='javascript:window.hacked = 1'>press</a>",
    "{{ 7 * 7 }}%{x}&lt;b&gt;",
    "=HYPERLINK(1)",
)


def mini(folder):
    """A campaign of five runs, one of which did not converge, with a plan and a machine."""
    folder.mkdir(parents=True)
    campaign(folder, ["good", "good", "not_converged", "good", "good"])
    plan(folder)
    (folder / "system.json").write_text(json.dumps({"cores": 2, "operating_system": "Debian"}))
    return folder


DRAWN = np.random.default_rng(1).integers(256, size=(5, 3, 3, 3), dtype=np.uint8)
"""Five images of 3 x 3 that a model may have drawn."""


def drawn_samples(folder, run=0):
    """Samples of a run of that campaign."""
    rows = {"a bar": (DRAWN, DRAWN[:4]), "a ground whose name is longer than others": (DRAWN[:2], DRAWN[:1])}
    sheet = SampleSheet(about="Of noise.", rows=rows, measures={"spread": (0.5, 0.25)})
    files.write_json(samples_file(folder, run), as_json(sheet))


def described(folder, submitter, system, *, accelerators, seconds):
    """An entry as submissions lie, with the description of its system."""
    results = folder / submitter / "results" / system / "resnet_mini"
    results.mkdir(parents=True)
    campaign(results, ["good"] * 5, seconds=[seconds + index for index in range(5)])
    systems = folder / submitter / "systems"
    systems.mkdir(exist_ok=True)
    fields = {
        "submitter": submitter,
        "division": "closed",
        "status": "research",
        "number_of_nodes": "1",
        "accelerators_per_node": str(accelerators),
    }
    (systems / f"{system}.json").write_text(json.dumps(fields))
    return results


def tree(folder):
    """Nine systems of three submitters under the rules of mini-1.0, twice as large means faster."""
    for number in range(9):
        submitter, size = f"org-{number % 3}", 2**number
        described(folder, submitter, f"box-{number}", accelerators=size, seconds=600 / 1.8**number)
    return folder


def hostile(folder):
    """A tree whose folders, logs, plan and descriptions hold markup and script."""
    place = described(folder, "<i>org", "<b>box", accelerators=1, seconds=60)
    shutil.copytree(place, folder / "<i>org" / "results" / "other" / "resnet_mini")
    for index in range(5):
        lines = []
        for number, text in enumerate(log_text("good", index=index).splitlines()):
            line = json.loads(text.partition(":::MLLOG ")[2])
            bad = HOSTILE[number % len(HOSTILE)]
            if line["key"] in ("submission_org", "submission_platform", "opt_name", "sgd_opt_momentum"):
                line["value"] = bad
            line["metadata"]["file"] = bad
            lines.append(f":::MLLOG {json.dumps(line)}\n")
        lines += [f":::MLLOG {{{bad}\n" for bad in HOSTILE]
        start, stop = (
            next(at for at, line in enumerate(lines) if f'"{key}"' in line)
            for key in ("run_start", "run_stop")
        )
        began = json.loads(lines[start].partition(":::MLLOG ")[2])["time_ms"]
        half = {"key": HOSTILE[0], "value": "half \ud800", "time_ms": began, "metadata": {}}
        lines.insert(stop, f":::MLLOG {json.dumps(half)}\n")  # a finding, since it goes back on the clock
        (place / f"result_{index}.txt").write_text("".join(lines))
    description = folder / "<i>org" / "systems" / "<b>box.json"
    description.write_text(json.dumps({f"note {bad}": bad for bad in HOSTILE}))
    plan(place, launcher=HOSTILE[1], seeds=HOSTILE[0], variant=HOSTILE[2], request={HOSTILE[0]: HOSTILE[3]})
    return folder


def power(folder, *, watts):
    """A power log of one host with a reading a second, as `energy=auto` writes them beside a run."""
    folder.mkdir(parents=True)
    readings = [
        ("power_measurement_start", None, 0),
        *(("power_reading", watts, 1000 * at) for at in range(1, 90)),
    ]
    (folder / "node_0.txt").write_text(
        "".join(
            f":::MLLOG {json.dumps({'key': key, 'value': value, 'time_ms': at, 'metadata': {}})}\n"
            for key, value, at in (*readings, ("power_measurement_stop", None, 89_000))
        )
    )
