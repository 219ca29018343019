"""A verl agent loop over a bash session (tested with verl 0.9.1).

A model writes code in ```bash blocks; output comes back as a user message, and is masked out of the loss. The reward is
1 for an answer that is the row's `reward_model.ground_truth`, else 0. The session lives as long as the loop's `run`, on
the event loop of verl's AgentLoopWorker. In the trainer's configuration:

    actor_rollout_ref.rollout.agent.agent_loop_config_path: agent.yaml
    # agent.yaml
    - name: rlm_session
      _target_: verl_agent_loop.SessionAgentLoop
      max_turns: 10

with `agent_name: rlm_session` in the rows of the dataset, and `extra_info.directory`.
"""

import re
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from rlm_env import AsyncSession, EndedError, SessionConfig

BLOCK = re.compile(r"```(?:bash|sh)\s*\n(.*?)\n?```", re.DOTALL)
MAX_CHARACTERS = 8000


@register("rlm_session")
class SessionAgentLoop(AgentLoopBase):
    def __init__(self, *arguments: Any, max_turns: int = 10, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.max_turns = max_turns
        self.response_length = self.rollout_config.response_length

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        directory = (row.get("extra_info") or {}).get("directory", ".")
        config = SessionConfig(directory, exec_timeout=60, max_output_bytes=1 << 20)
        # The end of the rollout, or its cancellation, ends the session.
        async with AsyncSession(config) as session:
            output = await self.converse(session, sampling_params, list(row["raw_prompt"]))
            answer = session.answer.content if session.answer.ready else None
        truth = (row.get("reward_model") or {}).get("ground_truth")
        if truth is not None:
            output.reward_score = float(answer is not None and answer.strip() == str(truth).strip())
        output.extra_fields["answer"] = answer
        return output

    async def converse(
        self, session: AsyncSession, sampling_params: dict[str, Any], messages: list[Any]
    ) -> AgentLoopOutput:
        request_id = uuid4().hex  # one server for all turns, so that its cache serves
        tokens = await self.ct_build_initial_tokens(messages)
        mask: list[int] = []
        logprobs: list[float] | None = None
        turns = 0
        while turns < self.max_turns and len(mask) < self.response_length:
            turns += 1
            reply = await self.server_manager.generate(
                request_id=request_id, prompt_ids=tokens, sampling_params=sampling_params
            )
            if reply.log_probs and logprobs is None:
                logprobs = []
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                tokens, reply.token_ids, mask, logprobs, assistant_logprobs=reply.log_probs or None
            )
            tokens = merged.token_ids
            text = self.tokenizer.decode(reply.token_ids, skip_special_tokens=True)
            messages = [*messages, {"role": "assistant", "content": text}]
            observation = await self.observe(session, text)
            if observation is None or turns == self.max_turns:
                break
            before, messages = messages, [*messages, {"role": "user", "content": observation}]
            merged, new_mask, new_logprobs = await self.ct_merge_context_msg(before, messages, tokens, mask, logprobs)
            if len(new_mask) >= self.response_length:
                break
            tokens, mask, logprobs = merged.token_ids, new_mask, new_logprobs
        start = len(tokens) - len(mask)
        limit = self.response_length
        return AgentLoopOutput(
            prompt_ids=tokens[:start],
            response_ids=tokens[start:][:limit],
            response_mask=mask[:limit],
            response_logprobs=logprobs[:limit] if logprobs else None,
            num_turns=2 * turns,
            metrics=AgentLoopMetrics(),
        )

    async def observe(self, session: AsyncSession, text: str) -> str | None:
        """The output of its code that the model sees. None: it has answered."""
        blocks = BLOCK.findall(text)
        if not blocks:
            return "There is no ```bash block in your reply."
        try:
            response = await session.execute(blocks[-1])
        except EndedError as error:
            await session.restart()
            return f"{error}. The session has begun again."
        if response.answer.ready:
            return None
        note = "" if response.outcome == "ok" else f"\n[{response.hint or response.outcome}]"
        return (response.stdout[:MAX_CHARACTERS] or "(no output)") + note
