"""The environment of OpenEnv: an episode in a session."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import inspect
import json
import os
import re
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openenv.core.env_server.interfaces import Environment  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import EnvironmentMetadata, State  # pyright: ignore[reportMissingImports]

from ._config import Confine, SessionConfig
from ._errors import EndedError
from ._files import PrivateDirectory, write_own_file
from ._models import ChatModel, Models
from ._openenv_session import SETUP
from ._openenv_types import CodeBlockResult, ExactMatch, ReplAction, ReplObservation, result_of
from ._sync import Session
from ._tools import tool

client_gone: contextvars.ContextVar[asyncio.Event] = contextvars.ContextVar("gone")
"""Set when the client of the current connection goes away."""


class ReplEnvironment(Environment):  # type: ignore[misc]
    """An episode is a Python session in an empty directory. The arguments are those of `REPLEnvironment`, and ours.

    `timeout` is the time limit of a step in seconds, and `models` are those of `llm_query` and `llm_query_batched` in
    the session, where no functions are given for them.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        context: str = "",
        task_prompt: str = "",
        max_iterations: int = 30,
        max_output_length: int = 8192,
        context_preview_length: int = 500,
        rubric: Any = None,
        llm_query_fn: Callable[..., str] | None = None,
        llm_batch_fn: Callable[..., list[str]] | None = None,
        subcall_fn: Callable[..., str] | None = None,
        subcall_batch_fn: Callable[..., list[str]] | None = None,
        *,
        timeout: float = 120.0,
        confine: Confine | None = None,
        models: Models | ChatModel | None = None,
        **_ours_alone: Any,
    ) -> None:
        super().__init__(rubric=rubric() if isinstance(rubric, type) else rubric or ExactMatch())
        self.context, self.task_prompt, self.max_iterations = context, task_prompt, max_iterations
        self._max_output, self._preview, self._timeout = max_output_length, context_preview_length, timeout
        self._confine = confine or os.environ.get("RLM_CONFINE") or "full"
        functions = {
            "llm_query": llm_query_fn,
            "llm_query_batched": llm_batch_fn,
            "llm_batch": llm_batch_fn,
            "rlm_query": subcall_fn or llm_query_fn,
            "rlm_query_batched": subcall_batch_fn or llm_batch_fn,
        }
        self._tools = [_model_tool(name, function) for name, function in functions.items() if function is not None]
        self._models = None if self._tools else models
        self._session: Session | None = None
        self._directory: PrivateDirectory | None = None
        self._state: State | None = None
        self._thread = ThreadPoolExecutor(1)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        context: str | None = None,
        task_prompt: str | None = None,
        expected_answer: str | None = None,
        **_theirs_alone: Any,
    ) -> ReplObservation:
        """Begins an episode with a new session. A token or a model of the client's is not used."""
        self._end_session()
        self.rubric.reset()
        if expected_answer is not None:
            self.rubric.set_expected(expected_answer)
        self._state = state = State(
            episode_id=episode_id or str(uuid.uuid4()),
            step_count=0,
            context=context or self.context,
            task_prompt=task_prompt or self.task_prompt,
            iteration=0,
            max_iterations=self.max_iterations,
            namespace_keys=[],
            final_answer=None,
            total_execution_time=0.0,
        )
        self._directory = PrivateDirectory()
        config = SessionConfig(self._directory.path, language="python", confine=self._confine)  # type: ignore[arg-type]
        self._session = Session(config, tools=self._tools, models=self._models).start()
        self._prepare()
        said = ["REPL environment initialized."]
        if state.context:
            said.append(f"Context loaded ({len(state.context)} chars). Use 'context' variable to access it.")
        if state.task_prompt:
            said.append(f"Task: {state.task_prompt}")
        said.append("Use answer['content'] to store your answer, and set answer['ready'] = True when done.")
        return self._observation(CodeBlockResult(stdout="\n".join(said)), message="Environment ready.")

    def step(self, action: ReplAction, timeout_s: float | None = None, **_: Any) -> ReplObservation:
        """Runs the code of an action. What it did, and that it was stopped or has died, is in the result."""
        state = self.state
        state.step_count += 1
        state.iteration += 1
        if action.is_final:
            state.final_answer = action.final_answer or ""
            observation = self._last("Final answer submitted.", True)
        elif state.iteration >= self.max_iterations:
            state.final_answer = self._running().answer.content or None
            observation = self._last(f"Maximum iterations ({self.max_iterations}) reached.", False)
        else:
            result = self._run(action.code, timeout_s or self._timeout)
            state.total_execution_time += result.execution_time
            observation = self._observation(result, done=state.final_answer is not None)
        observation.reward = self._apply_rubric(action, observation)
        return observation

    async def step_async(self, action: ReplAction, timeout_s: float | None = None, **_: Any) -> ReplObservation:
        """The same in a thread. The step is interrupted when the client goes away."""
        running: asyncio.Future[ReplObservation] = asyncio.get_running_loop().run_in_executor(
            self._thread, self.step, action, timeout_s
        )
        leaving: asyncio.Future[Any] = asyncio.ensure_future(client_gone.get(asyncio.Event()).wait())
        try:
            await asyncio.wait([running, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not running.done() and self._session is not None:
                self._session.interrupt()
        return await running

    @property
    def state(self) -> State:
        if self._state is None:
            raise RuntimeError("Environment not initialized. Call reset() first.")
        return self._state

    def close(self) -> None:
        """Ends the session, and everything it started. Safe to repeat."""
        self._end_session()
        self._state = None
        self._thread.shutdown(wait=False)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(
            name="repl_env", description="A Python session of rlm-env for code of language models", version="0.1.0"
        )

    def _running(self) -> Session:
        if self._session is None:
            raise RuntimeError("Environment not initialized. Call reset() first.")
        return self._session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        directory, self._directory = self._directory, None
        if session is not None:
            session.close()
        if directory is not None:
            directory.remove()

    def _prepare(self) -> None:
        """Defines the names of `repl_env` in a new interpreter."""
        session, code = self._running(), SETUP
        if self.state.context:
            path = os.path.join(session.control_dir, "context.txt")
            write_own_file(path, self.state.context)
            code += f"\n_rlm_openenv.load({path!r})"
        response = session.execute(code)
        if response.outcome != "ok":
            raise RuntimeError(f"the session cannot be set up: {response.hint or response.result}")
        self._look("")

    def _look(self, wanted: str) -> tuple[dict[str, str], str | None]:
        """New variables, and the value of this one."""
        response = self._running().execute(f"_rlm_openenv.after({wanted!r})", timeout=10.0)
        if response.outcome != "ok" or response.result is None:
            return {}, None
        self.state.namespace_keys, new, value = json.loads(ast.literal_eval(response.result))
        return new, value

    def _run(self, code: str, timeout: float) -> CodeBlockResult:
        session = self._running()
        try:
            response = session.execute(code, timeout=timeout)
        except EndedError as error:
            session.restart()
            self._prepare()
            words = f"EndedError: the session died ({error.status}), and its variables are lost"
            return CodeBlockResult(stderr=words, success=False, exception=words)
        wanted = re.search(r"FINAL_VAR\((\w+)\)", response.stdout)
        if response.state == "kept":
            new, value = self._look(wanted.group(1) if wanted else "")
        else:
            new, value = {}, None
            self._prepare()
        result = result_of(response, new, self._max_output)
        final = re.search(r"FINAL\((.*?)\)", result.stdout, re.DOTALL)
        if response.answer.ready:
            self.state.final_answer = response.answer.content
        elif final is not None or value is not None:
            self.state.final_answer = final.group(1).strip() if final is not None else value
        return result

    def _observation(self, result: CodeBlockResult, *, done: bool = False, **metadata: Any) -> ReplObservation:
        state = self.state
        return ReplObservation(
            result=result,
            context_preview=state.context[: self._preview] or None,
            context_length=len(state.context),
            available_variables=state.namespace_keys,
            iteration=state.iteration,
            max_iterations=self.max_iterations,
            done=done,
            metadata={"task_prompt": state.task_prompt, "final_answer": state.final_answer, **metadata},
        )

    def _last(self, message: str, success: bool) -> ReplObservation:
        return self._observation(CodeBlockResult(stdout=message, success=success), done=True)


def _model_tool(name: str, function: Callable[..., Any]) -> Any:
    try:
        inspect.signature(function).bind("", None)
        takes_model = True
    except TypeError:
        takes_model = False

    def call(prompt: Any, model: str | None = None) -> Any:
        return function(prompt, model) if takes_model else function(prompt)

    return tool(name=name, timeout=3600)(call)
