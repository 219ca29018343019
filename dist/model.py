"""A model's server for dist/test: it lets the code of its only reply be run, on the port that it prints."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tool = request["tools"][0]["function"]["name"]
        code = (
            "RLM_CONTENT=$(<a) RLM_READY=1" if "bash" in tool else "answer.update(content=open('a').read(), ready=True)"
        )
        call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": json.dumps({"code": code})}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        self.answer({"id": "r", "object": "chat.completion", "choices": [choice], "usage": usage})

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "model", "object": "model"}]})

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
