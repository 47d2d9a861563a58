"""Game records: written and read, those of real games, and broken ones."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest

from tests import needs
from tests.references.slow_go import SlowGo
from tests.references.test_minigo_game import stones
from train_bench.errors import RequestError
from train_bench.references.minigo import game, sgf

pytestmark = pytest.mark.usefixtures("engine")

REAL = needs.DATA / "go9x9" / "go9x9.zip"


def test_a_game_comes_back_as_it_was_written() -> None:
    record = sgf.GameRecord(size=9, komi=7.5, moves=[40, 41, 81, 0, 81, 81], result="W+R")
    text = sgf.text_of(record, black="gen[1]", white="a \\ b")
    assert text.startswith(
        "(;GM[1]FF[4]CA[UTF-8]RU[Chinese]SZ[9]KM[7.5]PB[gen[1\\]]PW[a \\\\ b]RE[W+R]\n;B[ee];W[fe];B[]"
    )
    assert sgf.parse(text, "here") == record


@pytest.mark.parametrize(
    ("winner", "margin", "text"), [(1, 3.5, "B+3.5"), (-1, None, "W+R"), (0, 0.0, "0"), (-1, 12.0, "W+12")]
)
def test_results_are_written_as_sgf_has_them(winner: int, margin: float | None, text: str) -> None:
    assert sgf.result_of(winner, margin) == text


@needs.shared(REAL)
def test_all_real_games_are_legal_and_end_on_the_board_of_the_slow_rules() -> None:
    with zipfile.ZipFile(REAL) as archive:
        names = [name for name in archive.namelist() if name.endswith(".sgf")]
        texts = {name: archive.read(name).decode("utf-8", errors="replace") for name in names}
    assert len(texts) == 71
    moves = captured = 0
    for name, text in texts.items():
        record = sgf.parse(text, name)
        slow, positions = SlowGo(record.size), game.new_games(1, record.size)
        for action in record.moves:
            before = len(slow.stones)
            slow.play(divmod(action, 9) if action < 81 else None)
            game.play(positions, 0, action, game.geometry(9))
            captured += before + (action < 81) - len(slow.stones)
            assert stones(positions, 0, 9) == slow.stones
        moves += len(record.moves)
    assert (moves, captured > 300) == (181 + 5129, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no game", r"here is not an SGF file: it has no '\(;'"),
        ("(;GM[2]SZ[9])", r"game number 2; Go is 1"),
        ("(;SZ[99])", r"size '99'; allowed is 2 to 19"),
        ("(;SZ[9:9])", r"size '9:9'"),
        ("(;SZ[9]KM[six])", r"komi of 'six'"),
        ("(;SZ[9];B[aa];B[bb])", r"move 2 is B's"),
        ("(;SZ[9];B[jj])", r"move 1 is at 'jj'; .* aa to ii"),
        ("(;SZ[9];B[a])", r"move 1 is at 'a'"),
        ("(;SZ[9];B[aa];W[aa])", r"here: Move 2, White at A9, is illegal: there is a stone"),
        ("(;SZ[9];B[];W[];B[aa])", r"Move 3 comes after the end"),
        ("(;SZ[9]AB[aa])", r"sets up stones \(AB\)"),
        ("(;SZ[9](;B[aa])(;B[bb]))", r"variation at character 8"),
        ("(;SZ[9];B[aa", r"broken at character 9: found 'B\[aa'"),
        ("(;SZ[9];B[aa]", r"broken at character 14: found ''"),
        ("(;SZ[9];B[aa][bb])", r"2 values of B"),
    ],
)
def test_a_broken_record_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        sgf.parse(text, "here")


def test_a_file_that_cannot_be_a_game_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"absent\.sgf cannot be read: No such file"):
        sgf.read(tmp_path / "absent.sgf")
    (tmp_path / "large.sgf").write_bytes(b" " * 1_000_001)
    with pytest.raises(RequestError, match="larger than 1000000 bytes"):
        sgf.read(tmp_path / "large.sgf")
    (tmp_path / "binary.sgf").write_bytes(bytes(range(256)))
    with pytest.raises(RequestError, match="not an SGF file"):
        sgf.read(tmp_path / "binary.sgf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("(" + ";" * 900_000 + ")", None, marks=pytest.mark.full),
        ("(;SZ[5]" + " ;\n" * 300_000 + ")", None),
        ("(;" * 300_000, "a variation at character 3"),
        ("(;" + "[" * 900_000, "is broken at character 3"),
        ("(;C" + "[" * 900_000, "is broken at character 3"),
        ("(;" + "A" * 450_000 + "[" + "x" * 450_000, "is broken at character 3"),
        ("(;C[" + "\\\\" * 400_000, "is broken at character 3"),
        ("(;SZ[5]" + ";B[];W[]" * 100_000 + ")", "has more than 2000 moves"),
    ],
    ids=range(8),
)
def test_a_large_file_of_signs_takes_no_time(tmp_path: Path, content: str, message: str | None) -> None:
    (tmp_path / "signs.sgf").write_text(content)
    begun = time.process_time()
    if message is None:
        assert sgf.read(tmp_path / "signs.sgf").moves == []
    else:
        with pytest.raises(RequestError, match=message):
            sgf.read(tmp_path / "signs.sgf")
    assert time.process_time() - begun < 5


def test_a_pipe_in_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sgf")
    with pytest.raises(RequestError, match="cannot be read: it is not a file"):
        sgf.read(tmp_path / "pipe.sgf")


def test_a_record_is_printed_as_a_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "game.sgf"
    file.write_text("(;SZ[3]RE[B+9];B[bb];W[ab];B[aa])")
    assert sgf.main([str(file)]) == 0
    caption = "3 of 3 moves, the last one A3; result B+9\n"
    assert capsys.readouterr().out == " 3 X . .\n 2 O X .\n 1 . . .\n   A B C\n" + caption
    assert sgf.main([str(file), "1"]) == 0
    assert " 2 . X .\n" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert sgf.main(["absent.sgf"]) == 2
    assert capsys.readouterr().err.startswith("train-bench: absent.sgf")


def test_a_board_behind_the_last_move_is_refused() -> None:
    with pytest.raises(RequestError, match="behind move 2; the game has 1 moves"):
        sgf.board_after(sgf.parse("(;SZ[3];B[bb])", "here"), 2)
