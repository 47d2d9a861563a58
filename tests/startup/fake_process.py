"""A process that answers as `startup/process.py` does, without a model: what to do is in its description."""

import json
import os
import sys
import time
from pathlib import Path


def reply(request):
    behaviour = described.get("behaviour", "right")
    if behaviour == "dies" or behaviour == f"dies at {request['load']}":
        os.write(2, b"out of luck\n")
        os.kill(os.getpid(), described.get("signal", 9))
    if behaviour == "refuses":
        return {"error": "The weights are wrong."}
    loaded = request["load"] in ("map", "copy") or (request["load"] is None and state["loaded"])
    state["loaded"] = loaded
    wrong = behaviour == "wrong" and request["load"] == "map"
    answer = "right" if loaded and not wrong else "other"
    answer = "right" if behaviour == "always right" else answer
    times = {} if state["asked"] else {"imported": time.monotonic_ns(), "built": time.monotonic_ns()}
    state["asked"] = True
    times["loaded"] = time.monotonic_ns()
    return {"answer": answer, "times": times, "sizes": {"mapped": 1, "copied": 2}, "pid": os.getpid()}


described = json.loads(Path(sys.argv[1]).read_text())
state = {"loaded": False, "asked": False}
request = described["request"]
while request:
    os.write(1, (json.dumps(reply(request)) + "\n").encode())
    line = sys.stdin.readline()
    request = json.loads(line) if line else None
