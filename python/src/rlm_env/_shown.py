"""Responses as texts for models."""

from __future__ import annotations

from ._config import check_seconds
from ._documents import Response
from ._errors import EndedError


def shown(response: Response, max_output_chars: int = 8192) -> str:
    """A response as a model reads it: the output, and in square brackets what else there is to know."""
    output = response.stdout.rstrip("\n")
    if response.hint is not None:
        output = output.removesuffix(response.hint)  # bash's output ends with it
    parts = [output, response.stderr]
    if response.result is not None:
        parts.append(response.result if response.exception else f"Out[{response.execution_count}]: {response.result}")
    text = _cut("\n".join(part.rstrip("\n") for part in parts if part), max_output_chars, response)
    notes = []
    if response.outcome not in ("ok", "error"):
        notes.append(f"{response.outcome.replace('_', ' ')}: {response.hint or f'the state is {response.state}'}")
    elif response.hint is not None:
        notes.append(response.hint)
    if response.outcome in ("ok", "error") and response.exit_code:
        notes.append(f"exit status {response.exit_code}")
    return "\n".join([*([text] if text else []), *(f"[{note}]" for note in notes)]) or "(no output)"


def _cut(text: str, most: int, response: Response) -> str:
    dropped = response.truncated
    lost = dropped.stdout + dropped.stderr + dropped.result if dropped is not None else 0
    if len(text) <= most and not lost:
        return text
    left_out = f"{max(len(text) - most, 0)} characters" + (f" and {lost} bytes" if lost else "")
    note = f"[output cut: {left_out} are left out; write the output to a file and print parts of it]"
    if len(text) <= most:
        return f"{text}\n{note}"
    return f"{text[: most // 2]}\n{note}\n{text[len(text) - (most - most // 2) :]}"


def refusal_of(timeout: float | None) -> str | None:
    """A text for a model whose time limit cannot be kept."""
    try:
        if timeout is not None:
            check_seconds("timeout", timeout)
    except (TypeError, ValueError) as error:
        return f"[nothing was run: {error}]"
    return None


def lost(error: EndedError) -> str:
    """A text for a model whose session died."""
    how = error.status or "its worker failed"
    return f"[the session died ({how}) and has begun again: files are as they were left, all other state is lost]"
