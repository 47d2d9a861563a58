"""A table of published entries, as it is read and written, and the one that comes with train_bench."""

from dataclasses import replace

import pytest

from train_bench.errors import RequestError
from train_bench.judge.published import published_entries
from train_bench.rules import ruleset

HEADING = ",".join(published_entries.COLUMNS)
ROW = "v1.1,NVIDIA,dgxa100,bert,closed,8,A100,448,2780000,20.0032,,0.53,10"


@pytest.fixture
def read(tmp_path):
    def read(*lines):
        path = tmp_path / "table.csv"
        path.write_text("\n".join(lines) + "\n")
        return published_entries.read(path)

    return read


def test_a_row_says_what_its_columns_say(read):
    (entry,) = read(HEADING, ROW)
    assert entry == published_entries.Entry(
        round="v1.1",
        submitter="NVIDIA",
        system="dgxa100",
        benchmark="bert",
        division="closed",
        accelerators=8,
        accelerator="A100",
        global_batch=448,
        samples_to_target=2780000,
        minutes=20.0032,
        eval_share=None,
        init_minutes=0.53,
        runs=10,
    )


def test_rates_are_worked_out(read):
    (entry,) = read(HEADING, ROW)
    entry = replace(entry, samples_to_target=448_000, minutes=10)
    assert entry.steps == 1000
    assert entry.samples_per_second == pytest.approx(448_000 / 600)


def test_a_rate_of_what_is_not_known_is_not_known(read):
    (entry,) = read("round,submitter,system,benchmark", "v1.1,NVIDIA,dgxa100,bert")
    assert (entry.minutes, entry.steps, entry.samples_per_second) == (None,) * 3


def test_columns_may_have_another_order_and_company_and_numbers_a_point(read):
    assert read(
        "minutes,colour,benchmark,global_batch,system,round,submitter", "20,red,bert,448.0,a,1.1,B"
    ) == (
        published_entries.Entry(
            round="v1.1", submitter="B", system="a", benchmark="bert", global_batch=448, minutes=20.0
        ),
    )


def test_an_empty_table_and_empty_lines_are_no_rows(read):
    assert read(HEADING) == ()
    assert len(read(HEADING, "", ROW, "")) == 1


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("round", "seven", "not a round such as v1.1"),
        ("submitter", "", "no name"),
        ("benchmark", "  ", "no name"),
        ("division", "half", "neither closed nor open"),
        ("accelerators", "-8", "not between 0 and 1e+18"),
        ("accelerators", "8.5", "not a whole number"),
        ("global_batch", "0", "not more than 0"),
        ("minutes", "soon", "no number"),
        ("minutes", "nan", "not between 0 and 1e+18"),
        ("minutes", "inf", "not between 0 and 1e+18"),
        ("samples_to_target", "0", "not more than 0"),
        ("eval_share", "1.5", "not between 0 and 1"),
        ("runs", "0", "not more than 0"),
    ],
)
def test_a_row_that_is_none_is_refused_with_its_line_and_column(column, value, why, read):
    told = dict(zip(published_entries.COLUMNS, ROW.split(","), strict=True)) | {column: value}
    with pytest.raises(
        RequestError, match=rf"table\.csv, line 3, column {column}: '.*' is {why}\.$".replace("+", r"\+")
    ):
        read(HEADING, ROW, ",".join(told.values()))


def test_a_row_with_a_column_too_few_or_too_many_is_refused(read):
    with pytest.raises(
        RequestError, match=r"line 2: there are 12 columns where line 1 names 13 \(from runs on"
    ):
        read(HEADING, ROW.rpartition(",")[0])
    with pytest.raises(RequestError, match="line 2: there are 14 columns where line 1 names 13"):
        read(HEADING, ROW + ",")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), "has no column round, submitter, system, benchmark"),
        (("round,submitter,system",), "has no column benchmark"),
        ((HEADING + ",minutes",), "line 1: the column minutes occurs twice"),
        ((HEADING, '"never closed'), "line 2: this is not a row of a table"),
    ],
)
def test_what_is_no_table_is_refused_in_a_sentence(lines, why, read):
    with pytest.raises(RequestError, match=why):
        read(*lines)


def test_what_is_no_file_or_no_text_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(RequestError, match="cannot be read as a table of published entries: No such file"):
        published_entries.read(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"round\xff")
    with pytest.raises(RequestError, match="not UTF-8 text"):
        published_entries.read(tmp_path / "bytes.csv")


def test_tokens_and_padded_epochs_that_are_given_as_samples_are_put_right(read):
    gpt3 = ROW.replace("bert", "gpt3").replace("2780000", str(589_824 * 2048))
    unet3d = ROW.replace("bert", "unet3d").replace("2780000", str(350_000 * 168))
    assert [entry.samples_to_target for entry in read(HEADING, gpt3, unet3d)] == [589_824, 350_000]
    dlrm = ROW.replace("bert", "dlrm").replace("2780000", "4194694268")
    assert read(HEADING, dlrm)[0].samples_to_target == 4_194_694_268


def test_what_is_written_is_what_is_read(tmp_path, read):
    entries = (*read(HEADING, ROW, ROW.replace("bert", '"a, ""b"""').replace(",0.53,10", ",,")),)
    published_entries.write(tmp_path / "again.csv", reversed(entries))
    again = published_entries.read(tmp_path / "again.csv")
    assert set(again) == set(entries)
    assert [entry.benchmark for entry in again] == ['a, "b"', "bert"]


def test_the_table_that_comes_with_train_bench_holds_six_rounds():
    entries = published_entries.shipped()
    assert len(entries) == 930
    assert {entry.round for entry in entries} == {"v1.0", "v1.1", "v2.0", "v2.1", "v4.0", "v4.1"}
    assert all(None not in (entry.minutes, entry.steps, entry.accelerators) for entry in entries)
    assert len({(entry.round, entry.submitter, entry.system, entry.benchmark) for entry in entries}) == 930


def test_no_entry_of_the_closed_division_needed_many_times_the_samples_of_another():
    """So that a sample means the same in every row: RetinaNet trained as ssd from round 2.0 on."""
    needed = {}
    for entry in published_entries.shipped():
        if entry.division == "closed":
            of_retinanet = entry.benchmark == "ssd" and entry.round >= "v2.0"
            needed.setdefault((entry.benchmark, of_retinanet), []).append(entry.samples_to_target)
    assert max(max(values) / min(values) for values in needed.values()) < 5


@pytest.mark.parametrize(
    ("number", "benchmark", "samples"),
    [
        ("1.1.0", "ssd", 117_266),
        ("2.0.0", "ssd", 1_170_301),
        ("3.0.0", "unet3d", 168),
        ("4.0.0", "unet3d", 1),
        ("4.0.0", "gpt3", 1 / 2048),
        ("1.0.0", "bert", 1),
        ("2.1.0", "minigo", None),
    ],
)
def test_a_unit_of_a_published_benchmark_is_so_many_samples(number, benchmark, samples):
    assert (
        published_entries.samples_per_unit(ruleset.load(f"training-{number}").benchmark(benchmark)) == samples
    )
