"""The page of `rlm view --serve` while its file grows."""

import json
import re
from typing import Any

from playwright.sync_api import Page, expect

from conftest import LINES, Server, grow, named


def test_what_comes_is_shown_and_what_is_open_stays_so(page: Page, server: Server) -> None:
    file = server.file
    # The first turn has gone by, the second has begun.
    second = next(at for at, line in enumerate(LINES) if json.loads(line).get("turn") == 2) + 1
    page.goto(server.view("".join(LINES[:second]) + LINES[second][:50]))
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


def test_whoever_reads_the_turn_that_goes_on_keeps_the_focus(page: Page, server: Server) -> None:
    file = server.file
    at = next(at for at, line in enumerate(LINES) if json.loads(line)["event"] == "sub_call")
    turn = next(json.loads(line)["turn"] for line in reversed(LINES[:at]) if "turn" in json.loads(line))
    page.goto(server.view("".join(LINES[:at])))
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


def test_links_lead_to_turns_and_comparisons_of_a_page_that_is_read_first(page: Page, server: Server) -> None:
    page.goto(server.view(named("a") + named("b")))
    expect(page.locator(".overview tbody tr")).to_have_count(2)
    for fragment, selector in (("#compare=0,1", ".comparison"), ("#r1t3", "#r1t3")):
        page.goto("about:blank")
        page.goto(f"{server.base}{fragment}")
        expect(page.locator(selector)).to_be_in_viewport()
    page.goto(f"{server.base}#compare=1,2")
    expect(page.locator("main")).to_contain_text("no rollout 2")
    grow(server.file, named("c"))
    expect(page.locator(".comparison")).to_contain_text("1.txt")
    assert page.locator(".comparison summary").nth(1).inner_text().endswith("c")


def test_whoever_reads_is_not_disturbed(page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view(named("a", stop_reason="max_turns", answer_ready=False) + named("b")))
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


def test_a_page_that_is_changed_says_what_a_new_one_does(page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view(LINES[0] + LINES[0].replace("letters-1", "other")))
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


def test_what_has_not_changed_stays(page: Page, server: Server) -> None:
    file = server.file
    code = LINES[6].replace("ls -l", "echo $((16#ff)) $x#foo")
    assert code != LINES[6]
    page.goto(server.view("".join([*LINES[:6], code])))
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


def test_a_tree_that_grows_leaves_its_lists_open(page: Page, server: Server) -> None:
    file = server.file
    page.goto(server.view("".join(named("a").splitlines(keepends=True)[:-1]) + child("a.1", "a")))
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
