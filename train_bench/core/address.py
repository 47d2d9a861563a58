"""Addresses of hosts in options: a name or an IP address, without a port, a user or a protocol."""

from __future__ import annotations

import ipaddress
import re

NAME = re.compile(r"[A-Za-z0-9_]([\w.-]*\w)?\.?", re.ASCII)
WITH_PORT = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d+)")


def refuse_address(option: str, address: str, port_option: str | None = None) -> str | None:
    """Reason that an option is no address of a host, as a sentence; None if it is one. `port_option` is where its port
    belongs."""
    with_port = WITH_PORT.fullmatch(address)
    if with_port is not None:
        host, port = with_port["v6"] or with_port["host"], with_port["port"]
        if port_option is None:
            return f"{option} is {address}; it takes an address without a port: {option}={host}."
        return f"{option} is {address}; the port belongs in {port_option}: type {option}={host} {port_option}={port}."
    if "%" in address and _is_address(address.partition("%")[0]):
        return (
            f"{option} is {address}, an address with a zone, which torchrun does not take; give the name of the host, "
            "or an address that needs no zone (ip -6 addr show scope global)."
        )
    if _is_address(address):
        return None
    return (
        f"{option} is {address!r}; give the name or the IP address of a host, for example {option}=192.0.2.1."
    )


def _is_address(address: str) -> bool:
    if NAME.fullmatch(address):
        return True
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True
