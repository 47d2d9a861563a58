"""A published entry beside others of the same benchmark on as many of the same accelerator."""

import json
import shutil
import statistics
from dataclasses import replace

import pytest

from tests import needs
from tests.judge.test_corpus import CORPUS
from train_bench.cli.program import command
from train_bench.errors import RequestError
from train_bench.judge.published import peers, published_entries
from train_bench.judge.published.published_entries import Entry
from train_bench.judge.tree import judge_tree

OURS = Entry(
    round="v4.0",
    submitter="Ours",
    system="box",
    benchmark="llama2_70b_lora",
    division="closed",
    accelerators=8,
    accelerator="NVIDIA H100-SXM5-80GB",
    minutes=30.0,
)


def others(*minutes, **changes):
    return [
        replace(OURS, **{"submitter": "Theirs", "system": f"box {number}", "minutes": took, **changes})
        for number, took in enumerate(minutes)
    ]


def test_an_entry_is_set_beside_the_median_and_the_middle_half_of_its_peers():
    found = peers.find_peers(OURS, others(20, 24, 26, 28, 40))
    assert (found.count, found.median, found.quartiles, found.faster) == (5, 26, (24, 28), 4)
    assert found.ratio == pytest.approx(30 / 26)
    assert found.question is None
    assert str(found) == (
        "30 min, 1.15 times the median 26 min (middle half 24 to 28) of 5 published entries of its round on "
        "8 x NVIDIA H100-SXM5-80GB; 4 of them took less"
    )


def test_an_entry_is_no_peer_of_itself():
    assert peers.find_peers(OURS, [OURS]) is None
    assert peers.find_peers(OURS, [OURS, *others(20)]).count == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmark": "bert"},
        {"accelerators": 16},
        {"accelerator": "NVIDIA H200-SXM5-141GB"},
        {"division": "open"},
        {"round": "v4.1"},
        {"minutes": None},
    ],
)
def test_an_entry_that_differs_in_what_matters_is_no_peer(changes):
    assert peers.find_peers(OURS, [replace(*others(20), **changes)]) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"division": "open"},
        {"accelerators": 0},
        {"accelerators": None},
        {"accelerator": None},
        {"minutes": None},
    ],
)
def test_an_entry_of_which_too_little_is_known_has_no_peers(changes):
    assert peers.find_peers(replace(OURS, **changes), others(20, 20, 20, 20, **changes)) is None


@pytest.mark.parametrize(
    ("minutes", "asked"),
    [
        ((20, 20, 20, 20), True),
        ((20, 20, 20), False),
        ((23.1, 23.1, 23.1, 23.1), False),
        ((23, 23, 23, 23), True),
    ],
)
def test_only_four_peers_and_three_tenths_more_time_make_a_question(minutes, asked):
    found = peers.find_peers(OURS, others(*minutes))
    assert (found.question is not None) is asked
    assert found.as_json()["outlier"] is asked
    assert not asked or found.question.endswith("4 of them took less. Why is this one slower?")


def test_where_its_round_has_too_few_entries_of_earlier_rounds_join_them_and_are_named():
    later = replace(OURS, round="v4.1")
    table = [*others(20, 22), *others(24, 26, round="v4.1"), *others(1, 1, round="v5.0")]
    found = peers.find_peers(later, table)
    assert (found.count, found.rounds) == (4, ("v4.0", "v4.1"))
    assert "of 4 published entries of v4.0 and v4.1 on" in str(found)
    enough = [*table, *[replace(one, system=f"other {one.system}") for one in others(25, 27, round="v4.1")]]
    assert peers.find_peers(later, enough).rounds == ("v4.1",)


def test_an_earlier_round_in_which_the_name_meant_another_task_does_not_count():
    """SSD became RetinaNet in round 2.0."""
    retinanet = replace(OURS, benchmark="ssd", round="v2.0")
    assert peers.find_peers(retinanet, others(8, benchmark="ssd", round="v1.1")) is None
    assert (
        peers.find_peers(replace(retinanet, round="v2.1"), others(8, benchmark="ssd", round="v2.0")).count
        == 1
    )


@pytest.mark.parametrize(
    ("names", "model"),
    [
        (
            [
                "A100-SXM4-80GB",
                "NVIDIA A100-SXM-80GB (400W)",
                "NVIDIA A100-SXM4-80GB(400W)",
                "NVIDIA A100-SXM-80GB CTS",
            ],
            "80gb a100 sxm",
        ),
        (["NVIDIA A100 - PCIe - 80 GB", "NVIDIA A100-PCIE-80GB (300W)"], "80gb a100 pcie"),
        (["Habana Gaudi", "Habana Gaudi HL-205"], "gaudi"),
        (["Habana Gaudi2", "Intel(R) Gaudi(R) 2 AI Accelerator"], "2 gaudi"),
        (["NVIDIA Blackwell GPU (B200-SXM-180GB)", "NVIDIA B200-SXM"], "b200 sxm"),
        (["NVIDIA Blackwell Ultra GPU (GB300)", "NVIDIA GB300"], "gb300"),
        (["AMD Instinct MI325X 256GB HBM3E", "AMD Instinct MI325X"], "mi325x"),
        (["GPU"], "gpu"),
    ],
)
def test_spellings_of_one_accelerator_are_one_name(names, model):
    assert {peers.model_of(name) for name in names} == {model}


def test_the_49_names_of_the_table_are_26_accelerators():
    names = {entry.accelerator for entry in published_entries.shipped()}
    models = {peers.model_of(name) for name in names}
    assert (len(names), len(models)) == (49, 26)
    assert {model for model in models if "a100" in model} == {
        f"{size}gb a100 {socket}" for size in (40, 80) for socket in ("sxm", "pcie")
    }


def test_ten_of_337_entries_in_groups_of_four_took_three_tenths_more_than_the_median_of_their_group():
    """3 %, as of all entries up to round 5.1, of which the table has not all (16 of 574)."""
    groups = {}
    for entry in published_entries.shipped():
        if entry.division == "closed":
            kind = (entry.round, entry.benchmark, peers.model_of(entry.accelerator), entry.accelerators)
            groups.setdefault(kind, []).append(entry.minutes)
    groups = [minutes for minutes in groups.values() if len(minutes) >= 4]
    assert sum(map(len, groups)) == 337
    assert sum(took > 1.3 * statistics.median(group) for group in groups for took in group) == 10


def test_ten_of_the_301_entries_with_four_others_in_their_round_are_a_question():
    table = published_entries.shipped()
    found = peers.find_peers_of_each(table, table)
    own = [
        (entry, one) for entry, one in zip(table, found, strict=True) if one and one.rounds == (entry.round,)
    ]
    assert sum(one.count >= peers.LEAST_PEERS for _, one in own) == 301
    asked = {
        (entry.round, entry.submitter, entry.benchmark): round(one.ratio, 2)
        for entry, one in own
        if one.question
    }
    assert len(asked) == 10
    assert asked["v4.0", "JuniperNetworks", "llama2_70b_lora"] == 3.95
    assert asked["v1.1", "GIGABYTE", "bert"] == 1.90
    assert asked["v1.1", "Supermicro", "bert"] == 1.77
    assert sum(one is not None and one.question is not None for one in found) == 10


JUDGED = "v5.1/Quanta_Cloud_Technology/results/D74H-7U/dlrm_dcnv2"


@pytest.fixture
def table(tmp_path):
    """A table in which others took a third of the time of an entry of the corpus."""
    path = tmp_path / "more.csv"
    published_entries.write(
        path,
        others(*[1.3] * 5, benchmark="dlrm_dcnv2", round="v5.1", accelerator="NVIDIA H200-SXM5-141GB"),
    )
    return path


@needs.corpus
def test_an_outlier_is_for_review_and_no_verdict(table, capsys):
    def judged(*options):
        code = command("judge")([str(CORPUS / JUDGED), "--json", *options])
        return code, json.loads(capsys.readouterr().out)["entries"][0]

    (code, entry), (code_beside, beside) = judged(), judged("--published", str(table))
    assert (entry["peers"]["rounds"], entry["peers"]["outlier"]) == (["v4.0", "v4.1"], False)
    assert (beside["peers"]["rounds"], beside["peers"]["outlier"]) == (["v5.1"], True)
    (question,) = [one for one in beside["findings"] if one["check"] == "peer_outlier"]
    assert (question["grade"], question["value"]) == ("review", 3.0453)
    assert code == code_beside
    for field in ("valid", "reasons", "score_minutes", "official_verdict"):
        assert entry[field] == beside[field]


@needs.corpus
def test_the_question_and_else_the_line_are_told_once(table, capsys):
    arguments = [str(CORPUS / JUDGED), "--published", str(table)]
    for verb, first in (
        ("judge", "  [peer_outlier, for review] It took 3.959 min"),
        ("score", "published peers: 3.959"),
    ):
        command(verb)(arguments)
        lines = [line for line in capsys.readouterr().out.splitlines() if "times the median" in line]
        assert len(lines) == 1
        assert lines[0].startswith(first)
    command("judge")(arguments[:1])
    assert "published peers: 3.959 min, 1.11 times" in capsys.readouterr().out


@needs.corpus
def test_the_table_of_a_tree_names_below_it_who_is_asked(table, tmp_path, capsys):
    folder = CORPUS / "v5.1" / "Quanta_Cloud_Technology"
    command("score")([str(folder), "--published", str(table), "--markdown"])
    below = [line for line in capsys.readouterr().out.splitlines() if " is for review: " in line]
    assert len(below) == 1
    assert below[0].startswith(
        "Quanta_Cloud_Technology/D74H-7U/dlrm_dcnv2 is for review: 3.959 min, 3.05 times"
    )


def test_a_table_that_is_none_is_refused_before_anything_is_judged(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(RequestError, match="cannot be read as a table"):
        command("judge")([str(tmp_path / "none"), "--published", str(tmp_path / "none.csv")])


@needs.corpus
def test_entries_of_one_tree_are_peers_of_each_other(table, tmp_path):
    source = CORPUS / "v5.1" / "Quanta_Cloud_Technology"
    for submitter in ("A", "B"):
        folder = tmp_path / "v5.1" / submitter
        shutil.copytree(
            source / "results" / "D74H-7U" / "dlrm_dcnv2", folder / "results" / "D74H-7U" / "dlrm_dcnv2"
        )
        shutil.copytree(source / "systems", folder / "systems")
    judged = judge_tree(tmp_path / "v5.1", ruleset_name=None, rcp_folders=[tmp_path], table=tuple)
    assert [(one.peers.count, one.peers.ratio) for one in judged.entries] == [(1, 1.0)] * 2
