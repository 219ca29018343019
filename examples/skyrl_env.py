"""A SkyRL environment over a bash session (tested with skyrl-gym 0.4.0).

A model writes code in ```bash blocks. Its variables, files and jobs stay from turn to turn; it answers by setting
RLM_CONTENT and RLM_READY=1. In a training script:

    skyrl_gym.register("rlm_session", entry_point="skyrl_env:SessionEnv")

and `env_class: rlm_session` in the rows of the dataset, with `reward_spec.ground_truth` and `extra_info.directory`.
"""

import re
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rlm_env import EndedError, Session, SessionConfig

SYSTEM = (
    "You answer a question about the files in the working directory. Write one ```bash block per turn: it runs in a "
    "session that keeps its variables. When you know the answer, set RLM_CONTENT to it and RLM_READY=1 in the block."
)
BLOCK = re.compile(r"```(?:bash|sh)\s*\n(.*?)\n?```", re.DOTALL)
MAX_CHARACTERS = 8000


class SessionEnv(BaseTextEnv):
    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        extras = extras or {}
        self.max_turns = extras.get("max_turns", 10)
        self.truth = str(extras.get("reward_spec", {}).get("ground_truth", ""))
        directory = extras.get("extra_info", {}).get("directory", ".")
        # A step runs in a thread of the generator's pool: a hanging program must not keep it.
        self.config = SessionConfig(directory, exec_timeout=extras.get("repl_timeout", 60), max_output_bytes=1 << 20)
        self.session: Session | None = None

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        self.session = Session(self.config).start()
        return [{"role": "system", "content": SYSTEM}, *prompt], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        assert self.session is not None, "init comes first"
        self.turns += 1
        is_last = self.turns >= self.max_turns
        blocks = BLOCK.findall(action)
        if not blocks:
            return self.output("There is no ```bash block in your reply.", 0.0, is_last)
        try:
            response = self.session.execute(blocks[-1])
        except EndedError as error:
            self.session.restart()
            return self.output(f"{error}. The session has begun again.", 0.0, is_last)
        if response.answer.ready:
            return self.output("", float(response.answer.content.strip() == self.truth.strip()), True)
        shown = response.stdout[:MAX_CHARACTERS] or "(no output)"
        notes = [] if response.outcome == "ok" else [response.hint or response.outcome]
        if response.exit_code:
            notes.append(f"exit status {response.exit_code}")
        return self.output("\n".join([shown, *(f"[{note}]" for note in notes)]), 0.0, is_last)

    def output(self, text: str, reward: float, done: bool) -> BaseTextEnvStepOutput:
        observations = [] if done else [{"role": "user", "content": text}]
        return BaseTextEnvStepOutput(
            observations=observations, reward=reward, done=done, metadata={"turns": self.turns}
        )

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
