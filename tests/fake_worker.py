"""A small worker for tests of `rlm conformance`: it keeps what a few cases ask for, but for one defect.

Arguments: the defect's name, or `none`; `--control-dir DIR`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

DEFECT = sys.argv[1]
CONTROL = sys.argv[sys.argv.index("--control-dir") + 1]
MARK = os.environ["RLM_CONFORMANCE_MARK"].encode()

calls = 0


def path(name):
    return os.path.join(CONTROL, name)


def respond(seq, outcome="ok", **more):
    response = {
        "status": "ok" if outcome == "ok" else "error",
        "stdout": "",
        "stderr": "",
        "result": None,
        "execution_count": calls,
        "seq": seq + 1 if DEFECT == "wrong-seq" else seq,
        "answer": {"ready": False, "content": ""},
        "outcome": outcome,
        "state": "kept",
        "execution_time": 0.0,
        "exit_code": None,
        "exception": None,
        "truncated": None,
        "hint": None,
        "protocol": 1,
        **more,
    }
    if DEFECT == "missing-field":
        del response["truncated"]
    text = json.dumps(response) + "\n" * (DEFECT != "no-newline")
    with open(path("rlm_res"), "w") as fifo:
        fifo.write(text * 2 if DEFECT == "two-documents" else text)


def serve(request):
    global calls
    if DEFECT == "hangs":
        signal.pause()
    seq = request.get("seq", -1)
    if request.get("shutdown") is True:
        sys.exit(0)
    op = request.get("op", "execute")
    if op == "execute" and not isinstance(request.get("code"), str):
        return respond(seq, "error", hint="no field `code`")
    if op == "execute":
        calls += 1
        done = subprocess.run(["bash", "-c", request["code"]], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if "sleep" in request["code"]:
            # The environment of a process cannot be read while it becomes `sleep`.
            while not any(is_sleep(pid) for pid in marked()):
                pass
        return respond(seq, stdout=done.stdout.decode(), exit_code=done.returncode)
    return respond(seq, state="reset" if op == "reset" else "kept")


def requests(fifo):
    """Each document in the command FIFO; None for anything else."""
    text = b""
    while True:
        text += os.read(fifo, 1 << 16)
        try:
            yield json.loads(text)
        except ValueError:
            if text.startswith(b"{"):
                continue
            yield None
        text = b""


def marked():
    """The processes of the session."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
            if b"RLM_CONFORMANCE_MARK=" + MARK in environ.read().split(b"\0") and int(pid) != os.getpid():
                yield int(pid)


def is_sleep(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as name:
        return name.read() == "sleep\n"


def end_everything():
    # A process that was killed may still be there.
    while DEFECT != "leaves-a-process" and (left := list(marked())):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    if DEFECT != "keeps-the-ready-flag":
        os.remove(path("rlm_ready"))


def end_at_a_signal(numbers):
    """A handler would not run if the signal came just before the main thread waits for a reader."""
    number = signal.sigwait(numbers)
    end_everything()
    os._exit(0 if DEFECT == "wrong-status" else 128 + number)


def main():
    numbers = (signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    threading.Thread(target=end_at_a_signal, args=(numbers,), daemon=True).start()
    for name in ("rlm_cmd", "rlm_res"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path(name))
        os.mkfifo(path(name))
        os.chmod(path(name), 0o644 if DEFECT == "public-fifos" else 0o600)
    with open(path("rlm_context.json")) as context:
        os.chdir(json.load(context)["fs_root"])
    commands = os.open(path("rlm_cmd"), os.O_RDWR)
    with open(path("new"), "w") as flag:
        flag.write("ready\n")
    os.rename(path("new"), path("rlm_ready"))
    try:
        for request in requests(commands):
            if request is None:
                respond(-1, "error", hint="not JSON")
            else:
                serve(request)
    finally:
        end_everything()


main()
