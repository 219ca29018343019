"""Pickles are data: what builds plain values is read, and nothing else."""

from __future__ import annotations

import ast
import base64
import json
import os
import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest

from rlm_env import _pickle

PLAIN: list[Any] = [
    *(None, True, False),
    *(0, -1, 255, 65536, 2**31, -(2**31), 2**100, -(2**2000), 1.5, float("inf")),
    *("", "ü\U0001f600", "\ud800"),
    *(b"", b"\xff" * 300, bytearray(), bytearray(b"x")),
    *((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    *([], [1, [2]], {}, {1: {2: 3}}),
    *(set(), {1, 2}, frozenset(), frozenset({1})),
    {"a": (1, [b"x", {frozenset({"y"})}.pop()])},
]
LARGE = ["x" * 70_000, b"x" * 70_000]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_every_protocol(protocol: int) -> None:
    for value in [*PLAIN, *LARGE]:
        read = _pickle.loads(pickle.dumps(value, protocol))
        assert read == value and type(read) is type(value), value
    shared = ["shared"]
    first, second = _pickle.loads(pickle.dumps([shared, shared], protocol))
    assert first is second


def test_what_is_written_is_read() -> None:
    for value in [*PLAIN, *LARGE]:
        assert pickle.loads(_pickle.dumps(value)) == value


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


TESTS = Path(__file__).parents[2] / "rlm-core"
HOSTILE = (TESTS / "tests/pickle/hostile.rs").read_text()


def literals(function: str) -> list[bytes]:
    """The pickles of the Rust decoder's tests: Rust's byte strings are those of Python."""
    found = re.findall(rf'\b{function}\(\s*(b"(?:[^"\\]|\\.)*")', HOSTILE)
    return [ast.literal_eval(literal) for literal in found]


@pytest.mark.parametrize("data", literals("refused"), ids=repr)
def test_what_the_rust_decoder_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(_pickle.Refused, match=r"at byte \d+$|as a value|levels of containers"):
        _pickle.loads(data)


@pytest.mark.parametrize("data", literals("taken"), ids=repr)
def test_what_the_rust_decoder_takes_is_taken(data: bytes) -> None:
    _pickle.loads(data)


def test_the_tests_of_the_rust_decoder_were_found() -> None:
    assert len(literals("refused")) > 80 and len(literals("taken")) > 15


def test_pickles_of_every_kind_and_protocol() -> None:
    cases = json.loads((TESTS / "testdata/pickle/cases.json").read_text())
    assert len(cases) > 20
    for case in cases:
        for encoded in case["pickles"]:
            data = base64.b64decode(encoded)
            assert repr(_pickle.loads(data)) == repr(pickle.loads(data)), case["name"]
            for end in range(0, len(data), max(1, len(data) // 50)):
                with pytest.raises(_pickle.Refused):
                    _pickle.loads(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Evil()),
        pickle.dumps(1j),
        pickle.dumps(os.getcwd),
        pickle.dumps(2 ** (8 * 4096)),
        b"]" * 201 + b"a" * 200 + b".",
        b")" + b"\x85" * 1_000_000 + b".",
        b"(" * 100_000,
        b"L" + b"9" * 5000 + b"\n.",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_deep_or_long_or_no_data_is_refused(data: bytes) -> None:
    with pytest.raises(_pickle.Refused):
        _pickle.loads(data)


def test_random_bytes_are_read_or_refused() -> None:
    random.seed(7)
    seeds = [pickle.dumps(value, protocol) for value in PLAIN for protocol in range(6)]
    for _ in range(20_000):
        data = bytearray(random.choice(seeds))
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            _pickle.plain(_pickle.loads(bytes(data)))
        except _pickle.Refused:
            pass
