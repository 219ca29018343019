"""A stand-in for an existing host's endpoint: it unpickles whatever it gets, as such hosts do.

It prints its port, and serves until its standard input ends.
"""

import base64
import json
import os
import pickle
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = "s3cret"

gate = threading.Event()


def tool_value(kind):
    return {
        "str": "text",
        "newline": "text\n",
        "dict": {"b": [1, 2.5, None], "a": "é", 3: True},
        "list": [1, "two", False],
        "tuple": (1, (2, "x")),
        "bytes": b"\x00\xffab",
        "set": {1},
        "none": None,
        "nan": float("nan"),
        "big": 2**100,
        "long": "x" * 10_000_000,
        "surrogate": "a\udcff",
    }[kind]


def give(kind):
    return tool_value(kind)


def echo(*args, **kwargs):
    return [list(args), kwargs]


def size(value):
    return len(value)


def fail(message):
    raise ValueError(message)


def hang():
    os.write(1, b"hang\n")  # in one piece, whatever other threads write
    gate.wait(60)
    return "late"


def open_gate():
    gate.set()


def noop():
    return None


def llm_batch(prompts):
    return [f"reply to {prompt}" for prompt in prompts]


TOOLS = {tool.__name__: tool for tool in (give, echo, size, fail, hang, open_gate, noop, llm_batch)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        status, reply = 200, {}
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {SECRET}":
            status, reply = 401, {"error": "Unauthorized"}
        else:
            try:
                reply = self.answer(json.loads(body))
            except LookupError as error:
                status, reply = 404, {"error": f"Tool {error} not found"}
            except Exception as error:
                status, reply = 500, {"error": str(error)}
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if self.path.endswith("/chunked"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(text), 7):
                piece = text[at : at + 7]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def answer(self, request):
        name = request["tool_name"]
        is_json = request.get("serialization", "pickle") == "json"
        read = (lambda value: value) if is_json else (lambda text: pickle.loads(base64.b64decode(text)))
        args, kwargs = read(request["args"]), read(request["kwargs"])
        assert isinstance(args, list if is_json else tuple), args
        assert isinstance(kwargs, dict), kwargs
        if name == "protocol":
            protocol, kind = args
            return {"result": base64.b64encode(pickle.dumps(tool_value(kind), protocol)).decode()}
        if name == "hostile":
            hostile = bytes.fromhex(args[0]) if args else b"cos\nsystem\n(S'touch owned'\ntR."
            return {"result": base64.b64encode(hostile).decode()}
        if name == "fail_softly":
            return {"error": args[0]}
        value = TOOLS[name](*args, **kwargs)
        reply = {"print_lines": ["a line"]} if kwargs.get("lines") else {}
        if name == "llm_batch":
            reply["print_lines"] = [f"llm_batch: {len(value)} call(s)"]
        if not is_json:
            return reply | {"result": base64.b64encode(pickle.dumps(value)).decode()}
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            return reply | {"result_repr": repr(value)}
        return reply | {"result": value}

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # With a shorter queue the kernel drops connections, which are retried only after seconds.
    request_queue_size = 1024


def serve():
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
