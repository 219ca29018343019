"""The time of a browser for large pages, after `cargo build --release --workspace` and `tests/page`:

RLM_CHROMIUM=$(command -v chromium) target/browser/bin/python tests/browser/bench.py
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
EXAMPLE = [json.loads(line) for line in (ROOT / "docs/trajectory-example.jsonl").read_text().splitlines()]
ROUNDS = 5

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
LOADED = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"

SORT = "[...document.querySelectorAll('th button')].find(one => one.textContent === 'time').click()"
SEARCH = "const field = document.querySelector('#search'); field.value += '1'; field.dispatchEvent(new Event('input'))"

# The longest time for which the page gives no frame while something is done.
BLOCKED = """async act => {
  let longest = 0;
  const observer = new PerformanceObserver(list =>
    list.getEntries().forEach(task => longest = Math.max(longest, task.duration)));
  observer.observe({ type: 'longtask', buffered: false });
  eval(act);
  await new Promise(resume => setTimeout(resume, 1500));
  observer.disconnect();
  return longest;
}"""


def write(dir: Path, rollouts: int) -> tuple[int, int]:
    """Writes the page of so many rollouts; its size, and that of the trajectory."""
    with (dir / "run.jsonl").open("w") as file:
        for number in range(rollouts):
            for entry in EXAMPLE:
                file.write(json.dumps({**entry, "rollout": f"r{number}", "time": entry["time"] + number % 97}) + "\n")
    rlm = ROOT / "target/release/rlm"
    subprocess.run([rlm, "view", "run.jsonl", "--html", "page.html"], cwd=dir, check=True)
    return (dir / "page.html").stat().st_size, (dir / "run.jsonl").stat().st_size


def blocked(page: Page, act: str) -> float:
    return median(page.evaluate(BLOCKED, act) for _ in range(ROUNDS))


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["RLM_CHROMIUM"], args=["--no-sandbox"])
        print("| rollouts | page beside its trajectory | first paint | loaded | sorting | filtering | limit |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for rollouts in (1_000, 10_000):
            size, of_trajectory = write(Path(name), rollouts)
            paints, loads = [], []
            for _ in range(ROUNDS):
                page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
                page.goto(Path(name, "page.html").as_uri())
                page.wait_for_function(PAINT)
                paints.append(page.evaluate(PAINT))
                loads.append(page.evaluate(LOADED))
            sorting = blocked(page, SORT)
            filtering = blocked(page, SEARCH)
            print(
                f"| {rollouts:,} | {size / of_trajectory:.2f} | {median(paints):.0f} ms | {median(loads):.0f} ms"
                f" | {sorting:.0f} ms | {filtering:.0f} ms | 1.3, 1,000 ms |"
            )
        browser.close()


main()
