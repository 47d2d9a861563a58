"""`FOLDER RANK`: SIGKILL to a rank of the first run, as soon as the run has evaluated once."""

import json
import os
import signal
import sys
import time
from pathlib import Path

folder, rank = Path(sys.argv[1]), sys.argv[2]
log, state = folder / "result_0.txt.part", folder / "ranks" / "run_0" / f"rank_{rank}.json"
deadline = time.monotonic() + 300
while not (log.exists() and "eval_accuracy" in log.read_text()) and time.monotonic() < deadline:
    time.sleep(0.05)
os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)
