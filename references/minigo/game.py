"""Go on square boards of up to 19 points a side: positional superko, suicide illegal, two passes end a game.

Points are numbered row by row from 0, and the number after the last one is a pass: an action. A colour is 1
(Black) or -1 (White), 0 is an empty point. A batch of games is a `Positions`, one row per game; everything that
is done to it is compiled (`compiled.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from train_bench.errors import RequestError
from train_bench.references.minigo.compiled import compiled

BLACK, WHITE, EMPTY = 1, -1, 0
LARGEST_SIZE = 19
PLANES = 13
HISTORY = 4
COLUMNS = "ABCDEFGHJKLMNOPQRST"
ZOBRIST_SEED = 20170101


class Geometry(NamedTuple):
    """Constants of all games on boards of n points.

    neighbours   int16 (n, 4), -1 where the board ends
    zobrist      uint64 (2, n), a random number per stone, White's first
    symmetries   int16 (8, n + 1), where each symmetry of the square takes an action
    """

    neighbours: np.ndarray
    zobrist: np.ndarray
    symmetries: np.ndarray


class Positions(NamedTuple):
    """Games under way.

    recent           int8 (games, 4, n), the last four positions of the board, the newest first
    to_play          int8 (games,)
    passes_in_a_row  int16 (games,)
    ply              int32 (games,), moves made, passes included
    key              uint64 (games,), Zobrist hash of the stones (Zobrist, 1970)
    seen             uint64 (games, slots), the keys of all earlier positions, open addressing, 0 is free
    """

    recent: np.ndarray
    to_play: np.ndarray
    passes_in_a_row: np.ndarray
    ply: np.ndarray
    key: np.ndarray
    seen: np.ndarray


@lru_cache
def geometry(size: int) -> Geometry:
    """The geometry of a board of `size` points a side, 2 to 19."""
    if not 2 <= size <= LARGEST_SIZE:
        raise RequestError(f"A board has 2 to {LARGEST_SIZE} points a side; this one has {size}.")
    points = np.arange(size * size)
    row, column = points // size, points % size
    neighbours = np.full((size * size, 4), -1, dtype=np.int16)
    for number, (down, right) in enumerate(((-1, 0), (0, -1), (0, 1), (1, 0))):
        r, c = row + down, column + right
        inside = (r >= 0) & (r < size) & (c >= 0) & (c < size)
        neighbours[inside, number] = (r * size + c)[inside]
    zobrist = np.random.Generator(np.random.PCG64(ZOBRIST_SEED)).integers(
        1, 2**64 - 1, (2, size * size), dtype=np.uint64
    )
    board = points.reshape(size, size)
    turned = [np.rot90(side, turns) for side in (board, board.T) for turns in range(4)]
    symmetries = np.full((8, size * size + 1), size * size, dtype=np.int16)
    for number, image in enumerate(turned):
        symmetries[number, image.ravel()] = points
    return Geometry(neighbours, zobrist, symmetries)


def new_games(games: int, size: int, moves: int | None = None) -> Positions:
    """Empty boards, Black to play, with room to remember the positions of `moves` moves; without a number, of
    twice as many as the board has points. Games of more moves have to be `with_room`."""
    points = geometry(size).neighbours.shape[0]
    slots = 1 << max(1, 2 * (2 * points if moves is None else moves)).bit_length()
    return Positions(
        recent=np.zeros((games, HISTORY, points), dtype=np.int8),
        to_play=np.full(games, BLACK, dtype=np.int8),
        passes_in_a_row=np.zeros(games, dtype=np.int16),
        ply=np.zeros(games, dtype=np.int32),
        key=np.zeros(games, dtype=np.uint64),
        seen=np.zeros((games, slots), dtype=np.uint64),
    )


@compiled
def restart(positions: Positions, game: int) -> None:
    """Restart this game."""
    positions.recent[game] = 0
    positions.to_play[game] = BLACK
    positions.passes_in_a_row[game] = 0
    positions.ply[game] = 0
    positions.key[game] = 0
    positions.seen[game] = 0


@compiled
def chains(board: np.ndarray, geometry: Geometry) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per point the first stone of its chain (-1: empty); per first stone the number of liberties, one of
    them, and the exclusive or of its stones' random numbers."""
    points = board.size
    chain = np.full(points, -1, np.int16)
    liberties = np.zeros(points, np.int16)
    liberty = np.full(points, -1, np.int16)
    keys = np.zeros(points, np.uint64)
    met = np.full(points, -1, np.int16)
    queue = np.empty(points, np.int16)
    for first in range(points):
        colour = board[first]
        if colour == EMPTY or chain[first] >= 0:
            continue
        side = 1 if colour == BLACK else 0
        chain[first] = first
        queue[0] = first
        done, queued = 0, 1
        while done < queued:
            point = queue[done]
            done += 1
            keys[first] ^= geometry.zobrist[side, point]
            for next_to in geometry.neighbours[point]:
                if next_to < 0:
                    continue
                if board[next_to] == EMPTY:
                    if met[next_to] != first:
                        met[next_to] = first
                        liberties[first] += 1
                        liberty[first] = next_to
                elif board[next_to] == colour and chain[next_to] < 0:
                    chain[next_to] = first
                    queue[queued] = next_to
                    queued += 1
    return chain, liberties, liberty, keys


@compiled
def moves_without_history(
    board: np.ndarray,
    to_play: int,
    key: np.uint64,
    geometry: Geometry,
    legal: np.ndarray,
    keys: np.ndarray,
) -> None:
    """Fill `legal`, bool (n + 1,), as if no position had occurred before, and `keys`, uint64 (n,), with the key of the
    position after each move. A move is no suicide if it captures, has an empty neighbour, or joins a chain that has
    another liberty."""
    chain, liberties, _, chain_keys = chains(board, geometry)
    side = 1 if to_play == BLACK else 0
    for point in range(board.size):
        legal[point] = False
        if board[point] != EMPTY:
            continue
        after = key ^ geometry.zobrist[side, point]
        around = geometry.neighbours[point]
        for number in range(4):
            next_to = around[number]
            if next_to < 0:
                continue
            if board[next_to] == EMPTY:
                legal[point] = True
                continue
            first = chain[next_to]
            if board[next_to] == to_play:
                if liberties[first] > 1:
                    legal[point] = True
            elif liberties[first] == 1:
                legal[point] = True
                taken = False
                for earlier in range(number):
                    taken |= around[earlier] >= 0 and chain[around[earlier]] == first
                if not taken:
                    after ^= chain_keys[first]
        keys[point] = after
    legal[board.size] = True


@compiled
def was_seen(seen: np.ndarray, key: np.uint64) -> bool:
    """True if `key` is in one game's table."""
    slot = key & np.uint64(seen.size - 1)
    while seen[slot] != 0:
        if seen[slot] == key:
            return True
        slot = (slot + np.uint64(1)) & np.uint64(seen.size - 1)
    return False


@compiled
def remember(seen: np.ndarray, key: np.uint64) -> None:
    """Put `key` into one game's table. The empty board has key 0 and cannot come back."""
    slot = key & np.uint64(seen.size - 1)
    while seen[slot] != 0 and seen[slot] != key:
        slot = (slot + np.uint64(1)) & np.uint64(seen.size - 1)
    seen[slot] = key


@compiled
def remember_all(seen: np.ndarray, earlier: np.ndarray) -> None:
    """Copy all keys of the tables `earlier` (games, slots) into the tables `seen`."""
    for game in range(earlier.shape[0]):
        for key in earlier[game]:
            if key != 0:
                remember(seen[game], key)


def with_room(positions: Positions) -> Positions:
    """`positions` as they are, or with tables twice as large if that of the longest game is half full."""
    games, slots = positions.seen.shape
    if 2 * int(positions.ply.max()) < slots:
        return positions
    seen = np.zeros((games, 2 * slots), dtype=np.uint64)
    remember_all(seen, positions.seen)
    return positions._replace(seen=seen)


@compiled
def legal_moves(positions: Positions, game: int, geometry: Geometry, legal: np.ndarray) -> None:
    """Fill `legal`, bool (n + 1,), for the side to play; a pass always is."""
    points = positions.recent.shape[2]
    keys = np.empty(points, np.uint64)
    moves_without_history(
        positions.recent[game, 0], positions.to_play[game], positions.key[game], geometry, legal, keys
    )
    for point in range(points):
        if legal[point] and was_seen(positions.seen[game], keys[point]):
            legal[point] = False


@compiled
def has_liberty(board: np.ndarray, start: int, geometry: Geometry, queue: np.ndarray) -> int:
    """0 if the chain at `start` has a liberty, else its number of stones; their points are then in `queue`."""
    met = np.zeros(board.size, np.bool_)
    met[start] = True
    queue[0] = start
    done, queued = 0, 1
    while done < queued:
        for next_to in geometry.neighbours[queue[done]]:
            if next_to < 0 or met[next_to]:
                continue
            if board[next_to] == EMPTY:
                return 0
            if board[next_to] == board[start]:
                met[next_to] = True
                queue[queued] = next_to
                queued += 1
        done += 1
    return queued


@compiled
def place(board: np.ndarray, key: np.uint64, point: int, colour: int, geometry: Geometry) -> np.uint64:
    """Put a stone, take off what it captures, and return the new key. The move has to be legal."""
    board[point] = colour
    key ^= geometry.zobrist[1 if colour == BLACK else 0, point]
    queue = np.empty(board.size, np.int16)
    for next_to in geometry.neighbours[point]:
        if next_to < 0 or board[next_to] != -colour:
            continue
        stones = has_liberty(board, next_to, geometry, queue)
        for number in range(stones):
            board[queue[number]] = EMPTY
            key ^= geometry.zobrist[0 if colour == BLACK else 1, queue[number]]
    return key


@compiled
def play(positions: Positions, game: int, action: int, geometry: Geometry) -> None:
    """Make a legal move or pass."""
    points = positions.recent.shape[2]
    colour = positions.to_play[game]
    for age in range(HISTORY - 1, 0, -1):
        positions.recent[game, age] = positions.recent[game, age - 1]
    if action == points:
        positions.passes_in_a_row[game] += 1
    else:
        positions.passes_in_a_row[game] = 0
        board = positions.recent[game, 0]
        positions.key[game] = place(board, positions.key[game], action, colour, geometry)
        remember(positions.seen[game], positions.key[game])
    positions.to_play[game] = -colour
    positions.ply[game] += 1


@compiled
def is_over(passes_in_a_row: int) -> bool:
    """After two passes. Superko sees to it that they come."""
    return passes_in_a_row >= 2


@compiled
def write_planes(
    planes: np.ndarray,
    recent: np.ndarray,
    to_play: int,
    legal: np.ndarray,
    geometry: Geometry,
    moved: np.ndarray,
) -> None:
    """Fill `planes`, uint8 (13, n), the network's input features of a position under a symmetry.

    0 to 7   stones of the side to play and of the other, for each of the four `recent` positions (4, n)
    8        1 everywhere if Black is to play
    9 to 11  stones of chains with 1, 2, and 3 or more liberties
    12       where a `legal` move captures: the last liberty of a chain of the other side

    `legal`, bool (n + 1,), has superko taken into account; `moved` is the row of the symmetry in
    `Geometry.symmetries`.
    """
    board = recent[0]
    chain, liberties, liberty, _ = chains(board, geometry)
    planes[:] = 0
    if to_play == BLACK:
        planes[8] = 1
    for point in range(board.size):
        where = moved[point]
        for age in range(HISTORY):
            if recent[age, point] == to_play:
                planes[2 * age, where] = 1
            elif recent[age, point] == -to_play:
                planes[2 * age + 1, where] = 1
        first = chain[point]
        if first < 0:
            continue
        planes[8 + min(3, liberties[first]), where] = 1
        if first == point and liberties[first] == 1 and board[point] == -to_play and legal[liberty[first]]:
            planes[12, moved[liberty[first]]] = 1


@compiled
def random_playouts(positions: Positions, geometry: Geometry, draws: np.ndarray) -> None:
    """Play each game with legal moves drawn at random until it is over or has as many moves as `draws`, float64
    (games, moves), has columns. These are uniform in [0, 1): the move is entry floor(draw * count) of the legal
    points, or a pass if there are none."""
    games, _, points = positions.recent.shape
    legal = np.empty(points + 1, np.bool_)
    for game in range(games):
        while not is_over(positions.passes_in_a_row[game]) and positions.ply[game] < draws.shape[1]:
            legal_moves(positions, game, geometry, legal)
            count = np.sum(legal[:points])
            left = int(draws[game, positions.ply[game]] * count)
            action = points
            for point in range(points):
                if legal[point]:
                    if left == 0:
                        action = point
                        break
                    left -= 1
            play(positions, game, action, geometry)


def play_checked(positions: Positions, game: int, action: int, size: int) -> None:
    """`play` for moves from outside.

    Raises RequestError with the reason if the move is not legal or the game is over.
    """
    points = size * size
    if is_over(int(positions.passes_in_a_row[game])):
        raise RequestError(f"Move {int(positions.ply[game]) + 1} comes after the end of the game.")
    if not 0 <= action <= points:
        raise RequestError(f"Action {action} is not on a board of {size} x {size}; allowed is 0 to {points}.")
    legal = np.empty(points + 1, np.bool_)
    legal_moves(positions, game, geometry(size), legal)
    if not legal[action]:
        raise RequestError(
            f"Move {int(positions.ply[game]) + 1}, {_colour(positions, game)} at {name_of(action, size)}, is "
            f"illegal: {_reason(positions, game, action, size)}."
        )
    play(positions, game, action, geometry(size))


def _colour(positions: Positions, game: int) -> str:
    return "Black" if positions.to_play[game] == BLACK else "White"


def _reason(positions: Positions, game: int, action: int, size: int) -> str:
    if positions.recent[game, 0, action] != EMPTY:
        return "there is a stone"
    legal, keys = np.empty(size * size + 1, np.bool_), np.empty(size * size, np.uint64)
    board, to_play = positions.recent[game, 0], positions.to_play[game]
    moves_without_history(board, to_play, positions.key[game], geometry(size), legal, keys)
    return "the board would be as it was before (superko)" if legal[action] else "it is suicide"


def name_of(action: int, size: int) -> str:
    """An action as players write it: D4, or pass. Columns go from left to right, rows from the bottom up."""
    if action == size * size:
        return "pass"
    return f"{COLUMNS[action % size]}{size - action // size}"


def picture(positions: Positions, game: int, size: int) -> str:
    """A board as text, X for Black, O for White."""
    board = positions.recent[game, 0].reshape(size, size)
    names = " ".join(COLUMNS[:size])
    rows = [f"{size - row:2d} {' '.join('O.X'[stone + 1] for stone in board[row])}" for row in range(size)]
    return "\n".join([*rows, f"   {names}"])
