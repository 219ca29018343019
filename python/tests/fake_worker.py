"""A worker that breaks the protocol in the way that its environment names."""

import json
import os
import sys
import time

control = sys.argv[sys.argv.index("--control-dir") + 1]
fault = os.environ["FAULT"]
os.mkfifo(f"{control}/rlm_cmd")
os.mkfifo(f"{control}/rlm_res")
commands = os.open(f"{control}/rlm_cmd", os.O_RDWR)
results = os.open(f"{control}/rlm_res", os.O_RDWR)
print("ready", flush=True)
while True:
    request = json.loads(os.read(commands, 1 << 20))
    if "shutdown" in request:
        sys.exit(0)
    document = {
        "status": "ok", "stdout": "", "stderr": "", "result": None, "execution_count": 1, "seq": request["seq"],
        "answer": {"ready": False, "content": ""}, "outcome": "ok", "state": "kept", "execution_time": 0.1,
        "exit_code": 0, "exception": None, "truncated": None, "hint": None, "protocol": 1,
    }  # fmt: skip
    text = json.dumps(document)
    if fault == "half":
        os.write(results, text[:50].encode())
        os.kill(os.getpid(), 9)
    elif fault == "mute":
        time.sleep(1000)
    elif fault == "late":
        stale = json.dumps({**document, "seq": request["seq"] - 1, "stdout": "stale"})
        os.write(results, f"{stale}\n{text}\n".encode())
    elif fault == "pieces":
        for character in text + "\n":
            os.write(results, character.encode())
            time.sleep(0.001)
    else:
        os.write(results, fault.encode() + b"\n")
