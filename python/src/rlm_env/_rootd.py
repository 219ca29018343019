"""`rlm rootd`: the endpoint that asks models for a session, within a budget. docs/rootd.md describes it.

Everything here blocks, for some milliseconds.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from typing import Any

from ._errors import EndedError, StartError
from ._models import Models, Spending
from ._programs import find_program

_ROLLOUT = "session"
_LIMIT = 30.0
_LOG_TAIL_BYTES = 2048


class Rootd:
    """The endpoint of one session. It ends with this program, however that ends."""

    SECRET = "RLM_CALLBACK_SECRET"
    """The variable with the secret of the functions that it calls."""

    def __init__(self, models: Models, directory: str) -> None:
        self.variables: dict[str, str] = {}
        """The worker's variables that declare its tools."""
        self._models = models
        self._directory = directory
        self._token = secrets.token_hex(16)
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._spent = Spending()
        self._lock = threading.Lock()
        """Held by what starts or ends the process."""

    def start(self, tools: list[dict[str, Any]], function_url: str, secret: str) -> None:
        """Starts it with these tools. A model that is a function is at the URL. Raises StartError."""
        with self._lock:
            if not self._is_closed:
                self._start(tools, function_url, secret)

    def _start(self, tools: list[dict[str, Any]], function_url: str, secret: str) -> None:
        models = self._models
        is_function = not isinstance(models.model, str)
        base_url = function_url if is_function else models.base_url or os.environ.get("RLM_BASE_URL")
        if not base_url:
            raise StartError(f"the address of the model {models.name} is not known: give base_url, or set RLM_BASE_URL")
        key = secret if is_function else models.api_key
        if key is None:
            key = os.environ.get("RLM_API_KEY") or os.environ.get("OPENAI_API_KEY")
        arguments = ["--base-url", base_url, "--model", models.name, "--admin-token-env", "RLM_ADMIN_TOKEN"]
        environment = {"RUST_LOG": "warn", **os.environ, self.SECRET: secret}
        environment |= {"RLM_ADMIN_TOKEN": self._token, "RLM_HOST_PID": str(os.getpid())}
        if key:
            environment["RLM_API_KEY"] = key
            arguments += ["--api-key-env", "RLM_API_KEY"]
        if models.prices is not None:
            arguments += ["--prices", os.fspath(models.prices)]
        try:
            program = find_program("rlm")
            file = os.path.join(self._directory, "tools.json")
            with open(file, "w", encoding="utf-8") as output:
                json.dump({"tool": tools}, output)
            with open(os.path.join(self._directory, "rlm_rootd.log"), "wb") as log:
                process = self._process = subprocess.Popen(
                    [program, "rootd", "--tools", file, *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C at our terminal is for us
                )
        except OSError as error:
            raise StartError(f"cannot start rlm rootd: {error}") from error
        assert process.stdout is not None
        with process.stdout as output:
            line = output.readline()
        if not line:
            raise StartError(f"rlm rootd ended before it was ready: {self._log_tail()}")
        os.unlink(file)
        self._url = json.loads(line)["url"]
        registered = self._request("PUT", self._registration())
        self.variables = {
            "RLM_ROOT_TOOL_URL": registered["tools_url"],
            "RLM_ROOT_TOOL_NAMES": json.dumps([tool["name"] for tool in registered["tools"]]),
            "RLM_ROOT_TOOL_SERIALIZATION": "pickle",
            "RLM_INTERCEPTION_SECRET": registered["secret"],
            "RLM_SUB_LLM_TIMEOUT": repr(float(models.timeout)),
        }

    def _registration(self) -> dict[str, Any]:
        models = self._models
        budget = {field.name: getattr(models.budget, field.name) for field in fields(models.budget)}
        return {
            "budget": {name: value for name, value in budget.items() if value is not None},
            "parallelism": models.parallelism,
            "tool_time_limit": models.timeout,
            "boxed": models.boxed,
            "system_prompt": models.system_prompt,
            "sampling": dict(models.sampling),
        }

    def spent(self) -> Spending:
        """What was spent so far; after its end, in all."""
        with self._lock:
            if self._process is not None:
                spent = self._request("GET")["spent"]
                self._spent = Spending(**spent["used"], usage_estimated=spent["usage_estimated"])
            return self._spent

    def close(self) -> None:
        """Ends it, with the requests that it has sent. Safe to repeat."""
        with suppress(EndedError, StartError):
            if self.variables:
                self.spent()
        self.kill()

    def kill(self) -> None:
        """The same, and what was spent since the last question is not known."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()

    def _request(self, method: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        # Only sessions with models need it.
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection(self._url.removeprefix("http://"), timeout=_LIMIT)
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request(method, f"/rollout/{_ROLLOUT}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            reply: dict[str, Any] = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise EndedError(f"rlm rootd does not answer ({error}): {self._log_tail()}") from error
        finally:
            connection.close()
        if "error" in reply:
            raise StartError(f"rlm rootd refuses the models of the session: {reply['error']}")
        return reply

    def _log_tail(self) -> str:
        with suppress(OSError), open(os.path.join(self._directory, "rlm_rootd.log"), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip().removeprefix("rlm-rootd: ")
        return "it said nothing"
