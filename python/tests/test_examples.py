"""The examples for trainers: against the real package where it installs."""

from __future__ import annotations

import asyncio
import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def examples_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    if not EXAMPLES.is_dir():
        pytest.skip("there is no checkout")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("skyrl_env", "verl_agent_loop"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_episode_in_skyrl(work: Path) -> None:
    skyrl_gym = pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed")
    (work / "a.txt").write_text("one\ntwo\n")
    skyrl_gym.register("rlm_session", entry_point="skyrl_env:SessionEnv")
    extras = {"reward_spec": {"ground_truth": "2"}, "extra_info": {"directory": str(work)}, "max_turns": 4}
    environment = skyrl_gym.make("rlm_session", extras=extras)
    messages, _ = environment.init([{"role": "user", "content": "How many lines?"}])
    assert [message["role"] for message in messages] == ["system", "user"]

    def step(action: str) -> tuple[str, float, bool]:
        taken = environment.step(action)
        return "".join(one["content"] for one in taken["observations"]), taken["reward"], taken["done"]

    assert step("I think.") == ("There is no ```bash block in your reply.", 0.0, False)
    assert step("```bash\nn=$(wc -l <a.txt); echo $n; false\n```") == ("2\n\n[exit status 1]", 0.0, False)
    shown, _, _ = step("```bash\nkill -9 $PPID; sleep 1000\n```")
    assert "The session has begun again." in shown
    assert step("```bash\nRLM_CONTENT=$(wc -l <a.txt) RLM_READY=1\n```") == ("", 1.0, True)
    environment.close()
    environment.close()


class _Tokens:
    """A tokenizer of one token per character."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]


def _documented_base() -> types.ModuleType:
    """The part of verl 0.9.1's module agent_loop that the example uses, as its source documents it. verl itself needs
    torch with CUDA, and Ray."""
    module = types.ModuleType("verl.experimental.agent_loop.agent_loop")

    class AgentLoopBase:
        def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_options: Any) -> None:
            self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
            self.server_manager, self.tokenizer = server_manager, tokenizer

        async def ct_build_initial_tokens(self, messages: list[Any]) -> list[int]:
            return list(self.tokenizer.encode("".join(message["content"] for message in messages)))

        async def ct_merge_assistant_token(
            self,
            runtime: list[int],
            new: list[int],
            mask: list[int],
            logprobs: Any = None,
            assistant_logprobs: Any = None,
        ) -> Any:
            merged = types.SimpleNamespace(token_ids=runtime + new)
            return merged, mask + [1] * len(new), None if logprobs is None else logprobs + assistant_logprobs

        async def ct_merge_context_msg(
            self, previous: list[Any], updated: list[Any], runtime: list[int], mask: list[int], logprobs: Any = None
        ) -> Any:
            new = self.tokenizer.encode("".join(message["content"] for message in updated[len(previous) :]))
            merged = types.SimpleNamespace(token_ids=runtime + new)
            return merged, mask + [0] * len(new), None if logprobs is None else logprobs + [0.0] * len(new)

    module.AgentLoopBase = AgentLoopBase  # type: ignore[attr-defined]
    module.AgentLoopOutput = lambda **fields: types.SimpleNamespace(**{"extra_fields": {}, **fields})  # type: ignore[attr-defined]
    module.AgentLoopMetrics = types.SimpleNamespace  # type: ignore[attr-defined]
    module.register = lambda name: lambda loop: loop  # type: ignore[attr-defined]
    return module


def test_an_episode_in_verl(work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        importlib.import_module("verl.experimental.agent_loop.agent_loop")
    except ImportError as error:
        with capsys.disabled():
            print(f"\nverl is not here ({error}): its agent loop runs over the documented base class")
        for name in ("verl", "verl.experimental", "verl.experimental.agent_loop"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "verl.experimental.agent_loop.agent_loop", _documented_base())
    from verl_agent_loop import SessionAgentLoop

    (work / "a.txt").write_text("one\ntwo\n")
    replies = ["```bash\nn=$(wc -l <a.txt); echo $n lines\n```", "```bash\nRLM_CONTENT=$n RLM_READY=1\n```"]
    prompts: list[str] = []
    tokens = _Tokens()

    class Server:
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> Any:
            prompts.append(tokens.decode(prompt_ids))
            ids = tokens.encode(replies[len(prompts) - 1])
            return types.SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids))

    class Loop(SessionAgentLoop):
        """A loop with a tokenizer of the test's own, whichever base class is there."""

        def __init__(self) -> None:
            self.server_manager, self.tokenizer = Server(), tokens
            self.max_turns, self.response_length = 5, 1000

        ct_build_initial_tokens = _documented_base().AgentLoopBase.ct_build_initial_tokens
        ct_merge_assistant_token = _documented_base().AgentLoopBase.ct_merge_assistant_token
        ct_merge_context_msg = _documented_base().AgentLoopBase.ct_merge_context_msg

    row = {"raw_prompt": [{"role": "user", "content": "How many?"}], "extra_info": {"directory": str(work)}}
    output = asyncio.run(Loop().run({"temperature": 1.0}, **row))
    assert output.extra_fields == {"answer": "2"}
    assert prompts == ["How many?", f"How many?{replies[0]}2 lines\n"]
    assert tokens.decode(output.prompt_ids) == "How many?"
    generated = "".join(chr(token) for token, is_own in zip(output.response_ids, output.response_mask) if is_own)
    assert generated == "".join(replies)
    assert len(output.response_logprobs) == len(output.response_ids) == len(output.response_mask)
    assert output.num_turns == 4
