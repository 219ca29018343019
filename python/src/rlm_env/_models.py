"""Models that code in a session asks: servers of OpenAI's form, and functions of this program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sys import float_info
from typing import Any

from ._config import check_count, check_seconds

ChatModel = Callable[..., Any]
"""A function `(messages, tools, **sampling)`, async or plain, that is asked for the next message of a conversation.

`messages` and `tools` are in OpenAI's form; `tools` is empty where none may be called. It returns the message's text,
the message (`{"role": "assistant", "content": …, "tool_calls": […]}`), or a whole chat completion with `choices` and
`usage`, as a dict or an object of the openai package. Without `usage`, tokens are estimated. An exception is the error
of the request, which is not sent again."""


@dataclass(frozen=True)
class Budget:
    """The most that a session may spend on models. None: no limit."""

    calls: int | None = None
    """Requests."""
    tokens: int | None = None
    """Tokens of prompts and completions."""
    completion_tokens: int | None = None
    cost_usd: float | None = None
    """USD. Needs `prices` of the model."""

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "completion_tokens"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{name} of a budget must be an int from 0 or None, not {value!r}")
        cost = self.cost_usd
        is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        if cost is not None and not (is_number and 0 <= cost <= float_info.max):
            raise ValueError(f"cost_usd of a budget must be a finite number from 0 or None, not {cost!r}")


@dataclass(frozen=True)
class Models:
    """The models of a session: its code has `llm_batch`, `llm_query` and `budget`.

    Models("small-model", base_url="https://host/v1", budget=Budget(cost_usd=0.5), prices="prices.toml")
    Models(ask)  # a function of this program
    """

    model: str | ChatModel
    """The name of a model at `base_url`, or a function."""
    base_url: str | None = field(default=None, kw_only=True)
    """Address of the server, up to and with its version. None: `RLM_BASE_URL`."""
    api: str | None = field(default=None, kw_only=True)
    """The server's interface: "chat", "responses" or "anthropic". None: that of a known address, else "chat"."""
    server: str | None = field(default=None, kw_only=True)
    """A row of the table of servers: docs/models.md. None: known by its address."""
    api_key: str | None = field(default=None, kw_only=True, repr=False)
    """The server's key. None: `RLM_API_KEY`, else `OPENAI_API_KEY`, else no key."""
    budget: Budget = field(default=Budget(), kw_only=True)
    prices: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    """A file of prices: docs/rootd.md."""
    parallelism: int = field(default=5, kw_only=True)
    """Requests that run at once."""
    timeout: float = field(default=300.0, kw_only=True)
    """Time limit of a call from the session in seconds: of a whole batch of prompts."""
    system_prompt: str | None = field(default=None, kw_only=True)
    """A text that is sent before each prompt."""
    boxed: bool = field(default=False, kw_only=True)
    """Replies are reduced to what is in their last `\\boxed{…}`."""
    sampling: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Fields of each request, such as `temperature`."""

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            if not self.model:
                raise ValueError("the name of the model is empty")
        elif not callable(self.model):
            raise TypeError(f"model must be the name of a model or a function, not {self.model!r}")
        elif any(value is not None for value in (self.base_url, self.api, self.server, self.api_key)):
            raise ValueError("a function as the model has no base_url, no api, no server and no api_key")
        if self.api not in (None, "chat", "responses", "anthropic"):
            raise ValueError(f'api must be "chat", "responses" or "anthropic", not {self.api!r}')
        if not isinstance(self.budget, Budget):
            raise TypeError(f"budget must be a Budget, not {self.budget!r}")
        check_count("parallelism", self.parallelism)
        check_seconds("timeout", self.timeout)
        try:
            json.dumps(dict(self.sampling), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"sampling must be a dict that JSON can hold: {error}") from None

    @property
    def name(self) -> str:
        """The model's name; for a function, that of the function."""
        return self.model if isinstance(self.model, str) else name_of(self.model)


@dataclass(frozen=True)
class Spending:
    """The spending of a session on models."""

    calls: int = 0
    """Requests."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    tokens: int = 0
    """Tokens of prompts and completions."""
    cost_usd: float | None = 0.0
    """USD; None if the price of the model is unknown."""
    usage_estimated: bool = False
    """A part of the tokens is estimated, since the server reported none."""
    cached_tokens: int = 0
    """Tokens of prompts that were read from the server's cache."""


def models_of(given: Models | ChatModel | None) -> Models | None:
    """The models that a session was given. Raises TypeError for something else."""
    if given is None or isinstance(given, Models):
        return given
    if not callable(given):
        raise TypeError(f"models must be Models(…) or a function, not {given!r}")
    return Models(given)


def name_of(model: ChatModel) -> str:
    return str(getattr(model, "__name__", type(model).__name__))


def read_request(body: bytes) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Messages, tools and further fields of a request in OpenAI's form."""
    request = json.loads(body)
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise ValueError("a request must be an object with a list of messages")
    request.pop("model", None)
    return request.pop("messages"), request.pop("tools", None) or [], request


def completion(reply: object) -> Mapping[str, Any]:
    """The value that a function returned, as a chat completion. Raises TypeError if it cannot be one."""
    if isinstance(reply, str):
        return _of_message({"content": reply})
    dump = getattr(reply, "model_dump", None)
    if callable(dump):
        reply = dump(mode="json")
    if not isinstance(reply, Mapping):
        raise TypeError(f"the model returned {type(reply).__name__}: expected a str, a message, or a completion")
    whole = reply if "choices" in reply else _of_message(reply)
    try:
        json.dumps(whole, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the model returned what JSON cannot hold: {error}") from None
    return whole


def _of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}]}
