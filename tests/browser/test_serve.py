"""The page of `rlm view --serve` and `rlm run --serve`."""

import http.server
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from conftest import EXAMPLE, PATIENCE, RLM, Server, named

LINES = EXAMPLE.splitlines(keepends=True)


def grow(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Waits for something. The page's own functions for that need what it forbids."""
    end = time.monotonic() + PATIENCE
    while not holds():
        page.evaluate("new Promise((then) => setTimeout(then, 10))")  # requests are handed over meanwhile
        assert time.monotonic() < end


def test_what_comes_is_shown_and_what_is_open_stays_so(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    # The first turn has gone by, the second has begun.
    second = next(at for at, line in enumerate(LINES) if json.loads(line).get("turn") == 2) + 1
    grow(file, "".join(LINES[:second]) + LINES[second][:50])
    page.goto(server.start("view", "run.jsonl"))
    assert "token" not in page.url
    expect(page.locator("article")).to_contain_text("no end: it runs")
    expect(page.locator("#live")).to_have_text("live")
    first = page.locator("#r0t1")
    first.locator("> summary").click()
    page.evaluate("document.querySelector('#r0t1').dataset.mark = 'the same element'")
    page.locator("details[data-part=system]").evaluate("details => details.open = true")
    grow(file, LINES[second][50:] + "".join(LINES[second + 1 :]))
    expect(page.locator("article")).to_contain_text("the answer is final")
    assert first.get_attribute("data-mark") == "the same element"
    assert not first.evaluate("turn => turn.open")
    assert page.locator("details[data-part=system]").evaluate("details => details.open")
    # Another rollout begins: there is an overview.
    grow(file, named("second", stop_reason="max_turns", answer_ready=False))
    expect(page.locator("#state option")).to_have_count(3)
    page.evaluate("location.hash = '#'")
    expect(page.locator(".overview tbody tr")).to_have_count(2)
    page.get_by_role("button", name="rollout").click()
    grow(file, named("alpha"))
    expect(page.locator(".overview tbody tr").first).to_contain_text("alpha")
    # The server searches what the page does not have.
    page.locator("#search").fill("LS -L nowhere")
    expect(page.locator("#shown")).to_have_text("0 of 3")
    page.locator("#search").fill("LS -L second")
    expect(page.locator("#shown")).to_have_text("1 of 3")


def test_whoever_reads_the_turn_that_goes_on_keeps_the_focus(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    at = next(at for at, line in enumerate(LINES) if json.loads(line)["event"] == "sub_call")
    turn = next(json.loads(line)["turn"] for line in reversed(LINES[:at]) if "turn" in json.loads(line))
    grow(file, "".join(LINES[:at]))
    page.goto(server.start("view", "run.jsonl"))
    summary = page.locator(f"#r0t{turn} > summary")
    summary.focus()
    page.evaluate(f"document.querySelector('#r0t{turn} pre').dataset.mark = 'the same element'")
    grow(file, LINES[at])
    expect(page.locator("details.batch")).to_have_count(1)
    expect(summary).to_be_focused()
    page.locator("details.batch > summary").click()
    grow(file, "".join(LINES[at + 1 :]))
    expect(page.locator("article")).to_contain_text("the answer is final")
    expect(page.locator("details.batch > summary")).to_be_focused()
    assert page.locator("details.batch").evaluate("batch => batch.open")
    assert page.locator(f"#r0t{turn} pre").first.get_attribute("data-mark") == "the same element"


def test_links_lead_to_turns_and_comparisons_of_a_page_that_is_read_first(
    page: Page, server: Server, tmp_path: Path
) -> None:
    grow(tmp_path / "run.jsonl", named("a") + named("b"))
    page.goto(server.start("view", "run.jsonl"))
    expect(page.locator(".overview tbody tr")).to_have_count(2)
    for fragment, selector in (("#compare=0,1", ".comparison"), ("#r1t3", "#r1t3")):
        page.goto("about:blank")
        page.goto(f"{server.base}{fragment}")
        expect(page.locator(selector)).to_be_in_viewport()
    page.goto(f"{server.base}#compare=1,2")
    expect(page.locator("main")).to_contain_text("no rollout 2")
    grow(tmp_path / "run.jsonl", named("c"))
    expect(page.locator(".comparison")).to_contain_text("1.txt")
    assert page.locator(".comparison summary").nth(1).inner_text().endswith("c")


def test_whoever_reads_is_not_disturbed(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, named("a", stop_reason="max_turns", answer_ready=False) + named("b"))
    page.goto(server.start("view", "run.jsonl"))
    heading = page.get_by_role("button", name="rollout")
    heading.click()
    expect(heading).to_be_focused()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.overview tbody tr'))")
    selected = page.evaluate("getSelection().toString()")
    page.locator("#search").fill("heating")
    expect(page.locator("#shown")).to_have_text("2 of 2")
    page.locator("#state").select_option("max turns")
    expect(page.locator(".overview tbody tr")).to_have_count(1)
    grow(file, named("c") + named("d", stop_reason="max_turns", answer_ready=False))
    expect(page.locator("#shown")).to_have_text("2 of 4")
    assert page.locator("#state").input_value() == "max turns"
    page.locator("#state").select_option("")
    page.locator("#search").fill("")
    expect(page.locator("#shown")).to_have_text("")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.overview tbody tr'))")
    grow(file, named("e"))
    expect(page.locator(".overview tbody tr")).to_have_count(5)
    assert page.evaluate("getSelection().toString()") == selected
    # A tab that is not seen has no stream, and is where it was when it is seen again.
    see = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    see += "document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(see, True)
    grow(file, named("f"))
    assert page.evaluate("events.readyState") == 2
    page.evaluate(see, False)
    expect(page.locator(".overview tbody tr")).to_have_count(6)
    assert page.evaluate("getSelection().toString()") == selected
    # A comparison that goes on keeps closed turns closed.
    page.evaluate("location.hash = '#compare=0,1'")
    closed = page.locator(".comparison details.turn").first
    closed.locator("summary").click()
    grow(file, named("b", answer="changed").splitlines()[-1] + "\n")
    expect(page.locator(".comparison")).to_contain_text("changed")
    assert not closed.evaluate("turn => turn.open")
    page.evaluate("location.hash = '#'")
    # A rollout that goes on keeps what is selected in it, where it is scrolled to and what has the focus.
    turns = [line for line in LINES if json.loads(line)["event"] != "rollout_ended"]
    grow(file, "".join(turns).replace("letters-1", "going"))
    page.get_by_role("link", name="going").click()
    expect(page.locator("article h2")).to_be_focused()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.ran pre'))")
    selected = page.evaluate("getSelection().toString()")
    page.locator("details.turn > summary").nth(2).focus()
    top = page.evaluate("scrollTo(0, 500), scrollY")
    grow(file, LINES[-1].replace("letters-1", "going"))
    expect(page.locator("article")).to_contain_text("the answer is final")
    expect(page.locator("details.turn > summary").nth(2)).to_be_focused()
    assert page.evaluate("getSelection().toString()") == selected
    assert abs(page.evaluate("scrollY") - top) < 200


def structure(page: Page) -> Any:
    """The elements of a rollout with their classes, but for the colours of its code."""
    all_of = "article => [...article.querySelectorAll('*')].map(one => `${one.tagName}.${one.className}`)"
    return [one for one in page.locator("article").evaluate(all_of) if "code-" not in one]


def test_a_page_that_is_changed_says_what_a_new_one_does(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, LINES[0] + LINES[0].replace("letters-1", "other"))
    page.goto(server.start("view", "run.jsonl"))
    new = page.context.new_page()
    new.goto(page.url)
    page.get_by_role("link", name="letters-1").click()
    # The prompt that fails comes first, as one that fails often does.
    failed = next(line for line in LINES if '"sub_call"' in line and "overloaded" in line)
    rest = [line for line in LINES[1:] if line != failed]
    first = next(at for at, line in enumerate(rest) if '"sub_call"' in line)
    for number, line in enumerate([*rest[:first], failed, *rest[first:]], 3):
        # When there is one more, the server has read the line.
        grow(file, line + LINES[0].replace("letters-1", f"other-{number}"))
        expect(new.locator(".overview tbody tr")).to_have_count(number)
        new.get_by_role("link", name="letters-1").click()
        expect(new.locator("article h2")).to_be_focused()
        expect(page.locator("article")).to_have_text(new.locator("article").text_content() or "")
        assert structure(page) == structure(new)
        if line == failed:
            page.locator("details.batch > summary").click()
            page.evaluate("getSelection().selectAllChildren(document.querySelector('.prompt pre'))")
            selected = page.evaluate("getSelection().toString()")
        new.go_back()
    assert page.evaluate("getSelection().toString()") == selected


def test_an_answer_that_comes_too_late_is_not_shown(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, "".join(LINES[:12]))
    page.goto(server.start("view", "run.jsonl"))
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


def settle(page: Page) -> None:
    """Waits until the page has drawn what it has asked for."""
    page.evaluate("redraw()")


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
    file = tmp_path / "run.jsonl"
    grow(file, "".join(LINES) + "".join(LINES).replace("letters-1", "letters-2"))
    page.goto(server.start("view", "run.jsonl"))
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


def test_what_is_searched_for_is_found_while_the_file_grows(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, "".join(LINES))
    page.goto(server.start("view", "run.jsonl"))
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


def test_what_has_not_changed_stays(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    code = LINES[6].replace("ls -l", "echo $((16#ff)) $x#foo")
    assert code != LINES[6]
    grow(file, "".join([*LINES[:6], code]))
    page.goto(server.start("view", "run.jsonl"))
    coloured = page.locator("pre.repl").first
    expect(coloured.locator(".code-number").first).to_have_text("16")
    before = coloured.inner_html()
    page.locator(".money > summary").click()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.money td'))")
    grow(file, LINES[7])
    expect(page.locator("article")).to_contain_text("total 12")
    assert page.evaluate("getSelection().toString()") == "large-1"
    grow(file, "".join(LINES[8:12]))
    expect(page.locator("pre.repl").nth(1).locator(".code-word").first).to_be_visible()
    assert coloured.inner_html() == before


def child(name: str, parent: str) -> str:
    """A rollout that the first call of another one has started."""
    start, *rest = named(name).splitlines(keepends=True)
    return json.dumps({**json.loads(start), "parent": parent, "parent_call_id": "call_1"}) + "\n" + "".join(rest)


def test_a_tree_that_grows_leaves_its_lists_open(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, "".join(named("a").splitlines(keepends=True)[:-1]) + child("a.1", "a"))
    page.goto(server.start("view", "run.jsonl"))
    page.locator(".fold").click()
    cost = page.locator("[data-at='1'] td[data-column=USD] .bar")
    expect(cost).to_have_attribute("style", re.compile("width:50.00%"))
    page.get_by_role("link", name="a", exact=True).click()
    expect(page.locator("article h2")).to_be_focused()
    children, money = page.locator("#r0t1 details.children"), page.locator("details.money")
    money.locator("summary").click()
    children.locator("summary").click()
    link = children.get_by_role("link", name="a.1", exact=True)
    link.focus()
    # A child comes two levels below, and another beside this rollout; then this rollout ends.
    grow(file, child("a.1.1", "a.1"))
    expect(money.locator("tr", has_text="2large-1")).to_have_count(1)
    grow(file, child("a.2", "a"))
    expect(children.locator("summary")).to_have_text("2 rollouts below it")
    grow(file, named("a").splitlines(keepends=True)[-1])
    expect(page.locator("article")).to_contain_text("the answer is final")
    assert children.evaluate("list => list.open") and money.evaluate("details => details.open")
    expect(link).to_be_focused()
    page.evaluate("location.hash = '#'")
    expect(cost).to_have_attribute("style", re.compile("width:25.00%"))
    grow(file, child("a.1.2", "a.1"))
    expect(cost).to_have_attribute("style", re.compile("width:20.00%"))


def test_a_file_with_something_wrong_is_shown_as_far_as_it_goes(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, named("one") + named("two"))
    page.goto(server.start("view", "run.jsonl"))
    expect(page.locator(".overview tbody tr")).to_have_count(2)
    # The file goes away for a while.
    file.rename(tmp_path / "away")
    expect(page.locator("#trouble")).to_contain_text("run.jsonl: No such file")
    (tmp_path / "away").rename(file)
    grow(file, named("three"))
    expect(page.locator(".overview tbody tr")).to_have_count(3)
    expect(page.locator("#trouble")).to_be_hidden()
    # The file is written anew, in place, and is longer than before.
    file.write_text("".join(named(name) for name in ("aaa", "bbb", "ccc", "ddd")))
    expect(page.locator(".overview tbody tr")).to_have_count(4)
    expect(page.locator(".overview tbody tr").first).to_contain_text("aaa")
    # Anew, of the same size, and the same at both ends.
    file.write_text("".join(named(name) for name in ("aaa", "eee", "ccc", "ddd")))
    expect(page.locator(".overview tbody tr").nth(1)).to_contain_text("eee")
    # Rollouts before a line that is not an entry are shown, opened and searched all the same.
    grow(file, named("good") + '{"broken\n' + named("never"))
    expect(page.locator("#trouble")).to_contain_text("line")
    expect(page.locator(".overview tbody tr")).to_have_count(5)
    page.locator("#search").fill("heating")
    expect(page.locator("#shown")).to_have_text("5 of 5")
    page.get_by_role("link", name="good").click()
    expect(page.locator("article h2")).to_have_text("good")
    # The page says so as long as the line is there, also when it is opened later. A repaired file is read.
    page.reload()
    expect(page.locator("article h2")).to_have_text("good")
    expect(page.locator("#trouble")).to_contain_text(f"line {5 * len(LINES) + 1} is not an entry")
    (tmp_path / "mended").write_text(named("mended") + named("other"))
    (tmp_path / "mended").rename(file)
    expect(page.locator("#trouble")).to_be_hidden()
    page.evaluate("location.hash = '#'")
    expect(page.locator(".overview tbody tr").first).to_contain_text("mended")


def test_a_page_finds_the_server_again_after_it_was_restarted(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, EXAMPLE)
    address = server.start("view", "run.jsonl")
    page.goto(address)
    expect(page.locator("article h2")).to_have_text("letters-1")
    first = page.locator("#r0t1")
    first.locator("> summary").click()
    server.end(signal.SIGKILL)
    expect(page.locator("#live")).to_have_text("reconnecting …")
    grow(file, named("second"))
    assert server.start("view", "run.jsonl", port=urlsplit(address).port) == address, "the same token"
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#state option").nth(1)).to_have_text("answered (2)")
    assert not first.evaluate("turn => turn.open"), "what was closed stays closed"
    page.evaluate("location.hash = '#r1'")
    expect(page.locator("article h2")).to_have_text("second")
    # The page is refused for a while.
    cookies = page.context.cookies()
    page.context.clear_cookies()
    page.evaluate("listen()")
    expect(page.locator("#trouble")).to_contain_text("401")
    page.context.add_cookies(cookies)
    expect(page.locator("#trouble")).to_be_hidden()
    # Another file takes the place of this one.
    other = tmp_path / "other"
    other.write_text(named("other"))
    other.replace(file)
    expect(page.locator("main")).to_contain_text("no rollout 1")
    page.evaluate("location.hash = '#'")
    expect(page.locator("article h2")).to_have_text("other")


def test_a_file_that_is_read_again_moves_nobody(page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text("".join(named(f"r{number}") for number in range(60)))
    page.goto(server.start("view", "run.jsonl"))
    link = page.get_by_role("link", name="r50", exact=True)
    link.focus()
    page.evaluate("window.before = instance")
    top = page.evaluate("scrollY")
    assert top > 0
    os.utime(file, (1, 1))
    until(page, lambda: page.evaluate("instance !== before"))
    expect(link).to_be_focused()
    assert page.evaluate("scrollY") == top
    page.evaluate("location.hash = '#compare=0,1'")
    turn = page.locator(".comparison details.turn summary").last
    turn.click()
    page.evaluate("window.before = instance")
    os.utime(file, (2, 2))
    until(page, lambda: page.evaluate("instance !== before"))
    settle(page)
    expect(turn).to_be_focused()
    assert not turn.evaluate("summary => summary.parentElement.open")


def test_two_tabs_and_one_that_is_stalled(browser: Browser, page: Page, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    grow(file, EXAMPLE)
    page.goto(server.start("view", "run.jsonl"))
    cookies = page.context.cookies()
    other = page.context.new_page()
    other.goto(page.url)
    for tab in (page, other):
        expect(tab.locator("article h2")).to_be_visible()
    # This client asks for events, and never reads them.
    stalled = socket.create_connection(("127.0.0.1", urlsplit(page.url).port))
    header = f"Cookie: {cookies[0]['name']}={cookies[0]['value']}"
    stalled.sendall(f"GET {urlsplit(page.url).path}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\n\r\n".encode())
    for number in range(300):
        grow(file, named(f"r{number}", question="a long question " * 200))
    for tab in (page, other):
        tab.get_by_role("link", name="all 301 rollouts").click()
        expect(tab.locator(".totals")).to_contain_text("301 rollouts")
    other.close()
    grow(file, named("last"))
    expect(page.locator(".totals")).to_contain_text("302 rollouts")
    stalled.close()


class Answers(http.server.BaseHTTPRequestHandler):
    """A page of another origin."""

    address = ""

    def do_GET(self) -> None:
        html = f"<title>other</title><iframe src='{self.address}'></iframe>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(html.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server, and its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with serving(Answers) as address:
        yield f"{address}/"


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_without_the_token_and_from_elsewhere_nothing_is_served(
    page: Page, server: Server, elsewhere: str, tmp_path: Path
) -> None:
    grow(tmp_path / "run.jsonl", EXAMPLE)
    address = server.start("view", "run.jsonl")
    base = address.split("?")[0]
    for path in ("", "/events", "/body?at=0", "/search?words=x", "?token=wrong"):
        assert status(base + path) == 401, path
    assert status(f"{base[: base.index('/file')]}/runs") == 401
    page.goto(address)
    expect(page.locator("article h2")).to_have_text("letters-1")
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
    assert status(f"{base}/body?at=0", Cookie=cookie) == 200
    # Names that lead here from elsewhere, and requests that a page of another origin makes, with the cookie.
    for host in ("evil.example", "127.0.0.1:80.evil.example", "evil.example:80"):
        assert status(f"{base}/body?at=0", Cookie=cookie, Host=host) == 403, host
    assert status(f"{base}/body?at=0", Cookie=cookie, Origin="http://127.0.0.1:1") == 403
    image = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    assert status(f"{base}/body?at=0", Cookie=cookie, **image) == 403
    Answers.address = base
    assert page.context.cookies(f"{elsewhere}run/x") == [], "another port is shown no cookie"
    with page.expect_response(base) as frame:
        page.goto(elsewhere)
    assert frame.value.status == 403
    fetched = page.evaluate(f"fetch('{base}/body?at=0', {{credentials: 'include'}}).then(() => 'got', () => 'refused')")
    assert fetched == "refused"
    # A link that someone follows works, and only trajectories that are recorded or were named are there.
    page.evaluate(f"document.body.innerHTML = '<a href=\"{base}\">a link</a>'")
    page.get_by_text("a link").click()
    expect(page.locator("article h2")).to_have_text("letters-1")
    root = base[: base.index("/file")]
    for path in (
        "/run/..%2F..%2Fpage-token",
        "/run/none",
        "/run/none/events",
        "/other/x",
        "/file/x",
        "/file/trajectory/body?at=9",
    ):
        assert status(root + path, Cookie=cookie) == 404, path


def test_connections_that_ask_for_nothing_take_no_descriptors_of_the_run(
    page: Page, server: Server, tmp_path: Path
) -> None:
    grow(tmp_path / "run.jsonl", EXAMPLE)
    address = server.start("view", "run.jsonl")
    assert server.process is not None
    idle = [socket.create_connection(("127.0.0.1", urlsplit(address).port)) for _ in range(300)]
    for connection in idle:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127")
    descriptors = f"/proc/{server.process.pid}/fd"
    deadline = time.monotonic() + PATIENCE
    while (count := len(os.listdir(descriptors))) < 64 and time.monotonic() < deadline:
        # Nothing tells of a connection that another process accepts.
        time.sleep(0.01)
    assert 64 <= count < 100
    # A connection that sends no request is closed.
    idle[0].settimeout(PATIENCE)
    with idle[0].makefile("rb") as answer:
        answer.read()
    for connection in idle:
        connection.close()
    page.goto(address)
    expect(page.locator("article h2")).to_have_text("letters-1")


class Model(http.server.BaseHTTPRequestHandler):
    """Answers on its second turn, when it is let go on."""

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_first = len(body["messages"]) <= 2
        if not is_first:
            assert self.go_on.wait(20)
        code = "echo looking" if is_first else "RLM_CONTENT=found RLM_READY=1"
        message = {"role": "assistant", "content": f"```bash\n{code}\n```"}
        reply = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "model": "scripted",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[str]:
    Model.go_on.clear()
    with serving(Model) as address:
        yield f"{address}/v1"
        Model.go_on.set()


def test_a_run_is_watched_and_found_again_among_the_recorded_ones(
    page: Page, server: Server, model: str, tmp_path: Path
) -> None:
    run = ("run", "--context", "", "--base-url", model, "--model", "scripted", "where?")
    address = server.start(*run, "--id", "watched")
    page.goto(address)
    expect(page.locator("article")).to_contain_text("looking")
    expect(page.locator("article")).to_contain_text("no end: it runs")
    Model.go_on.set()
    expect(page.locator("article")).to_contain_text("found")
    # There is no terminal, so the page ends with the run.
    assert server.process is not None and server.process.wait(20) == 0
    server.process.stderr.close()
    server.process = None
    again = server.start("view", port=urlsplit(address).port)
    assert again == address, "the latest run, at the same place"
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("article")).to_contain_text("the answer is final")
    page.reload()
    expect(page.locator("article h2")).to_have_text("watched")


def test_at_a_terminal_the_page_of_a_run_stays_until_ctrl_c(page: Page, model: str, tmp_path: Path) -> None:
    Model.go_on.set()
    ours, terminal = os.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    arguments = ["--context", "", "--base-url", model, "--model", "scripted", "--serve", "where?"]
    run = subprocess.Popen([RLM, "run", *arguments], env=environment, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    said = ""
    while "the page stays until Ctrl-C" not in said:
        said += os.read(ours, 4096).decode()
    found = re.search(r"is at (http://\S+)", said)
    assert found is not None
    page.goto(found[1])
    expect(page.locator("article")).to_contain_text("the answer is final")
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    answer, _ = run.communicate(timeout=20)
    os.close(ours)
    assert (run.returncode, answer) == (0, b"found\n")


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    def error(*arguments: str) -> tuple[int, str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        ended = subprocess.run([RLM, *arguments], env=environment, cwd=tmp_path, text=True, capture_output=True)
        return ended.returncode, ended.stderr

    grow(tmp_path / "run.jsonl", EXAMPLE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, words = error("view", "run.jsonl", f"--serve={port}")
    assert status == 2 and f"--serve={port}: Address already in use" in words and "a free port" in words
    status, words = error("view", "-", "--serve")
    assert status == 2 and "standard input cannot be read from its beginning" in words
    status, words = error("view", ".", "--serve")
    assert status == 3 and "expected a file, which can be read from its beginning" in words
    status, words = error(
        "run", "--no-record", "--serve", "--context", "", "--model", "m", "--base-url", "http://127.0.0.1:1", "q"
    )
    assert status == 2 and "leave out --no-record" in words
    token = tmp_path / ".local/state/rlm/page-token"
    token.parent.mkdir(parents=True)
    for text, mode in (("short", 0o600), ("\0" * 64, 0o600), ("a" * 64, 0o644)):
        token.write_text(text)
        token.chmod(mode)
        status, words = error("view", "run.jsonl", "--serve")
        assert status == 2 and "page-token holds no token that only its user can read: remove it" in words
    token.unlink()
    os.mkfifo(token, 0o600)
    status, words = error("view", "run.jsonl", "--serve")
    assert status == 2 and "page-token holds no token" in words
