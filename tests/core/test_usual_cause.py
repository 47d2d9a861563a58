"""Deaths name their usual cause."""

import sys

import pytest

from train_bench.core.address import refuse_address
from train_bench.core.usual_cause import usual_cause


@pytest.mark.parametrize(
    ("death", "said"),
    [
        ("rank 0 killed by SIGKILL", ("memory.events", "dmesg")),
        ("host 1: torchrun itself killed by SIGKILL; rank 3 failed: x", ("memory.events",)),
        ("rank 2 killed by SIGBUS", ("/dev/shm",)),
        ("rank 0 failed: No module named 'train_bench'", ("activate its environment", sys.executable)),
    ],
)
def test_the_usual_cause_is_named_with_where_to_look(death, said):
    assert all(one in usual_cause(death) for one in said)


@pytest.mark.parametrize(
    "death",
    ["rank 0 failed: SIGKILL", "killed by SIGTERM", "killed by SIGKILL (inject_faults='kill rank 0')", ""],
)
def test_other_deaths_have_no_usual_cause(death):
    assert usual_cause(death) == ""


@pytest.mark.parametrize("address", ["fe80::1%eth0", "fe80::1%25eth0", "fe80::1%", "192.0.2.1%eth0"])
def test_an_address_with_a_zone_is_refused(address):
    assert "an address with a zone" in refuse_address("launcher.master_addr", address)


@pytest.mark.parametrize("address", ["fe80::1", "2001:db8::7", "192.0.2.1", "host-1.example"])
def test_an_address_without_a_zone_is_one(address):
    assert refuse_address("launcher.master_addr", address) is None
