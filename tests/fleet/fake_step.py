"""A step of srun on nodes of this machine: `fake_step.py a,b,c PROGRAM ...` starts the program once for each name,
copies its input to all of them, and mixes what they print, line by line."""

import os
import subprocess
import sys
import threading

NAMES = sys.argv[1].split(",")


def main():
    nodes = [
        subprocess.Popen(
            [*sys.argv[2:]],
            env=os.environ | {"SLURMD_NODENAME": name, "SLURM_NODEID": str(number)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number, name in enumerate(NAMES)
    ]
    readers = [threading.Thread(target=pass_on, args=(node,)) for node in nodes]
    for reader in readers:
        reader.start()
    for line in sys.stdin.buffer:
        for node in nodes:
            try:
                node.stdin.write(line)
                node.stdin.flush()
            except OSError:
                pass
    for node in nodes:
        node.stdin.close()
    for reader in readers:
        reader.join()


def pass_on(node):
    for line in node.stdout:
        assert len(line) < 1024, "srun would break it"
        os.write(1, line)


main()
