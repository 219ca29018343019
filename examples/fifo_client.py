"""A host in Python: a session over two FIFOs (docs/protocol.md). Linux, Python 3.10 or newer, standard library."""

import json
import os
import select
import subprocess
import sys
import tempfile
from contextlib import closing, suppress


class Session:
    def __init__(self, worker, directory):
        self.control = tempfile.TemporaryDirectory(prefix="rlm-", ignore_cleanup_errors=True)
        with open(f"{self.control.name}/rlm_context.json", "w") as context:
            json.dump({"fs_root": os.path.abspath(directory)}, context)
        command = [worker, "--control-dir", self.control.name, "--ready-fd", "1"]
        environment = os.environ | {"RLM_HOST_PID": str(os.getpid())}  # the worker ends when this process does
        self.worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        self.seq, self.death = 0, open(os.pidfd_open(self.worker.pid), "rb", 0)
        if self.worker.stdout.readline() != b"ready\n":
            self.give_up("did not start")

    def ask(self, timeout=30, **request):
        """The response to one request: code=…, or op="set" and variables=…, or op="reset", or op="info"."""
        self.seq, response, events = self.seq + 1, bytearray(), select.poll()
        with open(os.open(f"{self.control.name}/rlm_res", os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as responses:
            events.register(responses, select.POLLIN)
            events.register(self.death, select.POLLIN)
            with suppress(OSError):  # nobody reads: the worker is dead, or will be in a moment
                commands = os.open(f"{self.control.name}/rlm_cmd", os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(commands, True)
                with open(commands, "wb") as commands:
                    commands.write(json.dumps({"seq": self.seq, "timeout": timeout} | request).encode())
            while ready := dict(events.poll((timeout + 40) * 1000)):  # a last resort: the worker keeps the limit
                if chunk := responses.fileno() in ready and responses.read(1 << 16):
                    response += chunk
                    continue
                with suppress(ValueError):  # the worker died: empty, or cut off
                    if (answer := json.loads(response))["seq"] == self.seq:  # not a late one
                        return answer
                if self.death.fileno() in ready:
                    break
                events.unregister(responses)
        self.give_up("gave no response")

    def give_up(self, what):
        self.worker.kill()  # where it is not dead already
        raise SystemExit(f"the worker {what}: its exit status is {self.worker.wait()}")

    def close(self):
        with self.control, self.worker, self.death:  # left in the other order
            self.worker.terminate()  # it ends all that the session started, whatever it is doing


if __name__ == "__main__":
    with closing(Session(*sys.argv[1:3])) as session:
        for code in sys.argv[3:]:
            response = session.ask(code=code, timeout=5)
            print(response["stdout"] + response["stderr"] + (response["result"] or ""), end="")
            print(f"[{response['outcome']}, state {response['state']}]")
