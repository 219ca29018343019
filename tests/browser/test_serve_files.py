"""A file that is lost, written anew or faulty, a server that is restarted, and several clients."""

import os
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from conftest import EXAMPLE, LINES, Server, grow, named, until


def test_a_file_with_something_wrong_is_shown_as_far_as_it_goes(page: Page, server: Server, tmp_path: Path) -> None:
    file = server.file
    page.goto(server.view(named("one") + named("two")))
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
    file = server.file
    address = server.view(EXAMPLE)
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


def settle(page: Page) -> None:
    """Waits until the page has drawn what it has asked for."""
    page.evaluate("redraw()")


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


def test_two_tabs_and_one_that_is_stalled(browser: Browser, page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view(EXAMPLE))
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
