"""Game records in SGF, the Smart Game Format FF[4] (Hollosi, 1999): one game of Go per file, without variations.

Files are untrusted text; errors in them are reported with their position.

`python -m train_bench.references.minigo.sgf FILE [MOVES]` prints a board, the final one or that after so many moves.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train_bench.core import files
from train_bench.errors import RequestError, TrainBenchError
from train_bench.references.minigo import game

LETTERS = "abcdefghijklmnopqrs"
PROPERTY = re.compile(r"\s*([A-Z]+)((?:\s*\[(?:[^\]\\]|\\.)*\])+)", re.DOTALL)
VALUE = re.compile(r"\[((?:[^\]\\]|\\.)*)\]", re.DOTALL)
SETUP = ("AB", "AW", "AE")
SPACE = re.compile(r"\s*")
LARGEST_FILE = 1_000_000
MOST_MOVES = 2_000
"""A game of the benchmark on 19x19 has at most 722."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRecord:
    """A game as it was written down.

    komi    None where the file has none
    moves   actions, Black's and White's in turn
    result  as it stands in the file: B+3.5, W+R, 0; None where it has none
    """

    size: int
    komi: float | None
    moves: list[int]
    result: str | None


def result_of(winner: int, margin: float | None) -> str:
    """SGF notation of a result; no margin is a resignation."""
    if winner == game.EMPTY:
        return "0"
    return f"{'B' if winner == game.BLACK else 'W'}+{'R' if margin is None else f'{margin:g}'}"


def text_of(record: GameRecord, *, black: str, white: str) -> str:
    """A file of one game; `black` and `white` name the players."""
    komi = "" if record.komi is None else f"KM[{record.komi:g}]"
    result = "" if record.result is None else f"RE[{record.result}]"
    head = (
        f"(;GM[1]FF[4]CA[UTF-8]RU[Chinese]SZ[{record.size}]{komi}PB[{_text(black)}]PW[{_text(white)}]{result}"
    )
    moves = [f";{'BW'[number % 2]}[{_point(move, record.size)}]" for number, move in enumerate(record.moves)]
    lines = ["".join(moves[start : start + 12]) for start in range(0, len(moves), 12)]
    return "\n".join([head, *lines]) + ")\n"


def _text(name: str) -> str:
    return name.replace("\\", "\\\\").replace("]", "\\]")


def _point(action: int, size: int) -> str:
    if action == size * size:
        return ""
    return LETTERS[action % size] + LETTERS[action // size]


def read(path: Path) -> GameRecord:
    """The game of a file.

    Raises RequestError with the file, and with the move where one is at fault.
    """
    try:
        with files.opened(path) as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > LARGEST_FILE:
        raise RequestError(f"{path} is larger than {LARGEST_FILE} bytes; a record of one game is not.")
    return parse(content.decode("utf-8", errors="replace"), str(path))


def parse(text: str, where: str) -> GameRecord:
    """The game of a file's text; `where` names it in errors.

    Raises RequestError if it is not one game of Go without variations and stones that are set up.
    """
    nodes = _nodes(text, where)
    root = nodes[0]
    if _single(root, "GM", "1", where) != "1":
        raise RequestError(f"{where} is a record of game number {root['GM'][0]}; Go is 1 (GM[1]).")
    size = _size(_single(root, "SZ", "19", where), where)
    komi = _komi(root, where)
    moves: list[int] = []
    for node in nodes:
        for name in SETUP:
            if name in node:
                raise RequestError(
                    f"{where} sets up stones ({name}); only games from the empty board are read."
                )
        for name in ("B", "W"):
            if name in node:
                _take(moves, name, _single(node, name, "", where), size, where)
    positions = game.new_games(1, size, len(moves))
    for action in moves:
        try:
            game.play_checked(positions, 0, action, size)
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from error
    result = root.get("RE", [None])[0]
    return GameRecord(size=size, komi=komi, moves=moves, result=result)


def _nodes(text: str, where: str) -> list[dict[str, list[str]]]:
    """Properties of every node, in order."""
    start = text.find("(;")
    if start < 0:
        raise RequestError(f"{where} is not an SGF file: it has no '(;'.")
    nodes: list[dict[str, list[str]]] = []
    place = start + 1
    while True:
        place = SPACE.match(text, place).end()  # type: ignore[union-attr]
        sign = text[place : place + 1]
        if sign == ";":
            nodes.append({})
            place += 1
        elif sign == ")":
            return nodes
        elif sign == "(":
            raise RequestError(
                f"{where} has a variation at character {place + 1}; only plain games are read."
            )
        else:
            parsed = PROPERTY.match(text, place)
            if parsed is None:
                raise RequestError(
                    f"{where} is broken at character {place + 1}: found {text[place : place + 12]!r} where a property, "
                    "';' or ')' is expected."
                )
            nodes[-1][parsed[1]] = VALUE.findall(parsed[2])
            place = parsed.end()


def _single(node: dict[str, list[str]], name: str, absent: str, where: str) -> str:
    values = node.get(name, [absent])
    if len(values) != 1:
        raise RequestError(f"{where} has {len(values)} values of {name}; it takes one.")
    return values[0].strip()


def _size(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or not 2 <= int(text[:6]) <= game.LARGEST_SIZE:
        raise RequestError(f"{where} has a board of size {text!r}; allowed is 2 to {game.LARGEST_SIZE}.")
    return int(text)


def _komi(root: dict[str, list[str]], where: str) -> float | None:
    text = _single(root, "KM", "", where)
    if not text:
        return None
    if re.fullmatch(r"-?\d{1,3}(\.\d{1,6})?", text) is None:
        raise RequestError(f"{where} has a komi of {text!r}; it has to be a number.")
    return float(text)


def _take(moves: list[int], name: str, value: str, size: int, where: str) -> None:
    """Append a move."""
    number = len(moves) + 1
    if number > MOST_MOVES:
        raise RequestError(f"{where} has more than {MOST_MOVES} moves; a record of one game has not.")
    if name != "BW"[len(moves) % 2]:
        raise RequestError(f"{where}: move {number} is {name}'s; Black (B) and White (W) move in turn.")
    if value == "" or value == "tt":
        moves.append(size * size)
        return
    if len(value) != 2 or any(letter not in LETTERS[:size] for letter in value):
        raise RequestError(
            f"{where}: move {number} is at {value!r}; a point of this board is two letters, aa to "
            f"{2 * LETTERS[size - 1]}."
        )
    moves.append(LETTERS.index(value[1]) * size + LETTERS.index(value[0]))


def board_after(record: GameRecord, moves: int) -> str:
    """The board as text after the first `moves` moves.

    Raises RequestError where the game has fewer.
    """
    if not 0 <= moves <= len(record.moves):
        raise RequestError(f"There is no board behind move {moves}; the game has {len(record.moves)} moves.")
    positions = game.new_games(1, record.size, moves)
    for action in record.moves[:moves]:
        game.play(positions, 0, action, game.geometry(record.size))
    last = game.name_of(record.moves[moves - 1], record.size) if moves else "none"
    caption = (
        f"{moves} of {len(record.moves)} moves, the last one {last}; result {record.result or 'unknown'}"
    )
    return f"{game.picture(positions, 0, record.size)}\n{caption}\n"


def main(arguments: Sequence[str]) -> int:
    """Print a board; what is wrong is one sentence, and exit code 2."""
    parser = argparse.ArgumentParser(
        "python -m train_bench.references.minigo.sgf", description="A game as a board."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a record of a game in SGF")
    parser.add_argument("moves", nargs="?", type=int, metavar="MOVES", help="after so many moves, not all")
    options = parser.parse_args(arguments)
    try:
        record = read(options.file)
        sys.stdout.write(board_after(record, len(record.moves) if options.moves is None else options.moves))
    except TrainBenchError as error:
        sys.stderr.write(f"train-bench: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
