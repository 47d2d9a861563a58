"""Nodes as they are typed: NAME, NAME:ADDRESS or an IPv6 address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from train_bench.errors import RequestError
from train_bench.fleet.observations import Node

NAME = re.compile(r"([\w][\w.@-]*)(?::(?:\[([\w.:-]+)\]|([\w.:-]+)))?")


def nodes_of(words: Sequence[str]) -> list[Node]:
    """Nodes of these words. Raises `RequestError` for one that is not a node, and for one given twice."""
    nodes = []
    for word in words:
        address = word.removeprefix("[").removesuffix("]")
        if _is_ipv6(address):
            nodes.append(Node(name=address, address=address))
            continue
        named = NAME.fullmatch(word)
        if named is None:
            raise RequestError(
                f"'{word}' is not a valid node name; give NAME, NAME:ADDRESS or an IPv6 address, of letters, digits "
                "and . _ - @ :."
            )
        nodes.append(Node(name=named[1], address=named[2] or named[3] or named[1].rpartition("@")[2]))
    names = [node.name for node in nodes]
    if not names or len(set(names)) < len(names):
        raise RequestError(
            f"Name each node of the fleet once, for example n1 n2 n3; given: {' '.join(names) or 'none'}."
        )
    return nodes


def _is_ipv6(word: str) -> bool:
    try:
        return ipaddress.ip_address(word).version == 6 and "%" not in word
    except ValueError:
        return False
