"""An ordinary host: it only knows the two FIFOs, and nothing else of the project.

Usage: ordinary_host.py WORKER DIRECTORY

Starts the worker on DIRECTORY, runs calls that build on each other, then a thousand more without a pause, and checks
every response. Like other hosts, it opens the command FIFO without waiting, takes the lack of a reader for a dead
worker, and reads each response to end of file in 50 ms steps.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time

STEP = 0.05
LIMIT = 60.0


class Host:
    def __init__(self, worker, root, control):
        self.commands = os.path.join(control, "rlm_cmd")
        self.responses = os.path.join(control, "rlm_res")
        self.seq = 0
        with open(os.path.join(control, "rlm_context.json"), "w") as context:
            json.dump({"fs_root": root}, context)
        with open(os.path.join(control, "rlm_worker.log"), "a") as log:
            command = [worker, "--control-dir", control]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        while not os.path.exists(os.path.join(control, "rlm_ready")):
            assert self.process.poll() is None and time.monotonic() < deadline, "the worker is not ready"
            time.sleep(STEP)

    def call(self, code):
        self.seq += 1
        fifo = os.open(self.commands, os.O_WRONLY | os.O_NONBLOCK)  # ENXIO: no reader, a dead worker
        try:
            request = json.dumps({"code": code, "seq": self.seq}).encode()
            assert os.write(fifo, request) == len(request)
        finally:
            os.close(fifo)
        response = json.loads(self.read())
        assert response["seq"] == self.seq, f"out of step: {response}"
        assert response["status"] == "ok", response
        return response

    def read(self):
        fifo = os.open(self.responses, os.O_RDONLY | os.O_NONBLOCK)
        chunks = []
        deadline = time.monotonic() + LIMIT
        try:
            while time.monotonic() < deadline:
                if not select.select([fifo], [], [], STEP)[0]:
                    continue
                chunk = os.read(fifo, 4096)
                if chunk:
                    chunks.append(chunk)
                elif chunks:
                    return b"".join(chunks)
            raise AssertionError("no response")
        finally:
            os.close(fifo)


def main():
    worker, root = sys.argv[1:]
    files = sorted(name for name in os.listdir(root) if name.endswith(".rs"))
    with tempfile.TemporaryDirectory() as control:
        host = Host(worker, os.path.abspath(root), control)
        assert host.call("files=(*.rs); count() { grep -c '' \"$1\"; }")["stdout"] == ""
        assert host.call('echo "${#files[@]}"')["stdout"] == f"{len(files)}\n"
        lines = host.call('for file in "${files[@]}"; do count "$file"; done | awk \'{n += $1} END {print n}\'')
        expected = 0
        for name in files:
            with open(os.path.join(root, name), "rb") as source:
                expected += source.read().count(b"\n")
        assert lines["stdout"] == f"{expected}\n", lines
        assert host.call("cat <<EOF\n${files[0]}\nEOF")["stdout"] == f"{files[0]}\n"
        assert host.call("sleep 0.01 & job=$!")["stdout"].startswith("[1] ")
        assert "Done" in host.call("wait $job")["stdout"]
        answer = host.call(f"RLM_CONTENT='{expected} lines'; RLM_READY=1")["answer"]
        assert answer == {"ready": True, "content": f"{expected} lines"}, answer
        for number in range(1000):
            stdout = host.call(f"echo {number}")["stdout"]
            assert stdout == f"{number}\n", (number, stdout)
        os.killpg(host.process.pid, 15)
        assert host.process.wait(LIMIT) == 143
        assert not os.path.exists(os.path.join(control, "rlm_ready"))
    print("1000 calls, none lost, none out of step")


if __name__ == "__main__":
    main()
