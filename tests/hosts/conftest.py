"""Two hosts on one machine: two network namespaces with names of their own, joined by a veth pair."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests import needs
from tests.fake_campaigns import begin, make
from tests.sandbox import ROOT


@dataclass(frozen=True)
class Host:
    """A network namespace; its `address` is reached through `interface`."""

    name: str
    address: str
    interface: str

    def start(self, *arguments):
        """`train-bench WORDS` on this host, in the background."""
        named = f'hostname {self.name} && exec "$@"'
        inside = ("ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", named, "sh")
        command = [*inside, sys.executable, "-m", "train_bench", *arguments]
        return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def processes(self):
        """Process numbers of everything that runs on this host."""
        completed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True
        )
        return [int(number) for number in completed.stdout.split()]

    def kill(self, number):
        os.kill(number, signal.SIGKILL)

    def cut_the_link(self):
        """From now on packets are lost without a word, as when a cable is pulled or a host is switched off."""
        ip("netns", "exec", self.name, "ip", "link", "set", self.interface, "down")


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def two_hosts():
    """Host 0 and host 1. Needs root; where CI is set, its absence is a failure."""
    tag = os.getpid()
    hosts = [Host(f"tb{tag}h{n}", f"10.203.0.{n + 1}", f"tb{tag}v{n}") for n in range(2)]
    made = []
    try:
        for host in hosts:
            ip("netns", "add", host.name)
            made.append(host)
        ip("link", "add", hosts[0].interface, "type", "veth", "peer", "name", hosts[1].interface)
        for host in hosts:
            ip("link", "set", host.interface, "netns", host.name)
            for command in (
                ("addr", "add", f"{host.address}/24", "dev", host.interface),
                ("link", "set", host.interface, "up"),
                ("link", "set", "lo", "up"),
            ):
                ip("netns", "exec", host.name, "ip", *command)
    except (OSError, subprocess.CalledProcessError) as error:
        _remove(made)
        needs.namespaces(error)
    yield hosts
    _remove(made)


@pytest.fixture
def several(tmp_path):
    """A campaign over two hosts that was begun."""
    hosts = ("launcher=torchrun", "launcher.nodes=2", "launcher.master_addr=10.0.0.1")
    plan = make(f"output={tmp_path / 'campaign'}", "seed=1", *hosts)
    begin(plan)
    return plan.jobs[0].folder


def _remove(hosts):
    for host in hosts:
        for number in host.processes():
            host.kill(number)
        ip("netns", "delete", host.name)
