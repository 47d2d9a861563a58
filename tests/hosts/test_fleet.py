"""A fleet of three hosts that really train, one of which computes wrongly in one bit."""

import json
import shlex
import subprocess

import pytest

from tests import needs
from tests.command_line import train_bench
from tests.hosts.fleet import A_BIT_ERROR, INSIDE, fleet, processes

pytestmark = [pytest.mark.full, pytest.mark.timeout(900), needs.program("namespaces")]


@pytest.fixture
def hosts():
    """Three. Needs root; where CI is set, its absence is a failure."""
    try:
        with fleet(3) as members:
            yield members
    except (OSError, subprocess.CalledProcessError) as error:
        needs.namespaces(error)


def test_the_host_with_a_bit_error_is_named_and_the_others_train_together(hosts, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(A_BIT_ERROR)
    script = tmp_path / "node.sh"
    ill = f"export PYTHONPATH={tmp_path}${{PYTHONPATH:+:$PYTHONPATH}}"
    script.write_text(f'node=$1; shift\n[ $node != {hosts[1].name} ] || {ill}\nexec "$@"\n')
    by = shlex.join(["sh", str(script), "{node}", *INSIDE])
    answer = train_bench(
        "accept",
        *("benchmark=resnet_mini", "device=cpu", "launcher.threads_per_rank=1", f"output={tmp_path / 'out'}"),
        *("--by", by, "--at-once", "1", "--repeats", "1", "--blocks", "2", "--noise", "50"),
        *("--interface", "eth0", "--json", *map(str, hosts)),
    )
    assert answer.returncode == 1, answer.stderr
    told = json.loads(answer.stdout)
    (finding,) = told["findings"]
    assert (finding["nodes"], finding["kind"]) == ([hosts[1].name], "wrong")
    (pair,) = told["together"]
    assert pair["nodes"] == [hosts[0].name, hosts[2].name]
    assert pair["trained"]["evaluations"]
    assert not any(processes(host.name) for host in hosts)
