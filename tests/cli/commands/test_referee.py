"""The command `referee`."""

import json

import pytest

from tests.command_line import typed

CORE = "core\n0.25373\n0.2584\n0.25489\n0.2568\n0.25732\n0.26765\n0.25119\n"
CLEAR = "core\n0.2690\n0.2684\n0.2701\n0.2688\n0.2687\n"


@pytest.fixture
def board(tmp_path):
    (tmp_path / "four.csv").write_text(CORE)
    (tmp_path / "five.csv").write_text(CLEAR)
    return tmp_path


def test_a_claim_that_is_not_shown_is_said_with_its_numbers_and_exit_code_1(board):
    said = typed("referee", str(board / "four.csv"), "--above", "0.256525")
    assert said.returncode == 1
    for number in ("4 of 7", "0.25714", "0.38", "NOT SHOWN", "730"):
        assert number in said.stdout, number
    assert "0 of 1 records show a mean quality above 0.256525 at p < 0.01" in said.stdout


def test_a_claim_that_is_shown_ends_with_0(board):
    said = typed("referee", str(board / "five.csv"), "--above", "0.256525")
    assert (said.returncode, said.stderr) == (0, "")
    assert "1 of 1 records show" in said.stdout


def test_records_of_a_board_are_one_json_object(board):
    paths = [str(board / "four.csv"), str(board / "five.csv")]
    said = typed("referee", *paths, "--above", "0.256525", "--json")
    content = json.loads(said.stdout)
    assert [(one["name"], one["shown"]) for one in content["records"]] == [
        ("four.csv", False),
        ("five.csv", True),
    ]
    assert said.returncode == 1


def test_a_record_that_cannot_be_read_hides_no_other(board):
    (board / "empty.csv").write_text("")
    page = board / "page.html"
    paths = (str(board / "empty.csv"), str(board / "five.csv"))
    said = typed("referee", *paths, "--above", "0.256525", "--to", str(page))
    assert said.returncode == 1
    for text in (said.stdout, page.read_text()):
        assert "Not read:" in text
        assert "SHOWN" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "referee needs one of --below --above"),
        (("--below", "nan"), "--below is nan; give a number"),
        (("--below", "3", "--level", "1.5"), "--level is 1.5; give a probability between 0 and 1"),
        (
            ("--below", "3", "--power", "0.001"),
            "--power is 0.001; give a probability between the level and 1",
        ),
        (("--below", "3", "--deviation", "-1"), "--deviation is -1; give a positive number"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_read(board, arguments, sentence):
    said = typed("referee", str(board / "none.csv"), *arguments)
    assert said.returncode == 2
    assert sentence in said.stderr


def test_a_record_that_is_not_there_is_one_sentence(board):
    said = typed("referee", str(board / "none.csv"), "--below", "3")
    assert (said.returncode, said.stdout) == (1, "")
    assert "There is no" in said.stderr
