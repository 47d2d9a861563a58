"""Some hosts on one machine: network namespaces with names of their own, whose `eth0` are joined by a switch."""

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A host of a fleet by its `name` and the `address` at which the others reach it."""

    name: str
    address: str

    def __str__(self):
        return f"{self.name}:{self.address}"


INSIDE = (
    "ip",
    "netns",
    "exec",
    "{node}",
    "unshare",
    "--uts",
    "sh",
    "-c",
    'hostname {node} && exec "$@"',
    "sh",
)
"""What runs a program on a host, whose name stands for `{node}`."""

A_BIT_ERROR = """
import sys
if "train_bench.run.rank" in sys.orig_argv:
    import torch
    right = torch.nn.Linear.forward
    def wrong(self, input):
        output = right(self, input)
        output.data.view(-1)[:1].view(torch.int32).bitwise_xor_(1)
        return output
    torch.nn.Linear.forward = wrong
"""
"""What a host whose PYTHONPATH leads to it as `sitecustomize.py` does to one bit of what linear layers give."""


@contextmanager
def fleet(count):
    """So many hosts, and at the end none. Needs root; raises `CalledProcessError` or `OSError` without."""
    tag = f"tbf{os.getpid()}"
    switch = f"{tag}s"
    members = [Member(f"{tag}n{number}", f"10.204.0.{number}") for number in range(1, count + 1)]
    made = []
    try:
        for name in (switch, *(member.name for member in members)):
            ip("netns", "add", name)
            made.append(name)
        inside(switch, "link", "add", "br0", "type", "bridge")
        inside(switch, "link", "set", "br0", "up")
        for number, member in enumerate(members):
            port = f"port{number}"
            inside(member.name, "link", "add", "eth0", "type", "veth", "peer", "name", port)
            inside(member.name, "link", "set", port, "netns", switch)
            inside(switch, "link", "set", port, "master", "br0", "up")
            inside(member.name, "addr", "add", f"{member.address}/24", "dev", "eth0")
            for link in ("eth0", "lo"):
                inside(member.name, "link", "set", link, "up")
        yield members
    finally:
        for name in made:
            ip("netns", "delete", name)


def inside(name, *arguments):
    """A command of `ip` on a host."""
    ip("-netns", name, *arguments)


def ip(*arguments):
    """A command of `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def processes(name):
    """Numbers of the processes that run on a host."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True)
    return [int(number) for number in listed.stdout.split()]
