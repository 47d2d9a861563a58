"""Go as the rules say it, without a thought for speed: positions are dictionaries, superko compares boards."""

from __future__ import annotations

from collections.abc import Callable

BLACK, WHITE = 1, -1
PASS = None
Point = tuple[int, int]


class SlowGo:
    """One game. Stones are kept by (row, column)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.stones: dict[Point, int] = {}
        self.earlier = {frozenset(self.stones.items())}
        self.history = [dict(self.stones)]
        self.to_play = BLACK
        self.passes = 0
        self.ply = 0

    def around(self, point: Point) -> list[Point]:
        row, column = point
        found = [(row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)]
        return [(r, c) for r, c in found if 0 <= r < self.size and 0 <= c < self.size]

    def chain(self, point: Point, stones: dict[Point, int]) -> tuple[set[Point], set[Point]]:
        """Stones and liberties of the chain at `point`."""
        members, liberties, todo = {point}, set(), [point]
        while todo:
            for near in self.around(todo.pop()):
                if near not in stones:
                    liberties.add(near)
                elif stones[near] == stones[point] and near not in members:
                    members.add(near)
                    todo.append(near)
        return members, liberties

    def after(self, point: Point) -> dict[Point, int] | None:
        """The stones behind a move, None if it is illegal."""
        if point in self.stones:
            return None
        stones = {**self.stones, point: self.to_play}
        for near in self.around(point):
            if stones.get(near) == -self.to_play:
                members, liberties = self.chain(near, stones)
                if not liberties:
                    for taken in members:
                        del stones[taken]
        if not self.chain(point, stones)[1]:
            return None
        return None if frozenset(stones.items()) in self.earlier else stones

    def points(self) -> list[Point]:
        return [(row, column) for row in range(self.size) for column in range(self.size)]

    def legal(self) -> list[Point]:
        return [point for point in self.points() if self.after(point) is not None]

    def play(self, point: Point | None) -> None:
        if point is None:
            self.passes += 1
        else:
            stones = self.after(point)
            assert stones is not None, point
            self.stones, self.passes = stones, 0
            self.earlier.add(frozenset(stones.items()))
        self.history.append(dict(self.stones))
        self.to_play = -self.to_play
        self.ply += 1

    def over(self) -> bool:
        return self.passes >= 2

    def region(self, point: Point, inside: Callable[[Point], bool]) -> frozenset[Point]:
        """The connected points around `point` that are `inside`."""
        found, todo = {point}, [point]
        while todo:
            near = [other for other in self.around(todo.pop()) if inside(other) and other not in found]
            found.update(near)
            todo += near
        return frozenset(found)

    def pass_alive(self) -> dict[Point, int]:
        """Whose the points of pass-alive regions are."""
        return self.regions_of(BLACK) | self.regions_of(WHITE)

    def regions_of(self, colour: int) -> dict[Point, int]:
        """Benson's algorithm as the reference has it: a chain that is not alive takes those regions from the others in
        which it has a liberty, and a region with an empty point out of reach is a region still."""

        def enclosed(point: Point) -> bool:
            return self.stones.get(point) != colour

        regions = {self.region(point, enclosed) for point in self.points() if enclosed(point)}
        every = {
            frozenset(self.chain(point, self.stones)[0]) for point in self.points() if not enclosed(point)
        }
        beside = {chain: {near for stone in chain for near in self.around(stone)} for chain in every}
        empty = {region: {point for point in region if point not in self.stones} for region in regions}
        alive, eyes = set(every), set(regions)
        while True:
            dead = {chain for chain in alive if sum(empty[region] <= beside[chain] for region in eyes) < 2}
            if not dead:
                break
            alive -= dead
            eyes = {region for region in eyes if not any(empty[region] & beside[chain] for chain in dead)}
        owner: dict[Point, int] = {}
        for region in regions:
            around = {chain for chain in every if region & beside[chain]}
            out_of_reach = empty[region] - {point for chain in around for point in beside[chain]}
            if around and around <= alive and len(out_of_reach) <= 1:
                owner |= dict.fromkeys(region, colour)
        return owner

    def area(self) -> int:
        """Black's area less White's: pass-alive regions are their owner's with all that lies in them, and another empty
        point is whose alone can be reached from it."""
        owner = {**self.stones, **self.pass_alive()}
        total = sum(owner.values())
        for point in self.points():
            if point not in owner:
                region = self.region(point, lambda other: other not in owner)
                border = {owner[near] for inner in region for near in self.around(inner) if near in owner}
                total += border.pop() if len(border) == 1 else 0
        return total

    def settled(self) -> bool:
        """Whether no empty point is left outside pass-alive regions."""
        owner = self.pass_alive()
        return all(point in self.stones or point in owner for point in self.points())

    def planes(self) -> list[list[list[int]]]:
        """The 13 planes of the network's input."""
        blank = [[0] * self.size for _ in range(self.size)]
        planes = [[row[:] for row in blank] for _ in range(13)]
        for age in range(4):
            past = self.history[max(0, len(self.history) - 1 - age)]
            for (row, column), colour in past.items():
                planes[2 * age + (colour != self.to_play)][row][column] = 1
        if self.to_play == BLACK:
            planes[8] = [[1] * self.size for _ in range(self.size)]
        for point, colour in self.stones.items():
            liberties = self.chain(point, self.stones)[1]
            planes[8 + min(3, len(liberties))][point[0]][point[1]] = 1
            if len(liberties) == 1 and colour == -self.to_play:
                ((row, column),) = liberties
                planes[12][row][column] = int(self.after((row, column)) is not None)
        return planes
