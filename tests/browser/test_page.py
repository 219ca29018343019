"""The page of `rlm view --html`."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from conftest import EXAMPLE, changed, named

TITLE = "run.jsonl"


def expect_ids(page: Page, ids: str) -> None:
    """Waits until the overview lists these rollouts: the page follows a link or a key a moment later."""
    expect(page.locator(".overview tbody a")).to_have_text(ids.split())


def batch() -> str:
    parts = [("a", "first", 2.0), ("b", "second", 10.0), ("c", "third", 1.0)]
    return "".join(named(name, answer=answer, cost_usd=cost) for name, answer, cost in parts)


def tree() -> str:
    """A rollout whose first call has started two, one of which has started another."""
    child = [("a.1", "a", "call_1"), ("a.2", "a", "call_1"), ("a.1.1", "a.1", "call_1")]
    of = [named(name, depth=1, parent=parent, parent_call_id=call) for name, parent, call in child]

    def below(entry: dict[str, Any]) -> None:
        entry["depth"] = 1
        if entry["event"] == "rollout_started":
            name = entry["rollout"]
            entry["parent"], entry["parent_call_id"] = {n: (p, c) for n, p, c in child}[name]

    return named("a") + changed(below, "".join(of))


def test_its_own_script_runs_and_no_other(page: Page, written, tmp_path: Path) -> None:
    owned = "document.title = 'owned'"
    hostile = f'</script><script>{owned}</script><img src=x onerror="{owned}">\u202e\x00\x1b[2J'

    def poison(entry: dict[str, Any]) -> None:
        for field in ("question", "answer", "content", "code", "model", "error"):
            if field in entry and isinstance(entry[field], str):
                entry[field] += hostile
        for part in ("message", "output"):
            for name in ("content", "stdout", "stderr", "result"):
                if isinstance(entry.get(part), dict) and isinstance(entry[part].get(name), str):
                    entry[part][name] += hostile

    page.goto(written(changed(poison) + changed(poison, named("other"))))
    page.get_by_role("link", name="letters-1").click()
    expect(page.locator("article")).to_contain_text("<script>document.title = 'owned'</script>")
    page.locator("#search").fill("owned")
    expect(page.locator("#shown")).to_have_text("2 of 2")
    assert (page.title(), page.locator("img").count()) == (TITLE, 0)
    # Nor does anything that came into the page on its way.
    file = tmp_path / "page.html"
    file.write_text(file.read_text().replace("</main>", "</main><script>document.title = 'owned'</script>"))
    page.reload()
    expect(page.locator("#shown")).to_have_text("")
    assert page.title() == TITLE


def test_rows_are_sorted_filtered_and_searched(page: Page, written) -> None:
    page.goto(written(batch()))
    expect_ids(page, "a b c")
    heading = page.get_by_role("button", name="USD")
    heading.click()
    expect_ids(page, "c a b")  # They are sorted as numbers.
    heading.click()
    expect_ids(page, "b a c")
    assert page.locator("th[aria-sort=descending]").inner_text() == "USD"
    page.get_by_role("button", name="answer").click()
    expect_ids(page, "a b c")
    page.locator("#state").select_option("answered")
    expect(page.locator("#shown")).to_have_text("3 of 3")
    page.locator("#state").select_option("")
    # The search covers the whole of a rollout, also one that was never opened.
    page.locator("#search").fill("THIRD ls -l")
    expect(page.locator("#shown")).to_have_text("1 of 3")
    expect_ids(page, "c")
    page.locator("#search").fill("nowhere")
    expect(page.locator("#shown")).to_have_text("0 of 3")
    page.locator("#search").fill("")
    expect(page.locator(".overview tbody tr")).to_have_count(3)
    assert page.locator(".totals").inner_text().startswith("3 rollouts · 3 answered")


def test_reasoning_is_folded_and_parts_of_tokens_are_columns(page: Page, written) -> None:
    def thinks(entry: dict[str, Any]) -> None:
        if entry["event"] == "model_call":
            entry["reasoning_tokens"] = 20
        elif entry["event"] == "message" and entry["kind"] == "reply":
            entry["message"]["reasoning"] = "First <b>the docs</b>.\n" + "Then the rest. " * 20
            entry["message"]["reasoning_details"] = [{"type": "reasoning.encrypted", "data": "SECRET-SIGNATURE"}]

    def without_cache(entry: dict[str, Any]) -> None:
        entry["rollout"] = "plain"
        if "cached_tokens" in entry:
            entry["cached_tokens"] = 0

    page.goto(written(changed(thinks) + changed(without_cache)))
    assert page.locator(".overview th").all_inner_texts()[4:8] == ["tokens", "cached", "reasoning", "USD"]
    row = page.locator(".overview tbody tr")
    assert row.locator("[data-column=cached]").all_inner_texts() == ["1,792", ""]
    assert row.locator("[data-column=reasoning]").all_inner_texts() == ["60", ""]
    expect(page.locator(".totals")).to_contain_text("7,294 tokens (1,792 cached, 60 reasoning)")
    page.locator("#search").fill("then the rest")
    expect(page.locator("#shown")).to_have_text("1 of 2")
    page.get_by_role("link", name="letters-1").click()
    thought = page.locator("details.thought").first
    expect(thought.locator("summary")).to_contain_text("thought, 20 tokens: First <b>the docs</b>. Then the rest.")
    expect(thought.locator("pre")).not_to_be_visible()
    thought.locator("summary").click()
    expect(thought.locator("pre")).to_be_visible()
    page.locator("details.money summary").click()
    assert page.locator(".money th").all_inner_texts() == ["model", "requests", "tokens", "cached", "reasoning", "USD"]
    assert page.locator(".money td").all_inner_texts()[:6] == ["large-1", "3", "3,322", "1,792", "60", "0.0050"]
    assert "SECRET-SIGNATURE" not in page.content()


def test_numbers_without_bounds_and_deep_trees_are_shown(page: Page, written) -> None:
    def huge(entry: dict[str, Any]) -> None:
        entry["time"] = -1e308 if entry["event"] == "rollout_started" else 1e308
        if "seconds" in entry:
            entry["seconds"] = 1e308

    page.goto(written(changed(huge)))
    expect(page.locator("article h2")).to_have_text("letters-1")
    start = json.loads(EXAMPLE.splitlines()[0])
    chain = [
        {**start, "rollout": f"r{at}", "parent": f"r{at - 1}" if at else None, "depth": at} for at in range(12_000)
    ]
    page.goto(written("".join(json.dumps(entry) + "\n" for entry in chain)))
    expect_ids(page, "r0")
    fold = page.locator(".fold").first
    fold.click()
    expect(page.locator(".fold").first).to_be_focused()
    expect_ids(page, "r0 r1")
    page.get_by_role("link", name="r0", exact=True).click()
    expect(page.locator("article h2")).to_have_text("r0")


def test_scores_have_a_column_where_there_are_any(page: Page, written) -> None:
    page.goto(written(batch()))
    assert page.get_by_role("button", name="score").count() == 0
    scores = {"a": 0.5, "b": 1.0, "c": None}
    entries = [
        {"event": "rollout_scored", "rollout": name, "score": score, "error": None} for name, score in scores.items()
    ]
    page.goto(written(batch() + "".join(json.dumps({"time": 1790000009.0, **entry}) + "\n" for entry in entries)))
    page.get_by_role("button", name="score").click()
    page.get_by_role("button", name="score").click()
    expect_ids(page, "b a c")  # The one without a score comes last.
    assert "score 0.750" in page.locator(".totals").inner_text()
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_an_image_is_shown_from_its_file_and_no_other_file_is(page: Page, written, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl.images").mkdir()
    name = f"{'0' * 32}.png"
    (tmp_path / "run.jsonl.images" / name).write_bytes(base64.b64decode(DOT))
    (tmp_path / name).write_bytes(base64.b64decode(DOT))
    urls = [f"run.jsonl.images/{name}", name, f"run.jsonl.images/../{name}", "data:image/svg+xml;base64,PHN2Zy8+"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    message = {"role": "user", "content": [{"type": "text", "text": "Look"}, *parts]}
    entry = {"rollout": "letters-1", "time": 1790000001.0, "event": "message", "turn": 1, "kind": "notice"}
    lines = EXAMPLE.splitlines(keepends=True)
    page.goto(written("".join([*lines[:5], json.dumps({**entry, "message": message}) + "\n", *lines[5:]])))
    images = page.locator("article img")
    expect(images).to_have_count(1)
    assert images.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


def test_the_picture_of_the_readme(page: Page, written) -> None:
    """With RLM_PICTURE=1 it is taken anew."""
    picture = Path(__file__).parents[2] / "docs/page.png"
    page.set_viewport_size({"width": 1100, "height": 800})
    page.goto(written(EXAMPLE))
    expect(page.locator("article h2")).to_have_text("letters-1")
    taken = page.screenshot()
    if os.environ.get("RLM_PICTURE"):
        picture.write_bytes(taken)
    # Both are images of the same width and height.
    assert taken[:24] == picture.read_bytes()[:24]


def test_a_link_leads_to_a_turn_and_back(page: Page, written) -> None:
    address = written(batch())
    page.goto(f"{address}#r1t2")
    expect(page.locator("article h2")).to_have_text("b")
    turn = page.locator("#r1t2")
    expect(turn).to_be_in_viewport()
    # The time line leads to turns, too.
    page.locator(".times a", has_text="turn 3").click()
    expect(page.locator("#r1t3")).to_be_in_viewport()
    assert page.evaluate("location.hash") == "#r1t3"
    page.get_by_role("link", name="all 3 rollouts").click()
    expect_ids(page, "a b c")
    page.go_back()
    expect(page.locator("article h2")).to_have_text("b")


def test_turns_are_folded_and_long_outputs_have_boxes(page: Page, written) -> None:
    lines = "\n".join(f"line {number}" for number in range(400))

    def long(entry: dict[str, Any]) -> None:
        if entry.get("output"):
            entry["output"]["stdout"] = lines

    page.goto(written(changed(long)))
    box = page.locator("pre[tabindex]").first
    assert page.locator(".size").first.inner_text() == "3.5 kB"
    assert box.bounding_box()["height"] < 450
    assert box.evaluate("box => box.scrollHeight") > 4000
    page.locator("details.turn > summary").first.click()
    assert not page.locator("details.turn").first.evaluate("turn => turn.open")
    page.keyboard.press("o")
    assert page.locator("details.turn[open]").count() == 3
    page.keyboard.press("o")
    assert page.locator("details.turn[open]").count() == 0


def test_code_has_colours_and_turns_are_left_of_what_they_did(page: Page, written) -> None:
    page.goto(written(EXAMPLE))
    expect(page.locator(".code-word", has_text="for").first).to_be_visible()
    left, code, gave = (
        page.locator(selector).first.bounding_box() for selector in ("details.turn > summary", ".ran pre", ".gave pre")
    )
    assert left["x"] + left["width"] <= code["x"] and code["x"] + code["width"] <= gave["x"]
    page.set_viewport_size({"width": 390, "height": 800})
    code, gave = (page.locator(selector).first.bounding_box() for selector in (".ran pre", ".gave pre"))
    assert code["y"] < gave["y"] and gave["x"] + gave["width"] <= 390
    assert page.locator(".track").first.bounding_box()["width"] > 300
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_keys(page: Page, written) -> None:
    page.goto(written(batch()))
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("article h2")).to_have_text("b")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("location.hash") == "#r1t2"
    page.keyboard.press("k")
    assert page.evaluate("location.hash") == "#r1t1"
    page.keyboard.press("n")
    expect(page.locator("article h2")).to_have_text("c")
    page.keyboard.press("p")
    expect(page.locator("article h2")).to_have_text("b")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    page.keyboard.press("Escape")
    expect_ids(page, "a b c")


def test_escape_takes_the_filter_off_and_leaves_the_field(page: Page, written) -> None:
    page.goto(written(batch()))
    search = page.locator("#search")
    search.fill("third")
    expect(page.locator("#shown")).to_have_text("1 of 3")
    search.press("Escape")
    expect(page.locator("#shown")).to_have_text("")
    expect_ids(page, "a b c")
    assert search.input_value() == ""
    expect(search).not_to_be_focused()
    # The same holds where typed text is not searched for yet, and where a rollout is read.
    page.get_by_role("link", name="b", exact=True).click()
    expect(page.locator("article h2")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("third")
    page.keyboard.press("Escape")
    expect(search).to_have_value("")
    expect(page.locator("article h2")).to_have_text("b")
    page.get_by_role("link", name="all 3 rollouts").click()
    expect_ids(page, "a b c")


def test_children_are_folded_below_their_parents_with_money_by_depth(page: Page, written) -> None:
    page.goto(written(tree()))
    expect_ids(page, "a")
    page.locator(".fold").click()
    expect_ids(page, "a a.1 a.2")
    page.locator(".fold").nth(1).click()
    expect_ids(page, "a a.1 a.1.1 a.2")
    page.locator(".fold").first.click()
    expect_ids(page, "a")
    page.get_by_role("link", name="a", exact=True).click()
    money = page.locator("details.money")
    money.locator("summary").click()
    depths = money.locator("tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in depths[1:]] == [
        [str(d), m] for d in range(3) for m in ("large-1", "small-1")
    ]
    children = page.locator("#r0t1 details.children")
    assert children.locator("summary").inner_text() == "2 rollouts below it"
    children.locator("summary").click()
    children.get_by_role("link", name="a.2").click()
    expect(page.locator("article h2")).to_have_text("a.2")
    page.get_by_role("link", name="above: a").click()
    expect(page.locator("article h2")).to_have_text("a")
    # The keys go through those that are folded away, too.
    page.evaluate("location.hash = '#r1'")
    expect(page.locator("article h2")).to_have_text("a.1")
    for key, to in (("n", "a.1.1"), ("n", "a.2"), ("p", "a.1.1"), ("p", "a.1"), ("p", "a")):
        page.keyboard.press(key)
        expect(page.locator("article h2")).to_have_text(to)


def test_two_attempts_are_compared_turn_by_turn(page: Page, written) -> None:
    page.goto(written(batch() + named("other", question="Another question?")))
    page.get_by_role("link", name="a", exact=True).click()
    # Attempts at the same question.
    expect(page.locator("#other option")).to_have_count(3)
    page.locator("#other").select_option(index=1)
    cells = page.locator(".comparison > *")
    expect(cells).to_have_count(8)
    assert "first" in cells.nth(0).inner_text() and "second" in cells.nth(1).inner_text()
    for left, right in ((2, 3), (4, 5), (6, 7)):
        one, other = (cells.nth(at).bounding_box() for at in (left, right))
        assert one["y"] == other["y"] and one["x"] < other["x"]
    assert page.evaluate("location.hash") == "#compare=0,1"
    assert page.title() == f"a and b · {TITLE}"
    expect(cells.nth(0).locator("h2")).to_be_focused()


def test_a_comparison_is_chosen_by_keys_and_cuts_nothing(page: Page, written) -> None:
    long = "words " * 200
    page.goto(written("".join(named(name, question=f"{long}q", answer=f"{long}{name}") for name in "abc")))
    page.get_by_role("link", name="a", exact=True).click()
    expect(page.locator("article h2")).to_be_focused()
    others = page.locator("#other")
    others.focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(others).not_to_be_focused()
    assert (page.evaluate("location.hash"), others.input_value()) == ("#r0", "")
    others.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.locator(".comparison h2")).to_have_text(["a", "c"])
    assert page.locator("main pre.question").inner_text() == f"{long}q"
    assert page.locator(".comparison pre.good").all_inner_texts()[0] == f"{long}a"
    assert page.locator(".comparison > div").nth(1).locator("pre").inner_text() == f"{long}c"


def test_of_ten_thousand_rollouts_those_in_view_are_drawn(page: Page, written) -> None:
    start, *_, end = EXAMPLE.splitlines()
    lines = []
    for number in range(10_000):
        for line in (start, end):
            entry = json.loads(line)
            entry["rollout"] = f"r{number}"
            entry["time"] += number % 7
            lines.append(json.dumps(entry))
    page.goto(written("\n".join(lines) + "\n"))
    assert page.locator(".totals").inner_text().startswith("10,000 rollouts")
    assert page.locator(".overview tbody tr").count() == 200
    for name in ("time", "rollout"):
        page.get_by_role("button", name=name).click()
    page.mouse.wheel(0, 100_000)
    expect(page.locator(".overview tbody tr").nth(399)).to_be_attached()
    page.locator("#search").fill("r77")
    expect(page.locator("#shown")).to_have_text("111 of 10,000")
    page.get_by_role("link", name="r7777").click()
    expect(page.locator("article h2")).to_have_text("r7777")


def test_five_thousand_turns_and_much_output_leave_it_usable(page: Page, written) -> None:
    entries = [json.loads(line) for line in EXAMPLE.splitlines()]
    first = [entry for entry in entries if entry.get("turn") == 1]
    lines = [json.dumps(entries[0])]
    for turn in range(1, 5001):
        for entry in first:
            entry["turn"] = turn
            if turn == 5000 and entry["event"] == "call_ended":
                entry["output"]["stdout"] = ("x" * 79 + "\n") * ((64 << 20) // 80)
            lines.append(json.dumps(entry))
    # The last line is cut off.
    lines.append(json.dumps(entries[-1])[:200])
    page.goto(written("\n".join(lines)))
    expect(page.locator("details.turn")).to_have_count(5000)
    page.evaluate("location.hash = '#r0t4999'")
    expect(page.locator("#r0t4999")).to_be_in_viewport()
    page.keyboard.press("k")
    assert page.evaluate("location.hash") == "#r0t4998"
    assert "left out (--full holds it)" in page.locator("#r0t5000").inner_text()
    # All of it is there if all is wanted, and closed until it is opened.
    address = written("\n".join(lines), "--full")
    page.goto("about:blank")
    page.goto(f"{address}#r0t5000")
    expect(page.locator("#r0t5000")).to_be_in_viewport()
    assert page.locator("#r0t5000 .large > summary").inner_text() == "67.1 MB"
