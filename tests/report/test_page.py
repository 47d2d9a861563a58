"""The page's numbers are the judge's, and what it cannot know it says."""

import dataclasses
import json
import re
import statistics
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests import needs
from tests.judge.campaigns import LOGS
from tests.judge.test_corpus import CORPUS
from tests.report import pages
from train_bench.cli.commands import judge, report
from train_bench.cli.commands import score as score_command
from train_bench.cli.conclude import conclude
from train_bench.compare.comparison import usable
from train_bench.errors import RequestError
from train_bench.judge.tree import judge_tree
from train_bench.plan import discover
from train_bench.report.findings import GRADES
from train_bench.report.page import several, write
from train_bench.report.page.facts import (
    PageOptions,
    entry_of,
    read_prices,
    refuse_unknown,
    with_distinct_names,
)
from train_bench.rules import ruleset

NO_PRICE = PageOptions(prices={})


class Read(HTMLParser):
    """The tagged numbers of a page by field, the embedded figures, and all text."""

    def __init__(self, text):
        super().__init__()
        self.numbers, self.text, self._figures = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "data" and "data-field" in attrs:
            self.numbers.append((attrs["data-field"], float(attrs["value"])))
        self._figures = "" if attrs.get("id") == "figures" else None

    def handle_data(self, data):
        if self._figures == "":
            self.figures = json.loads(data)
        self._figures = None
        self.text.append(data)


def judged(path, ruleset_name="mini-1.0"):
    return judge_tree(path, ruleset_name=ruleset_name, rcp_folders=discover.rcp_folders())


def page_of(path, tree, options=NO_PRICE):
    return write.page([(path, tree)], options=options, rcp_folders=discover.rcp_folders())


def entries_of(tree, options=NO_PRICE):
    return [
        entry_of(judgement, anchor=f"entry-{number}", options=options, rcp_folders=discover.rcp_folders())
        for number, judgement in enumerate(tree.entries)
    ]


def at(content, field):
    """The value of `runs.0.minutes`."""
    for part in field.split("."):
        content = content[int(part)] if isinstance(content, (list, tuple)) else content[part]
    return content


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = pages.mini(tmp_path_factory.mktemp("page") / "campaign")
    tree = judged(folder, None)
    return tree, Read(page_of(folder, tree))


@pytest.fixture(scope="module")
def nine(tmp_path_factory):
    return judged(pages.tree(tmp_path_factory.mktemp("nine")))


def figure(read, name, of="entry-0"):
    return next(one for one in read.figures[of] if one["name"] == name)


def trace(read, name, called, of="entry-0"):
    return next(one for one in figure(read, name, of)["data"] if one["name"] == called)


def test_every_number_on_the_page_of_a_campaign_is_that_of_judge(campaign):
    tree, read = campaign
    entry = tree.as_json()["entries"][0]
    assert {field for field, _ in read.numbers} >= {
        "score_minutes",
        "rcp.factor",
        "ci95_minutes.1",
        "runs.4.minutes",
    }
    for field, value in read.numbers:
        assert value == at(entry, field), field


def test_a_curve_is_the_evaluations_of_its_record(campaign):
    tree, read = campaign
    for index, record in enumerate(tree.entries[0].records):
        curve = trace(read, "quality top1", f"run {index}")
        assert curve["y"] == [evaluated.value for evaluated in record.evaluations]
        assert curve["x"] == pytest.approx(
            [(one.time_ms - record.started_ms) / 1000 for one in record.evaluations]
        )
    assert trace(read, "quality top1", "target top1 >= 0.73")["y"] == [0.73, 0.73]


def test_the_spread_shows_each_run_where_the_score_puts_it(campaign):
    tree, read = campaign
    runs = tree.as_json()["entries"][0]["runs"]
    for name, members in {
        "kept": [run for run in runs if not run["dropped"]],
        "dropped": [run for run in runs if run["dropped"] and run["converged"]],
        "not converged": [run for run in runs if not run["converged"]],
    }.items():
        assert members
        drawn = trace(read, "spread", name)
        assert list(zip(drawn["x"], drawn["y"], strict=True)) == [
            (run["index"], run["minutes"] * 60) for run in members
        ]


def test_the_phases_of_a_run_add_up_to_its_time(campaign):
    tree, read = campaign
    bars = {one["name"]: one["x"] for one in figure(read, "phases")["data"]}
    inside = [bars[name] for name in bars if not name.startswith("initialisation")]
    for run, parts in zip(tree.as_json()["entries"][0]["runs"], zip(*inside, strict=True), strict=True):
        assert sum(parts) == pytest.approx(run["minutes"] * 60)


def test_the_factors_are_those_of_the_runs(campaign):
    tree, read = campaign
    runs = [run for run in tree.as_json()["entries"][0]["runs"] if run["samples"]]
    drawn = {
        point
        for one in figure(read, "factors")["data"]
        if "text" in one
        for point in zip(one["x"], one["y"], strict=True)
    }
    assert drawn == {(run["samples"], run["samples_per_second"]) for run in runs}


def test_the_reference_is_drawn_with_the_bound_that_decided(campaign):
    tree, read = campaign
    entry = tree.as_json()["entries"][0]

    def at_own(name):
        line = trace(read, "convergence", name)
        return np.interp(entry["global_batch_size"], line["x"], line["y"])

    assert at_own("reference mean") == pytest.approx(entry["rcp"]["mean"])
    assert at_own("lowest accepted mean") == pytest.approx(
        entry["rcp"]["bound"], rel=0.01
    )  # no line between points
    assert trace(read, "convergence", "mean of the runs")["y"] == [entry["rcp"]["submission_mean"]]


def test_hyperparameters_stand_beside_what_the_rules_allow(campaign):
    entry = entries_of(campaign[0])[0]
    by_key = {row.key: row for row in entry.hyperparameters}
    assert by_key["sgd_opt_momentum"].values == ("0.9",)
    assert by_key["sgd_opt_momentum"].allowed.endswith("only 0.9")
    assert not {"seed", "eval_accuracy", "submission_org"} & set(by_key)


def test_a_value_that_breaks_a_rule_is_marked_and_its_line_shown(tmp_path):
    (tmp_path / "result_0.txt").write_text((LOGS / "bad_momentum.txt").read_text())
    tree = judged(tmp_path)
    assert [row.key for row in entries_of(tree)[0].hyperparameters if row.broken] == ["sgd_opt_momentum"]
    read = Read(page_of(tmp_path, tree))
    finding = next(one for one in tree.entries[0].verdicts[0].findings if one.key == "sgd_opt_momentum")
    line = (tmp_path / "result_0.txt").read_text().splitlines()[finding.line - 1]
    assert line[:300] in read.text
    assert finding.message in read.text


def test_broken_rules_come_before_what_is_for_review(tmp_path):
    for index, name in enumerate(("not_converged", "bad_momentum")):
        (tmp_path / f"result_{index}.txt").write_text((LOGS / f"{name}.txt").read_text())
    found = [finding["grade"] for finding, _, _ in entries_of(judged(tmp_path))[0].findings]
    assert {"breaks", "slow", "review"} <= set(found)
    assert found == sorted(found, key=list(GRADES).index)


def test_a_finding_that_logs_share_is_told_once_and_no_plot_goes_without_the_verdict(tmp_path):
    for index in range(3):
        (tmp_path / f"result_{index}.txt").write_text((LOGS / "bad_momentum.txt").read_text())
    (entry,) = entries_of(judged(tmp_path))
    momentum = [files for finding, _, files in entry.findings if finding["key"] == "sgd_opt_momentum"]
    assert momentum == [3]
    read = Read(page_of(tmp_path, judged(tmp_path)))
    for drawn in read.figures["entry-0"]:
        assert [mark["text"] for mark in drawn["layout"]["annotations"]] == ["NOT VALID"]


def test_runs_of_seconds_are_told_in_seconds_and_whole_epochs_whole(campaign):
    _, read = campaign
    assert "Time, s" in read.text
    assert not [text for text in read.text if re.fullmatch(r"\d+\.000", text.strip())]


def test_system_and_configuration_are_told_or_said_to_be_missing(campaign, nine):
    read = " ".join(campaign[1].text)
    assert "Debian" in read
    assert '"runs_required": 5' in read
    assert "These logs came without a plan" in " ".join(Read(page_of(Path(), nine)).text)


def test_ratios_and_accelerator_hours_follow_from_the_scores(nine):
    read = Read(page_of(Path(), nine))
    numbers = dict(read.numbers)
    scores = [entry.score.score_minutes for entry in nine.entries]
    means = [statistics.geometric_mean(run.minutes for run in usable(entry.score)) for entry in nine.entries]
    sizes = [2 ** int(entry.score.system.removeprefix("box-")) for entry in nine.entries]
    for number, (score, size) in enumerate(zip(scores, sizes, strict=True)):
        assert numbers[f"entry-{number}.score_minutes"] == score
        assert numbers[f"entry-{number}.ratio"] == pytest.approx(means[number] / means[0])
        assert numbers[f"entry-{number}.size_hours"] == pytest.approx(score * size / 60)
    points = [
        point
        for one in figure(read, "scaling", "several")["data"]
        if one["name"] == "resnet_mini"
        for point in zip(one["x"], one["y"], strict=True)
    ]
    assert sorted(points) == sorted(zip(sizes, scores, strict=True))


def test_scores_and_ratios_that_differ_are_shown_with_the_digits_that_tell_them_apart(tmp_path):
    for name, seconds in (("a", 6000.0), ("b", 6000.1)):
        pages.described(tmp_path, "Org", name, accelerators=1, seconds=seconds)
    text = page_of(tmp_path, judged(tmp_path))
    shown = re.findall(r'<data value="[^"]*" data-field="entry-\d\.ratio">([^<]*)', text)
    assert shown == ["1.00000", "1.00002"]


def test_a_quality_just_short_of_the_target_is_not_shown_as_equal_to_it(tmp_path):
    campaign_folder = pages.mini(tmp_path / "campaign")
    log = campaign_folder / "result_2.txt"
    target = ruleset.load("mini-1.0").benchmark("resnet_mini").target.thresholds[0].value
    short = re.sub(r'("key": "eval_accuracy", "value": )[\d.]+', rf"\g<1>{target - 1e-6}", log.read_text())
    log.write_text(short)
    text = page_of(campaign_folder, judged(campaign_folder))
    shown = re.search(r'data-field="runs.2.quality">([^<]*)', text)[1]
    assert float(shown) < target


SECONDS, MINUTES = {"seconds", "s"}, {"minutes", "min"}


def told_units(text):
    """What every plot and every table of the plotted entries calls its times."""
    read = Read(text)
    said = [
        heading.rpartition(", ")[2] for heading in re.findall(r"(?:Time|Score|Train), \w+(?=</button>)", text)
    ]
    drawn = [one for of_entry in read.figures.values() for one in of_entry]
    for one in drawn:
        said += [
            one["layout"][name]["title"].get("text")
            for name in ("xaxis", "yaxis")
            if "title" in one["layout"][name]
        ]
        said += [text for line in one["data"] for text in (line.get("hovertemplate", ""), line["name"])]
    return set(re.findall(r"\b(seconds|minutes|min|s)\b", " ".join(said)))


def test_a_campaign_and_all_its_plots_are_told_in_one_unit(tmp_path, campaign):
    tree, _ = campaign
    assert told_units(page_of(Path(), tree)) == SECONDS
    place = pages.described(tmp_path, "org", "box", accelerators=1, seconds=600)
    assert told_units(page_of(place, judged(place))) == MINUTES


def test_several_campaigns_are_told_in_the_unit_of_the_longest_run(tmp_path):
    pages.described(tmp_path, "org", "box-2", accelerators=2, seconds=30)
    pages.described(tmp_path, "org", "box-4", accelerators=4, seconds=20)
    text = page_of(tmp_path, judged(tmp_path))
    assert told_units(text) == SECONDS
    scores = [entry["score_minutes"] for entry in judged(tmp_path).as_json()["entries"]]
    drawn = figure(Read(text), "scaling", "several")["data"][0]
    assert sorted(drawn["y"]) == pytest.approx(sorted(60 * score for score in scores))
    pages.described(tmp_path, "org", "box-1", accelerators=1, seconds=600)
    assert told_units(page_of(tmp_path, judged(tmp_path))) == MINUTES


def test_systems_of_one_size_have_no_scaling(nine):
    first, second = entries_of(nine)[:2]
    assert several.scaling([first, second]) is not None
    assert several.scaling([first, dataclasses.replace(second, size=first.size)]) is None


def test_entries_of_one_name_are_told_apart_by_their_folders(tmp_path):
    names = ("left", "right", "deep/right")
    entries = [entries_of(judged(pages.mini(tmp_path / name), None))[0] for name in names]
    assert len({entry.name for entry in entries}) == 1
    alike = [str(tmp_path / name) for name in names[1:]]
    assert [entry.apart for entry in with_distinct_names(entries)] == ["left", *alike]
    assert [entry.apart for entry in with_distinct_names(entries[:2])] == ["left", "right"]
    assert with_distinct_names(entries[:1]) == entries[:1]


def test_a_ratio_is_taken_to_the_first_entry_of_the_benchmark_that_has_a_time(nine):
    first, second, third = entries_of(nine)[:3]
    failed = tuple(dataclasses.replace(run, converged=False) for run in nine.entries[0].score.runs)
    none = dataclasses.replace(nine.entries[0], score=dataclasses.replace(nine.entries[0].score, runs=failed))
    other = dataclasses.replace(third, result={**third.result, "benchmark": "other"})
    judgements = [none, *nine.entries[1:3]]
    answers = several.answers(judgements, [first, second, other], PageOptions(prices={}))
    assert several.ratios([first, second, other], judgements, answers) == {
        "entry-0": None,
        "entry-1": 1.0,
        "entry-2": 1.0,
    }


def test_the_best_valid_score_of_each_round_is_drawn_in_the_order_of_rounds(nine):
    def of(round, minutes, valid=True):
        changes = {"ruleset": f"training-{round}", "score_minutes": minutes, "valid": valid}
        entry = entries_of(nine)[0]
        return dataclasses.replace(entry, result={**entry.result, **changes})

    drawn = several.rounds(
        [of("10.0.0", 4.0), of("2.1.0", 9.0), of("2.1.0", 8.0), of("2.1.0", 1.0, valid=False)]
    )
    assert (drawn.traces[0]["x"], drawn.traces[0]["y"]) == (("2.1.0", "10.0.0"), [8.0, 4.0])
    assert several.rounds([of("2.1.0", 9.0), of("2.1.0", 8.0)]) is None


def test_a_price_per_hour_gives_the_cost_to_train(nine):
    for prices, expected in (({"": 30.0}, 30.0), ({"": 1.0, "box-0": 60.0}, 60.0), ({"box-1": 60.0}, None)):
        entry = entries_of(nine, PageOptions(prices=prices))[0]
        assert entry.result["system"] == "box-0"
        assert entry.cost == (None if expected is None else pytest.approx(expected * entry.minutes / 60))


@pytest.mark.parametrize("text", ["much", "-1", "box=", "nan", "inf", "box=1,cheap"])
def test_a_price_that_is_none_is_refused_with_a_sentence(text):
    with pytest.raises(RequestError, match="is not a price per hour"):
        read_prices(text)


def test_a_price_of_a_system_that_is_not_there_is_refused(nine):
    systems = {entry.score.system for entry in nine.entries}
    refuse_unknown({"": 1.0, "box-1": 1.0}, systems)
    with pytest.raises(RequestError, match=r"no system to price 'boks-1'\. Did you mean 'box-1'"):
        refuse_unknown({"boks-1": 1.0}, {*systems, None})


def test_energy_is_shown_where_power_logs_lie_beside_the_results(tmp_path, campaign):
    folder = pages.mini(tmp_path / "campaign")
    for index in range(5):
        place = folder / "power" / f"result_{index}"
        place.mkdir(parents=True)
        lines = (
            {"key": "power_measurement_start", "value": None},
            {"key": "power_reading", "value": 360_000},
        )
        text = [json.dumps({**line, "time_ms": 10 * at, "metadata": {}}) for at, line in enumerate(lines)]
        (place / "node_0.txt").write_text("".join(f":::MLLOG {line}\n" for line in text))
    entry = entries_of(judged(folder, None))[0]
    kept = [run["minutes"] for run in entry.result["runs"] if not run["dropped"]]
    assert entry.energy.joules == pytest.approx(360_000 * 60 * sum(kept) / len(kept))
    assert f"{entry.energy.joules / 3.6e6:.3f}" in Read(page_of(folder, judged(folder, None))).text
    assert "no power logs" in " ".join(campaign[1].text)


def test_the_script_of_the_plots_is_there_once_and_nothing_is_fetched(nine):
    text = page_of(Path(), nine)
    assert text.count('id="plotly"') == 1
    assert not re.search(r"""<(link|img|iframe)|\s(src|srcset)=|@import|url\(""", text)
    assert not re.search(r"""href="(?!#)""", text)


def test_the_json_in_the_page_has_no_character_that_ends_a_script():
    written = write._as_json({"a": "</script><!--&\u2028\u2029"})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"a": "</script><!--&\u2028\u2029"}


def test_odd_values_of_logs_make_a_page(tmp_path):
    tree = judged(pages.hostile(tmp_path))
    assert len(tree.entries) == 2
    assert "half" in page_of(tmp_path, tree)


def test_every_bad_log_makes_a_page(tmp_path):
    logs = sorted(LOGS.glob("*.txt"))
    for index, path in enumerate(logs):
        (tmp_path / f"result_{index}.txt").write_bytes(path.read_bytes())
    read = Read(page_of(tmp_path, judged(tmp_path)))
    curves = [one for one in figure(read, "quality top1")["data"] if "meta" in one]
    assert len(curves) == len(logs) > 30


def test_a_run_that_left_an_empty_log_makes_a_page(tmp_path):
    pages.mini(tmp_path / "campaign")
    (tmp_path / "campaign" / "result_1.txt").write_text("")
    read = Read(page_of(tmp_path, judged(tmp_path / "campaign", None)))
    assert trace(read, "quality top1", "run 1")["x"] == []


def test_report_writes_the_page_and_answers_like_judge(tmp_path, capsys):
    folder = pages.mini(tmp_path / "campaign")
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    assert report.main([str(folder), "--to", str(one)]) == judge.main([str(folder)])
    arguments = [str(folder), str(folder), "--summary", "--price-per-hour", "2", "--to", str(two)]
    report.main(arguments)
    capsys.readouterr()
    score_command.main([str(folder), "--summary", "--json"])
    summary = json.loads(capsys.readouterr().out)["summary"]["value"]
    assert [value for field, value in Read(two.read_text()).numbers if field == "summary"] == [summary] * 2


def test_a_campaign_ends_with_its_report_in_its_folder(tmp_path, capsys):
    folder = pages.mini(tmp_path / "campaign")
    code = conclude(folder).code
    assert f"report: {folder / 'report.html'}" in capsys.readouterr().out
    numbers = dict(Read((folder / "report.html").read_text()).numbers)
    score = json.loads((folder / "score.json").read_text())
    assert numbers["score_minutes"] == score["score_minutes"]
    assert code == (0 if score["valid"] else 1)


def test_a_report_that_cannot_be_written_costs_a_campaign_a_warning(tmp_path, capsys):
    folder = pages.mini(tmp_path / "campaign")
    code = conclude(folder).code
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    assert conclude(folder).code == code
    assert "no report was written" in capsys.readouterr().err
    assert (folder / "score.json").exists()


@pytest.mark.full
@needs.corpus
def test_every_number_on_the_page_of_the_corpus_is_that_of_judge():
    tree = judged(CORPUS, None)
    read = Read(page_of(CORPUS, tree))
    judged_entries = tree.as_json()["entries"]
    listed = {field: value for field, value in read.numbers if field.startswith("entry-")}
    assert {field for field in listed if field.endswith("score_minutes")} == {
        f"entry-{number}.score_minutes"
        for number, entry in enumerate(judged_entries)
        if entry["score_minutes"] is not None
    }
    for number, entry in enumerate(judged_entries):
        if entry["score_minutes"] is not None:
            assert listed[f"entry-{number}.score_minutes"] == entry["score_minutes"]
        markers = [
            one for one in figure(read, "spread", f"entry-{number}")["data"] if one["mode"] == "markers"
        ]
        minutes = sorted(value for one in markers for value in one["y"])
        assert minutes == sorted(run["minutes"] for run in entry["runs"])
    in_order = iter(field_value for field_value in read.numbers if not field_value[0].startswith("entry-"))
    for (
        entry
    ) in judged_entries:  # the bodies stand in the order of the entries, each from its score to its last run
        expected = [at(entry, field) for field in fields_of(entry)]
        assert [value for _, value in (next(in_order) for _ in expected)] == expected


def fields_of(entry):
    """The tagged numbers of an entry's part of the page, in its order, without those that are not known."""
    fields = ["score_minutes", "ci95_minutes.0", "ci95_minutes.1", "olympic_minutes", "stdev_minutes"]
    fields += ["samples_to_target", "samples_per_second", "rcp.factor", "runs_required"]
    known = [
        field
        for field in fields
        if (entry["ci95_minutes"] is not None or not field.startswith("ci95"))
        and at(entry, field) is not None
    ]
    for index, run in enumerate(entry["runs"]):
        quality = run["quality"]
        names = [f"quality.{name}" for name in quality] if isinstance(quality, dict) else ["quality"]
        of_run = ["minutes", *names, "convergence", "samples", "samples_per_second"]
        known += [f"runs.{index}.{name}" for name in of_run if at(run, name) is not None]
    return known


def contrast(one, other):
    """Of two colours `#rrggbb` (WCAG 2, relative luminance)."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_marks_stand_out_from_the_background(theme):
    block = re.findall(r":root[^{]*\{([^}]*)\}", (write.HERE / "page.css").read_text())[theme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
    for name in ("ink", "soft", "accent", "good", "bad", "link"):
        assert (
            min(contrast(colours[name], colours[background]) for background in ("background", "raised"))
            >= 4.5
        ), name
    marks = ("kept", "dropped", "failed", "muted", *(name for name in colours if name.startswith("series")))
    assert len(marks) == 12
    for name in marks:
        assert contrast(colours[name], colours["background"]) >= 3, name


def test_time_and_energy_have_a_pareto_front_of_valid_entries_and_say_whose_energy_is_not_known(tmp_path):
    for name, seconds, watts in (
        ("fast", 50, 300),
        ("slow", 70, 100),
        ("worse", 75, 400),
        ("unknown", 60, None),
    ):
        place = pages.described(tmp_path, "us", name, accelerators=1, seconds=seconds)
        for run in range(5 if watts else 0):
            pages.power(place / "power" / f"result_{run}", watts=watts)
    tree = judge_tree(tmp_path, ruleset_name="mini-1.0", rcp_folders=[tmp_path])  # the good log is too good
    entries = entries_of(tree, PageOptions(prices={"": 1.0}))
    energy = several.pareto(entries, "energy", "J", lambda one: one.energy.joules if one.energy else None)
    front = next(one for one in energy.traces if one["mode"] == "lines")
    by_system = {one.result["system"]: one for one in entries}
    assert front["x"] == [by_system[name].minutes for name in ("fast", "slow")]
    assert front["y"] == [by_system[name].energy.joules for name in ("fast", "slow")]
    assert "Entries that lack one of them, or are the only one of their benchmark: 1." in energy.about
    drawn = several.figures(entries, several.answers([], [], NO_PRICE))
    (both,) = (one for one in drawn if one.name == "pareto cost")
    assert len(both.traces[0]["x"]) == 4


def test_a_long_name_breaks_behind_its_signs_and_has_no_markup_of_its_own():
    assert write._breakable("<b>/a_b-c") == "&lt;b&gt;/<wbr>a_<wbr>b-<wbr>c"


def test_headline_table_and_plot_have_one_unit_and_the_factor_is_explained(tmp_path):
    folder = pages.mini(tmp_path / "campaign")
    tree = judged(folder)
    score = tree.entries[0].score
    factored = dataclasses.replace(
        tree.entries[0],
        score=dataclasses.replace(score, score_minutes=1.25 * score.olympic_minutes, rcp_factor_applied=1.25),
    )
    text = page_of(folder, dataclasses.replace(tree, entries=(factored,)))
    head = re.search(r'<p class="score">(.*?)</p>', text)[1]
    assert re.sub(r"<[^>]*>", "", head).startswith(f"{60 * 1.25 * score.olympic_minutes:.2f} s")
    assert "RCP factor 1.2500: the runs converged faster than the reference" in text
    spread = figure(Read(text), "spread", "entry-0")
    names = [trace["name"] for trace in spread["data"]]
    assert spread["layout"]["yaxis"]["title"]["text"] == "seconds"
    assert any(name.startswith("olympic mean") for name in names)
    assert any(name.endswith("with the RCP factor") and " s," in name for name in names)
