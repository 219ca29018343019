"""The example for SkyRL: episodes of its registry's environment. Only the model is scripted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

skyrl_gym = pytest.importorskip("skyrl_gym")

from rlm_env.testing import _mark, _processes  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.filterwarnings("ignore")  # those of SkyRL and its libraries


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment's name, as a training script gives it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    skyrl_gym.register("rlm_session", entry_point="skyrl_env:SessionEnv")
    yield
    del skyrl_gym.registry["rlm_session"]


def make(directory: Path, truth: Any, **extras: Any) -> Any:
    """An environment for a row of a dataset."""
    row = {"reward_spec": {"ground_truth": truth}, "extra_info": {"directory": str(directory)}, **extras}
    return skyrl_gym.make("rlm_session", env_config={}, extras=row)


def block(code: str) -> str:
    return f"I run this:\n```bash\n{code}\n```\n"


def told(step: Any) -> str:
    """The text of a step that did not end the episode."""
    assert not step["done"] and step["reward"] == 0.0
    [message] = step["observations"]
    assert message["role"] == "user"
    return str(message["content"])


@pytest.mark.parametrize(("answer", "reward"), [("$n", 1.0), ("9", 0.0)])
def test_an_episode(answer: str, reward: float, work: Path) -> None:
    (work / "numbers.txt").write_text("7\n5\n")
    mark = _mark()
    environment = make(work, 12)
    question = [{"role": "user", "content": "What is their sum?"}]
    prompt, _ = environment.init(question)
    assert [message["role"] for message in prompt] == ["system", "user"] and prompt[1:] == question
    assert told(environment.step("I think.")) == "There is no ```bash block in your reply."
    assert (
        told(environment.step(block(f"n=$(( $(paste -sd+ numbers.txt) )); (setsid sleep {mark} &)"))) == "(no output)"
    )
    assert told(environment.step(block("echo $n; false"))) == "12\n\n[exit status 1]"
    assert "[exit status 137]" in told(environment.step(block("bash -c 'kill -9 $$'")))
    assert len(_processes(mark)) == 1
    step = environment.step(block(f"RLM_CONTENT={answer} RLM_READY=1"))
    assert step == {"observations": [], "reward": reward, "done": True, "metadata": {"turns": 5}}
    environment.close()
    assert _processes(mark) == []


def test_limits_of_an_episode(work: Path) -> None:
    environment = make(work, "x", max_turns=4, repl_timeout=0.5)
    environment.init([])
    began = time.monotonic()
    assert "begun\n" in (said := told(environment.step(block("kept=1; echo begun; sleep 1000")))) and "[" in said
    assert time.monotonic() - began < 30
    assert told(environment.step(block("echo $kept"))) == "1\n"
    assert len(told(environment.step(block("seq 100000")))) < 9000
    step = environment.step(block("echo more"))
    assert step["done"] and step["reward"] == 0.0 and step["observations"] == []
    environment.close()
    environment.close()


def test_many_episodes_in_threads(tmp_path: Path) -> None:
    """The generator runs the steps of its environments in a pool of threads."""

    def episode(number: int) -> float:
        directory = tmp_path / str(number)
        directory.mkdir()
        environment = make(directory, number)
        environment.init([])
        try:
            environment.step(block(f"n={number}; touch mine"))
            assert told(environment.step(block("ls; echo $n"))) == f"mine\n{number}\n"
            return float(environment.step(block("RLM_CONTENT=$n RLM_READY=1"))["reward"])
        finally:
            environment.close()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(episode, range(16))) == [1.0] * 16
