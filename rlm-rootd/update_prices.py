"""Writes src/ledger/prices.toml, the built-in prices, from the table that the package litellm has.

    pip install --no-deps litellm && python3 rlm-rootd/update_prices.py > rlm-rootd/src/ledger/prices.toml

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

# Our names of the prices, and litellm's. The optional ones are left out where litellm has none, or 0.
REQUIRED = {"prompt": "input_cost_per_token", "completion": "output_cost_per_token"}
OPTIONAL = {"cached": "cache_read_input_token_cost", "cache_write": "cache_creation_input_token_cost"}


def main() -> None:
    package = importlib.metadata.distribution("litellm")
    table = package.locate_file("litellm/model_prices_and_context_window_backup.json")
    today = datetime.date.today().isoformat()
    prices: dict[str, dict[str, float]] = {}
    for name, entry in json.loads(Path(str(table)).read_text()).items():
        is_chat = entry.get("mode") in ("chat", "responses") and entry.get("litellm_provider") in MAKERS
        short = name.rpartition("/")[2]
        if not is_chat or not all(entry.get(field) for field in REQUIRED.values()):
            continue
        if (entry.get("deprecation_date") or "9999") <= today:
            continue
        if name.startswith("ft:") or any(kind in short for kind in OTHER_KINDS):
            continue
        found = {ours: entry.get(theirs) for ours, theirs in (REQUIRED | OPTIONAL).items()}
        prices[short] = {ours: round(price * 1e6, 6) for ours, price in found.items() if price}
    print(f"# Prices of {today}, in USD per million tokens: those of litellm {package.version},")
    print("# written by update_prices.py. `cached` is the price of prompt tokens that are read from a cache,")
    print("# `cache_write` that of those that are written to one, for its shortest time; for an hour it is twice")
    print("# `prompt`. Discounts for batches and off-peak hours, and surcharges for long prompts, are not in it.\n")
    print("[models]")
    for name in sorted(prices):
        fields = ", ".join(f"{field} = {price:g}" for field, price in prices[name].items())
        print(f'"{name}" = {{ {fields} }}')


if __name__ == "__main__":
    sys.exit(main())
