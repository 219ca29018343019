"""Stand-ins of model servers: each answers 400 where the real one does, and the SDKs judge both sides."""

import copy
import http.server
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import judge
from wires import (
    MARK,
    WIRES,
    Cache,
    Counts,
    Json,
    Refusal,
    Turn,
    blocks_of,
    openai_error,
    raw,
    refused,
    said,
    system_of,
)

KEY = "sk-key-of-the-tests"
BOUND = 2000
SUB_MODEL = "sub"
MOST_REQUESTS = 40
# platform.claude.com/docs/en/api/versioning: the second one has no sampling parameters any more.
VERSIONS, NO_MORE = ("2023-06-01", "2026-10-21"), {"temperature", "top_p", "top_k"}
SUMMARY_IS_ASKED = "turns of this conversation are about to be removed"
Events = list[tuple[str | None, Json]]
Rule = Callable[["Request"], Refusal | None]


@dataclass
class Request:
    text: str
    headers: dict[str, str]
    body: Json = field(init=False)

    def __post_init__(self) -> None:
        self.body = json.loads(self.text)


@dataclass(frozen=True)
class Fault:
    """An answer in place of a reply. `after` so many events, as one of them, where the reply is streamed."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)
    after: int | None = None


@dataclass(frozen=True)
class Habit:
    """The demands of a server, and the form of its replies. `source` says where that is known from."""

    name: str
    source: str
    api: str = "chat"
    server: str | None = None
    """The server's row in the program's table."""
    model: str = "root"
    rules: tuple[Rule, ...] = ()
    """The requests that it refuses."""
    learns: int = 0
    """Most of its refusals that the program may need: one for each rule that no row tells."""
    allowed: tuple[str, ...] = ()
    """Beginnings of paths that the SDKs do not know: this server documents them, or is odd."""
    dress: Callable[[int, Json], None] | None = None
    """Adds fields that this server has in the message of a turn."""
    odd: Callable[[int, Json], Any] | None = None
    """Changes a reply after the SDK has seen it."""
    odd_events: Callable[[Events], Events] | None = None
    sse: Callable[[str | None, str], bytes] | None = None
    """The bytes of an event."""
    piece: int | None = None
    """Bytes of a reply that are sent at once."""
    back: Callable[[Json], Json | None] | None = None
    """The reply as it must come back, where that is not the same; None where it must not come back."""
    seen: Callable[[Json], Json] = lambda unit: unit
    """The form in which replies are compared."""
    faults: dict[int, Fault] = field(default_factory=dict)
    """Answers before the reply of a turn."""
    turns: Callable[[list[Turn]], list[Turn]] = lambda turns: turns
    told: dict[int, str] = field(default_factory=dict)
    """Words that a request must contain."""
    settings: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ("streamed", "whole")
    languages: tuple[str, ...] = ("bash",)
    bounds: tuple[str, ...] = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    """Fields one of which bounds a completion."""
    has_pairs: bool = True
    """True if each call's id has one output."""

    def __str__(self) -> str:
        return self.name


def default_sse(event: str | None, text: str) -> bytes:
    return (f"event: {event}\n" if event else "").encode() + f"data: {text}\n\n".encode()


def nothing_empty(value: Any) -> Any:
    """Leaves out values that a stream cannot tell: nulls, empty lists, an empty text beside nothing."""
    if isinstance(value, list):
        return [nothing_empty(item) for item in value]
    if isinstance(value, dict):
        return {name: nothing_empty(item) for name, item in value.items() if item not in (None, [], "")}
    return value


def with_ids_of(expected: Json, given: Json) -> Json:
    """A call without an id of its own may have got one."""
    seen: set[str] = set()
    for call, other in zip(expected.get("tool_calls") or [], given.get("tool_calls") or [], strict=False):
        if not call.get("id") or call["id"] in seen:
            own = {name: value for name, value in call.items() if name != "id"}
            call.clear()
            call.update({name: own.pop(name, other[name]) for name in other if name in own or name == "id"} | own)
        seen.add(call.get("id", ""))
    return expected


class Server:
    """A conversation with one model, and any with its sub-LLM. What is wrong is in `wrong`, for the test to look at."""

    def __init__(self, habit: Habit, turns: list[Turn], tool: str, streams: bool, repeats: bool = False) -> None:
        self.habit, self.turns, self.tool, self.streams, self.repeats = habit, turns, tool, streams, repeats
        self.wire = WIRES[habit.api]
        self.wrong: list[str] = []
        self.refusals: list[str] = []
        self.sent: list[Json] = []
        """The replies that must come back: all but summaries."""
        self.totals: Counter[str] = Counter()
        self.cost = 0.0
        self.replies = self.summaries = self.requests = 0
        self.sub_requests: list[Request] = []
        self.others: dict[str, Server] = {}
        """Further conversations, by the question that they begin with."""
        self.last: tuple[str, str] | None = None
        self.faults = dict(habit.faults)
        self.cache, self.lock = Cache(), threading.Lock()

    def __enter__(self) -> "Server":
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version, disable_nagle_algorithm, timeout = "HTTP/1.1", True, 60

            def do_GET(self) -> None:
                models = {"object": "list", "data": [{"id": server.habit.model, "object": "model", "created": 1}]}
                self.give(200, {}, json.dumps(models).encode())

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["content-length"])).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                with server.lock:
                    status, more, body = server.answer(self.path, Request(text, headers))
                self.give(status, more, body)

            def give(self, status: int, more: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {"content-type": "application/json", **more}.items():
                    self.send_header(name, value)
                size = server.habit.piece
                self.send_header(*(("transfer-encoding", "chunked") if size else ("content-length", str(len(body)))))
                self.end_headers()
                for at in range(0, len(body), size or len(body) or 1):
                    part = body[at : at + (size or len(body))]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if size else part)
                self.wfile.write(b"0\r\n\r\n" if size else b"")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that goes away is not an error; others are in `wrong`.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def check(self) -> None:
        assert self.wrong == [], "\n".join(self.wrong[:3])
        assert len(self.refusals) <= self.habit.learns, self.refusals
        for other in self.others.values():
            other.check()

    def answer(self, path: str, request: Request) -> tuple[int, dict[str, str], bytes]:
        for question, other in self.others.items():
            items = self.wire.items(request.body)
            if question in next((json.dumps(item) for item in items if item.get("role") == "user"), ""):
                return other.answer(path, request)
        self.requests += 1
        if path != self.wire.path or self.requests > MOST_REQUESTS:
            self.wrong.append(f"request {self.requests} goes to {path}")
            return 404, {}, b"{}"
        try:
            self.check_headers(request)
            found = judge.request(self.habit.api, request.body, self.habit.allowed)
            for rule in (self.own_rule, *self.habit.rules):
                if refusal := rule(request):
                    status, body = refusal
                    self.refusals.append(json.dumps(body))
                    return status, {}, body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.wrong += [f"request {self.requests}{line}" for line in found]
            if request.body["model"] == SUB_MODEL:
                self.sub_requests.append(request)
                return self.reply(request, self.wire.message(0, Turn(f"re: {len(self.sub_requests)}"), ""), Turn())
            return self.converse(request)
        except Exception as error:
            self.wrong.append(f"request {self.requests}: {error!r}")
            raise

    def own_rule(self, request: Request) -> Refusal | None:
        """The wire's own rules: its key, and the forms that it refuses."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.habit.api == "anthropic":
            # The documentation names x-api-key, the SDK since 2.0 sends the other.
            key = request.headers.get("x-api-key", key)
            version = request.headers.get("anthropic-version")
            if version not in VERSIONS:
                return refused("anthropic-version: header is required")
            if version == VERSIONS[1] and (name := next(iter(NO_MORE & set(request.body)), None)):
                return refused(f"{name}: Extra inputs are not permitted")
        if key != KEY:
            return 401, openai_error("Incorrect API key provided.", code="invalid_api_key")
        return self.wire.refusal(request.body) if self.habit.has_pairs else None

    def check_headers(self, request: Request) -> None:
        """Servers and proxies want UUIDs; each request has its own, and keeps it when it is sent again."""
        for name in ("x-request-id", "idempotency-key"):
            try:
                uuid.UUID(request.headers.get(name, ""))
            except ValueError:
                self.wrong.append(f"request {self.requests}: {name} is {request.headers.get(name)!r}")

    def converse(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        number = self.replies + self.summaries + 1
        is_summary = SUMMARY_IS_ASKED in request.text
        self.check_beginning(request, is_summary)
        self.check_replies(request, is_summary)
        if fault := self.faults.pop(number, None):
            return self.fail(request, fault, number)
        if self.habit.told.get(number, "") not in request.text:
            self.wrong.append(f"request {number} does not say {self.habit.told[number]!r}: {request.text[-600:]}")
        bounds = self.bounds(request)
        given = [name for name in self.habit.bounds if bounds.get(name) == BOUND]
        if len(given) != 1:
            self.wrong.append(f"request {number} is bounded by {given}, not by one of {self.habit.bounds}")
        if is_summary:
            self.summaries += 1
            turn = Turn("A summary: n counts.", "I recall.")
        else:
            turn = self.turns[min(self.replies, len(self.turns) - 1)]
            if self.replies >= len(self.turns) and not self.repeats:
                self.wrong.append(f"request {number} comes after the end of the script")
            self.replies += 1
        message = self.message(number, turn)
        return self.reply(request, message, turn, keeps=not is_summary)

    def bounds(self, request: Request) -> Json:
        """The object that has the bound of a completion."""
        return request.body

    def check_beginning(self, request: Request, is_summary: bool) -> None:
        """The request begins with the one before, byte for byte: that is what caches and trainers need."""
        head, items = (json.dumps(part) for part in (self.wire.head(request.body), self.wire.items(request.body)))
        text = raw(request.text, self.wire.raw) if self.wire.raw else items
        old_head, old = self.last or (head, "[]")
        if head != old_head:
            self.wrong.append(
                f"request {self.requests} has other tools or another system prompt: {head} not {old_head}"
            )
        if not text.startswith(old[:-1]) and not is_summary:
            self.wrong.append(f"request {self.requests} does not begin with the one before: {text} after {old}")
        self.last = (head, "[]" if is_summary else text)

    def check_replies(self, request: Request, is_summary: bool) -> None:
        """Checks that a request has all that the model said; one for a summary the oldest, one after it the newest."""
        given = self.wire.given(request.body)
        first = len(self.sent) - len(given) if self.summaries and not is_summary else 0
        expected = copy.deepcopy(self.sent[first : first + len(given)] if self.summaries or is_summary else self.sent)
        back = self.habit.back or (lambda unit: unit)
        must = [unit for unit in map(back, expected) if unit is not None]
        self.compare(must, given, f"request {self.requests}")

    def compare(self, expected: list[Json], given: list[Json], what: str) -> None:
        if len(expected) != len(given):
            self.wrong.append(f"{what} has {len(given)} of the model's own {len(expected)}: {given}")
        for unit, other in zip(expected, given, strict=False):
            unit, other = self.habit.seen(with_ids_of(unit, other)), self.habit.seen(copy.deepcopy(other))
            if self.streams and self.habit.api == "chat":
                same = nothing_empty(unit) == nothing_empty(other)
            else:
                same = json.dumps(unit) == json.dumps(other)
            if not same:
                self.wrong.append(f"{what} has\n    {json.dumps(other)}\nin place of\n    {json.dumps(unit)}")

    def message(self, number: int, turn: Turn) -> Json:
        message = self.wire.message(number, turn, self.tool)
        if turn.thought and self.habit.api == "chat":
            message[THOUGHT] = turn.thought
        if self.habit.dress:
            self.habit.dress(number, message)
        message.pop(THOUGHT, None)
        return message

    def counts(self, request: Request) -> Counts:
        if self.habit.api == "anthropic":
            return self.cache.counts(request.body)
        size = len(request.text) // 4
        return Counts(size, min(size, self.totals["last"]))

    def body(self, request: Request, message: Json, turn: Turn, counts: Counts) -> Json:
        body = self.wire.body(self.replies, request.body["model"], message, turn.end, counts)
        judge.sent(judge.REPLIES, self.habit.api, body, self.habit.allowed)
        if self.habit.odd:
            self.habit.odd(self.replies, body)
        return body

    def reply(
        self, request: Request, message: Json, turn: Turn, keeps: bool = False
    ) -> tuple[int, dict[str, str], bytes]:
        counts = self.counts(request)
        body = self.body(request, message, turn, counts)
        usage = body.get("usage") or {}
        self.cost += usage.get("cost") or 0.0
        self.totals.update(prompt=counts.prompt, cached=counts.cached, written=counts.written)
        self.totals.update(completion=counts.completion, reasoning=counts.reasoning)
        self.totals["last"] = counts.prompt
        if self.habit.api == "anthropic" and keeps:
            self.check_cache(request, counts)
        if keeps:
            kept = body["choices"][0]["message"] if self.habit.api == "chat" else body
            self.sent += copy.deepcopy(self.wire.units(kept))
        if request.body.get("stream"):
            return 200, {"content-type": "text/event-stream"}, self.stream(self.events(body))
        return 200, {}, json.dumps(body).encode()

    def check_cache(self, request: Request, counts: Counts) -> None:
        """A request reads all that the one before has written; after a summary, the system prompt at least."""
        least = 1 if self.summaries else self.totals["to_read"]
        if self.replies > 1 and counts.cached < max(1, least):
            self.wrong.append(f"request {self.requests} reads {counts.cached} of {least} tokens in the cache")
        self.totals["to_read"] = self.cache.written_to
        user = [message for message in request.body["messages"] if message["role"] == "user"][-1]
        marked = [[*request.body.get("tools", []), *system_of(request.body)], [*blocks_of(user), request.body]]
        for blocks in marked:
            if not any(MARK in block for block in blocks):
                self.wrong.append(f"request {self.requests} marks nothing in {blocks}")

    def events(self, body: Json) -> Events:
        events = self.wire.events(body)
        for _, event in events:
            judge.sent(judge.EVENTS, self.habit.api, event, self.habit.allowed)
        return self.habit.odd_events(events) if self.habit.odd_events else events

    def stream(self, events: Events) -> bytes:
        write = self.habit.sse or default_sse
        text = b"".join(write(name, json.dumps(event, ensure_ascii=False)) for name, event in events)
        return text + (write(None, "[DONE]") if self.habit.api == "chat" else b"")

    def fail(self, request: Request, fault: Fault, number: int) -> tuple[int, dict[str, str], bytes]:
        if fault.after is None or not request.body.get("stream"):
            return fault.status, fault.headers, json.dumps(fault.body).encode()
        turn = self.turns[number - 1]
        events = self.wire.events(self.body(request, self.message(number, turn), turn, Counts(9)))
        events = [*events[: fault.after], ("error" if self.habit.api == "anthropic" else None, fault.body)]
        write = self.habit.sse or default_sse
        text = b"".join(write(name, json.dumps(event)) for name, event in events)
        return 200, {"content-type": "text/event-stream"}, text


THOUGHT = "the thought of this turn, for `dress` to put somewhere"


def no_field(name: str, refusal: Refusal) -> Rule:
    """Refuses requests with a field."""
    return lambda request: refusal if name in request.body else None


def no_message_field(name: str, words: str = "property '{name}' is unsupported", **other: Any) -> Rule:
    """Refuses a field in the model's own messages; `words` may name it and the message's place."""

    def rule(request: Request) -> Refusal | None:
        for at, message in enumerate(request.body["messages"]):
            if message["role"] == "assistant" and name in message:
                return said(words.format(name=name, at=at), **other)
        return None

    return rule
