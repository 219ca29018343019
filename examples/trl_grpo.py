"""GRPO with TRL's GRPOTrainer: each rollout has a bash session, and its reward comes from the answer.

    pip install rlm-env trl jmespath; python3 examples/trl_grpo.py Qwen/Qwen3-0.6B

The model calls the methods of `SessionEnvironment` as tools. TRL trains on its tokens alone, not on those of results.
Tested with trl 1.16.
"""

import sys
import tempfile

from rlm_env import SessionConfig
from rlm_env.tools import ReplTools

WORDS = ["heat", "water", "pressure", "vapour"]


class SessionEnvironment:
    """TRL makes one for each rollout of a batch, and resets it for the next batch. Its other methods are tools."""

    def reset(self, word: str, **_row) -> None:
        """Begins a rollout for this row of the dataset, with a session in an empty directory."""
        self._end()
        self._word, self._answer = word, None
        self._directory = tempfile.TemporaryDirectory()
        with open(f"{self._directory.name}/word.txt", "w") as file:
            file.write(word)
        self._repl = ReplTools(SessionConfig(self._directory.name, confine="try"), timeout=30, max_output_chars=2000)

    def bash(self, code: str) -> str:
        """Runs bash code in a persistent session. Variables and the working directory stay from call to call.

        Args:
            code: The code to run.

        Returns:
            The output.
        """
        return self._repl.bash(code)

    def answer(self, text: str) -> str:
        """Gives the answer. Call it once, at the end.

        Args:
            text: The answer.

        Returns:
            A confirmation.
        """
        self._answer = text
        return "Thank you."

    def get_reward(self) -> float:
        """1 for the right number of letters; a little for an answer at all."""
        if self._answer is None:
            return 0.0
        return 1.0 if self._answer.strip() == str(len(self._word)) else 0.1

    def _end(self) -> None:
        if hasattr(self, "_repl"):
            self._repl.close()
            self._directory.cleanup()

    def __del__(self) -> None:
        self._end()


def rows() -> list[dict]:
    question = "How many letters has the word in the file word.txt? Look with bash, then call answer."
    return [{"prompt": [{"role": "user", "content": question}], "word": word} for word in WORDS]


def main() -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig("trl-sessions", num_generations=4, max_completion_length=1024, max_tool_calling_iterations=4)
    trainer = GRPOTrainer(
        model=sys.argv[1], args=config, train_dataset=Dataset.from_list(rows()), environment_factory=SessionEnvironment
    )
    trainer.train()


if __name__ == "__main__":
    main()
