"""The ledger of a batch: the amounts that its rollouts may spend together, on all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .._models import Budget, Spending

GIVEN_UP = "the request was given up"

LOST = "this node was taken for dead: its attempts run elsewhere"
"""The reason why nothing is reserved for an actor that was taken for lost, but still runs."""

_UNIT = 10**12
"""Costs are whole numbers of this part of a USD: floats would not come back to 0."""


class _Exhausted(Exception):
    """The budget has no room for a request."""


@dataclass
class _Held:
    actor: str
    rollout: str
    most: Counter[str]


class Ledger:
    """Reserves the most that each request may cost before it is sent, and settles the request at its cost.

    `answer` gets the actor and the id of a request that has waited, and what `reserve` would return for it now.
    The wire is that of `rlm run --ledger`, described in the crate `rlm-rootd` (`ledger/remote.rs`).
    """

    def __init__(self, budget: Budget, answer: Callable[[str, str, int | str], None]) -> None:
        limits = {
            "calls": budget.calls,
            "tokens": budget.tokens,
            "completion_tokens": budget.completion_tokens,
            "cost": None if budget.cost_usd is None else round(Fraction(budget.cost_usd) * _UNIT),
        }
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._used: Counter[str] = Counter()
        self._reserved: Counter[str] = Counter()
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """The requests that wait for room by their ids, with the actors that ask."""
        self._answer = answer
        self._given_up: set[str] = set()
        """Requests that were not sent: one that comes again, or only now, reserves nothing."""
        self._lost: set[str] = set()
        """Actors that were taken for dead."""
        self._presumed: dict[str, Counter[str]] = {}
        """The amounts that requests of lost actors were counted at, by their ids, until they are settled after all."""
        self._rollouts: dict[str, Counter[str]] = {}

    def reserve(self, actor: str, request: Mapping[str, Any]) -> int | str | None:
        """Reserves the most that a request may cost.

        Returns the bound on its completion, which is smaller where there is not enough, or why there is no room. None:
        others may give it back, and the request waits.
        """
        if actor in self._lost:
            return LOST
        if request["id"] in self._given_up:
            return GIVEN_UP
        room = self._try(actor, request)
        if room is None:
            self._waiting[request["id"]] = actor, request
        return room

    def settle(self, settled: Mapping[str, Any]) -> None:
        """Ends a reservation at what the request has cost: 0 calls where it was not sent."""
        if (waiting := self._waiting.pop(settled["id"], None)) is not None:
            self._answer(waiting[0], settled["id"], GIVEN_UP)
        if settled["calls"] == 0:
            self._given_up.add(settled["id"])
        held = self._held.get(settled["id"])
        if held is not None:
            self._end(settled["id"], held, _spent(settled))
        elif (most := self._presumed.pop(settled["id"], None)) is not None:
            self._used += _spent(settled)
            self._used -= most
            self._answer_waiting()

    def lose(self, actor: str) -> None:
        """Ends the reservations of an actor that died at the most that its requests may have cost.

        The actor may only have been cut off: nothing is reserved for it any more, and what it still reports is summed.
        """
        self._lost.add(actor)
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting[0] != actor}
        for key, held in list(self._held.items()):
            if held.actor == actor:
                self._presumed[key] = held.most
                self._end(key, held, held.most)

    def is_lost(self, actor: str) -> bool:
        """True if an actor was taken for dead."""
        return actor in self._lost

    def count(self, actor: str, rollout: str, settled: Mapping[str, Any]) -> None:
        """Counts a request for which nothing was reserved."""
        spent = _spent(settled)
        self._used += spent
        if actor not in self._lost:  # The rollout runs elsewhere.
            self._rollouts.setdefault(rollout, Counter()).update(spent)

    def spent_by(self, rollout: str) -> Spending:
        """The spending of a rollout, on all nodes where it was begun."""
        return _spending(self._rollouts.get(rollout, Counter()))

    @property
    def spent(self) -> Spending:
        """The cost of all requests that were settled."""
        return _spending(self._used)

    def _try(self, actor: str, request: Mapping[str, Any]) -> int | str | None:
        if (held := self._held.get(request["id"])) is not None:
            return held.most["completion_tokens"]
        try:
            tokens = self._room(request)
        except _Exhausted as error:
            return str(error)
        if tokens is not None:
            most = _amounts(request, tokens)
            self._held[request["id"]] = _Held(actor, request["rollout"], most)
            self._reserved += most
        return tokens

    def _room(self, request: Mapping[str, Any]) -> int | None:
        """The bound on the completion for which there is room now; None if there may be later. Raises _Exhausted."""
        if "cost" in self._limits and request["cost_usd"] is None:
            raise _Exhausted(f"the budget is in USD and the model {request['model']!r} has no price: give `prices`")
        tokens: int = request["completion_tokens"]
        most, taken = _amounts(request, tokens), self._used + self._reserved
        if all(taken[name] + most[name] <= limit for name, limit in self._limits.items()):
            return tokens
        fewest: int = min(request["least_completion_tokens"], tokens)
        least = _amounts(request, fewest)
        for name, limit in self._limits.items():
            left = max(limit - self._used[name], 0)
            if least[name] > left:
                raise _Exhausted(
                    "the budget of all rollouts together is exhausted: "
                    f"the call may need {_words(name, least[name])}, "
                    f"{_words(name, left)} of {_words(name, limit)} are left"
                )
        if self._held:
            return None
        token = {"tokens": 1, "completion_tokens": 1, "cost": _cost(request["completion_token_usd"])}
        rest = [
            (limit - self._used[name] - least[name]) // token[name]
            for name, limit in self._limits.items()
            if token.get(name)
        ]
        return fewest + min([*rest, tokens - fewest])

    def _end(self, key: str, held: _Held, spent: Counter[str]) -> None:
        del self._held[key]
        self._reserved -= held.most
        self._used += spent
        self._rollouts.setdefault(held.rollout, Counter()).update(spent)
        self._answer_waiting()

    def _answer_waiting(self) -> None:
        for waiting, (actor, request) in list(self._waiting.items()):
            if (room := self._try(actor, request)) is not None:
                del self._waiting[waiting]
                self._answer(actor, waiting, room)


def _amounts(request: Mapping[str, Any], completion_tokens: int) -> Counter[str]:
    """The most that a request with such a completion may cost."""
    shorter = request["completion_tokens"] - completion_tokens
    prompt = request["prompt_tokens"]
    cost = _cost(request["cost_usd"]) - shorter * _cost(request["completion_token_usd"])
    return Counter(_of(1, prompt, completion_tokens, cost, request["cost_usd"] is None))


def _spent(settled: Mapping[str, Any]) -> Counter[str]:
    cost = settled["cost_usd"]
    return Counter(
        _of(settled["calls"], settled["prompt_tokens"], settled["completion_tokens"], _cost(cost), cost is None)
    )


def _of(calls: int, prompt: int, completion: int, cost: int, is_unpriced: bool) -> dict[str, int]:
    return {
        "calls": calls,
        "tokens": prompt + completion,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": cost,
        "unpriced": calls * is_unpriced,
    }


def _cost(usd: float | None) -> int:
    return round((usd or 0) * _UNIT)


def _spending(amounts: Counter[str]) -> Spending:
    cost = None if amounts["unpriced"] else amounts["cost"] / _UNIT
    prompt, completion = amounts["prompt_tokens"], amounts["completion_tokens"]
    return Spending(amounts["calls"], prompt, completion, prompt + completion, cost)


def _words(name: str, amount: int) -> str:
    return f"{amount / _UNIT:.9f}".rstrip("0").rstrip(".") + " USD" if name == "cost" else f"{amount} {name}"
