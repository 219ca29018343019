"""Writes src/llm/prices.toml, the built-in prices, from the table that the package litellm has.

    pip install --no-deps litellm && python3 rlm-rootd/update_prices.py > rlm-rootd/src/llm/prices.toml

Only models that answer chats, under the names of their makers' own interfaces, that are not withdrawn yet.
"""

import datetime
import importlib.metadata
import json
import sys
from pathlib import Path

MAKERS = ["openai", "anthropic", "gemini", "deepseek", "mistral", "xai", "moonshot"]
OTHER_KINDS = [
    "audio",
    "search",
    "live",
    "tts",
    "lyria",
    "image",
    "robotics",
    "research",
    "embed",
    "voxtral",
    "computer-use",
]


def main() -> None:
    package = importlib.metadata.distribution("litellm")
    table = package.locate_file("litellm/model_prices_and_context_window_backup.json")
    today = datetime.date.today().isoformat()
    prices: dict[str, tuple[float, float]] = {}
    for name, entry in json.loads(Path(str(table)).read_text()).items():
        is_chat = entry.get("mode") in ("chat", "responses") and entry.get("litellm_provider") in MAKERS
        both = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
        short = name.rpartition("/")[2]
        if not is_chat or not all(both) or (entry.get("deprecation_date") or "9999") <= today:
            continue
        if name.startswith("ft:") or any(kind in short for kind in OTHER_KINDS):
            continue
        prompt, completion = (round(price * 1e6, 6) for price in both)
        prices[short] = prompt, completion
    print(f"# Prices of {today}, in USD per million tokens: those of litellm {package.version},")
    print("# written by update_prices.py. Discounts (caches, batches) and surcharges (long prompts) are not in it.\n")
    print("[models]")
    for name in sorted(prices):
        prompt, completion = prices[name]
        print(f'"{name}" = {{ prompt = {prompt:g}, completion = {completion:g} }}')


if __name__ == "__main__":
    sys.exit(main())
