"""`rlm rootd`: the endpoint that asks models for a session, within a budget. docs/rootd.md describes it.

Everything here blocks, for some milliseconds.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ._errors import EndedError, StartError
from ._models import Models, Spending
from ._programs import SECRET_VARIABLE, log_tail, start_rlm

_ROLLOUT = "session"
_LIMIT = 30.0
_LAST_LIMIT = 2.0


class Rootd:
    """The endpoint of one session. It ends with this program, however that ends."""

    def __init__(self, models: Models, directory: str) -> None:
        self.variables: dict[str, str] = {}
        """The worker's variables that declare its tools."""
        self._models = models
        self._directory = directory
        self._log = os.path.join(directory, "rlm_rootd.log")
        self._token = secrets.token_hex(16)
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._spent = Spending()
        self._fault: EndedError | None = None
        """Why the spending at the end is not known."""

    def start(self, tools: list[dict[str, Any]], function_url: str, secret: str, longest: float) -> None:
        """Starts the endpoint with these tools, whose limits are below `longest`. A function is at `function_url`.

        Raises StartError.
        """
        models = self._models
        limit = max(models.timeout, longest)
        is_function = not isinstance(models.model, str)
        base_url = function_url if is_function else models.base_url or os.environ.get("RLM_BASE_URL")
        if not base_url:
            raise StartError(f"the address of the model {models.name} is not known: give base_url, or set RLM_BASE_URL")
        key = secret if is_function else models.api_key
        if key is None:
            is_anthropic = models.api == "anthropic" or "//api.anthropic.com/" in f"{base_url}/"
            other = "ANTHROPIC_API_KEY" if is_anthropic else "OPENAI_API_KEY"
            key = os.environ.get("RLM_API_KEY") or os.environ.get(other)
        arguments = [f"--base-url={base_url}", f"--model={models.name}", "--admin-token-env=RLM_ADMIN_TOKEN"]
        environment = {SECRET_VARIABLE: secret, "RLM_ADMIN_TOKEN": self._token}
        environment["RUST_LOG"] = os.environ.get("RUST_LOG", "warn")
        if key:
            environment["RLM_API_KEY"] = key
            arguments += ["--api-key-env", "RLM_API_KEY"]
        arguments += [f"--{name}={value}" for name, value in (("api", models.api), ("server", models.server)) if value]
        if models.prices is not None:
            arguments.append(f"--prices={os.fspath(models.prices)}")
        file = os.path.join(self._directory, "tools.json")
        try:
            with open(file, "w", encoding="utf-8") as output:
                json.dump({"tool": tools}, output)
        except OSError as error:
            raise StartError(f"cannot write to the control directory {self._directory}: {error}") from error
        process = self._process = start_rlm(["rootd", "--tools", file, *arguments], environment, self._log)
        if self._is_closed:
            # `kill` may have come before there was a process.
            self.kill()
        assert process.stdout is not None
        with process.stdout as ready:
            poll = select.poll()
            poll.register(ready, select.POLLIN)
            line = ready.readline() if poll.poll(_LIMIT * 1000) else b""
        if not line:
            self.kill()
            raise StartError(f"rlm rootd ended before it was ready: {self._log_tail()}")
        os.unlink(file)
        self._url = json.loads(line)["url"]
        registered = self._request("PUT", _LIMIT, self._registration(limit))
        self.variables = {
            "RLM_ROOT_TOOL_URL": registered["tools_url"],
            "RLM_ROOT_TOOL_NAMES": json.dumps([tool["name"] for tool in registered["tools"]]),
            "RLM_ROOT_TOOL_SERIALIZATION": "pickle",
            "RLM_INTERCEPTION_SECRET": registered["secret"],
            "RLM_SUB_LLM_TIMEOUT": repr(float(limit)),
        }

    def _registration(self, limit: float) -> dict[str, Any]:
        models = self._models
        return {
            "budget": {name: value for name, value in asdict(models.budget).items() if value is not None},
            "parallelism": models.parallelism,
            "tool_time_limit": limit,
            "boxed": models.boxed,
            "system_prompt": models.system_prompt,
            "sampling": dict(models.sampling),
        }

    def spent(self) -> Spending:
        """The spending so far, also after the end. Raises EndedError if it is not known."""
        if self._process is not None:
            self._read_spent(_LIMIT)
        elif self._fault is not None:
            raise EndedError(f"what the session has spent in all is not known: {self._fault}")
        return self._spent

    def _read_spent(self, limit: float) -> None:
        spent = self._request("GET", limit)["spent"]
        self._spent = Spending(**spent["used"], usage_estimated=spent["usage_estimated"])

    def close(self) -> None:
        """Ends the endpoint, and the requests that it has sent. Safe to repeat."""
        if self._process is not None and self.variables:
            try:
                self._read_spent(_LAST_LIMIT)
            except EndedError as error:
                self._fault = error
        self.kill()

    def kill(self) -> None:
        """Ends the endpoint without asking what was spent since the last question."""
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _request(self, method: str, limit: float, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        # Imported here, since only sessions with models need it.
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection(self._url.removeprefix("http://"), timeout=limit)
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request(method, f"/rollout/{_ROLLOUT}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            reply: dict[str, Any] = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise EndedError(
                f"rlm rootd does not answer ({error}): {self._log_tail()}. Create another session: this one has no "
                "more tools"
            ) from error
        finally:
            connection.close()
        if "error" in reply:
            raise StartError(f"rlm rootd refuses the models of the session: {reply['error']}")
        return reply

    def _log_tail(self) -> str:
        return log_tail(self._log).removeprefix("rlm-rootd: ") or "it said nothing"
