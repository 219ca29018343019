"""Answers of the server that come when the page is elsewhere, or has more."""

import itertools
import re
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from conftest import LINES, Server, grow, until


def test_an_answer_that_comes_too_late_is_not_shown(page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view("".join(LINES[:12])))
    expect(page.locator("article h2")).to_be_focused()
    late: list[Route] = []
    page.route("**/body*", lambda route: late.append(route) if not late else route.continue_())
    grow(file, LINES[12])
    until(page, lambda: bool(late))
    answer = late[0].fetch()
    grow(file, "".join(LINES[13:]))
    until(page, lambda: page.evaluate("rows.get(0).has_ended"))
    late[0].fulfill(response=answer)
    expect(page.locator("article")).to_contain_text("the answer is final")


HOLD = """() => {
    const plain = fetch;
    window.finish = undefined;
    window.fetch = (path, options) => {
        if (!String(path).includes("/body?at=1")) return plain(path, options);
        window.fetch = plain;
        const answer = plain(path);
        return new Promise((then, fail) => {
            window.finish = (error) => answer.then(error ? () => fail(new Error(error)) : then);
        });
    };
}"""
"""The next answer with the second rollout comes when `finish` is called."""


def test_what_comes_for_a_place_that_was_left_changes_nothing(page: Page, server: Server, tmp_path: Path) -> None:
    file = server.file
    page.goto(server.view("".join(LINES) + "".join(LINES).replace("letters-1", "letters-2")))
    rows = page.locator(".overview tbody tr")
    expect(rows).to_have_count(2)

    def finish(error: str = "") -> None:
        page.evaluate("async (error) => { await finish(error); await new Promise((then) => setTimeout(then)); }", error)

    def ask(hash: str) -> None:
        page.evaluate(HOLD)
        page.evaluate("(hash) => { location.hash = hash; }", hash)
        until(page, lambda: page.evaluate("window.finish !== undefined"))

    for error in ("lost", ""):
        ask("#r1")
        page.go_back()
        expect(rows).to_have_count(2)
        finish(error)
        assert rows.count() == 2
        assert page.locator("#trouble").is_hidden()
    # A rollout that is wanted is asked for again.
    page.route("**/body?at=1", lambda route: route.abort(), times=1)
    page.evaluate("location.hash = '#r1'")
    expect(page.locator("#trouble")).to_contain_text("Failed to fetch")
    expect(page.locator("article h2")).to_have_text("letters-2")
    expect(page.locator("#trouble")).to_be_hidden()
    page.go_back()
    expect(rows).to_have_count(2)
    # Nor is a turn shown that the reader has left.
    ask("#r1t2")
    page.evaluate("location.hash = '#r1t1'")
    first = page.locator("#r1t1 > summary")
    expect(first).to_be_focused()
    finish()
    expect(first).to_be_focused()
    # A link to where the reader is opens it again.
    first.click()
    page.locator(".times a[href='#r1t1']").first.click()
    expect(page.locator("#r1t1[open]")).to_be_visible()
    # Nor a rollout of a file that is another one now.
    page.evaluate("location.hash = '#'")
    expect(rows).to_have_count(2)
    ask("#r1")
    (tmp_path / "other.jsonl").write_text("".join(LINES).replace("letters-1", "other"))
    (tmp_path / "other.jsonl").rename(file)
    missing = "no rollout 1 on this page"
    expect(page.locator("main")).to_contain_text(missing)
    finish()
    assert missing in (page.locator("main").text_content() or "")


def test_what_is_searched_for_is_found_while_the_file_grows(page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view("".join(LINES)))
    expect(page.locator("article")).to_be_visible()
    # Each answer takes longer than the pause between two searches.
    page.evaluate("""() => {
        const plain = fetch;
        window.fetch = async (path, options) => {
            if (String(path).includes("/search")) await new Promise((then) => setTimeout(then, 1500));
            options?.signal?.throwIfAborted();
            return plain(path, options);
        };
    }""")
    page.locator("#search").fill("heating")
    names = itertools.count(2)

    def is_found() -> bool:
        grow(file, "".join(LINES).replace("letters-1", f"letters-{next(names)}"))
        return page.locator("#shown").text_content() != ""

    until(page, is_found)
    written = next(names) - 1
    expect(page.locator("#shown")).to_have_text(re.compile(f"of {written}|^{written} "))
