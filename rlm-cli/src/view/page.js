"use strict";
const one = (selector) => document.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== undefined && value !== false)
            element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children);
    return element;
}
function arrange(parent, wanted) {
    const kept = new Set(wanted);
    for (const child of [...parent.childNodes])
        if (!kept.has(child))
            child.remove();
    wanted.forEach((node, at) => {
        if (parent.childNodes[at] !== node)
            parent.insertBefore(node, parent.childNodes[at] ?? null);
    });
}
function add(lists, key, value) {
    const list = lists.get(key);
    if (list)
        list.push(value);
    else
        lists.set(key, [value]);
}
const isLive = document.body.dataset.live !== undefined;
const main = one("#main");
const grouped = (count) => count.toLocaleString("en-US");
const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
function duration(seconds) {
    if (seconds < 0.0995)
        return `${Math.round(seconds * 1000)} ms`;
    if (seconds < 119.95)
        return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    return `${grouped(Math.floor(whole / 60))} min ${whole % 60} s`;
}
function usd(cost) {
    return cost === 0 ? "0" : cost < 0.0001 ? "< 0.0001" : cost.toFixed(4);
}
const rows = new Map();
const below = new Map();
const trees = new Map();
function take(changed) {
    for (const row of changed) {
        if (!rows.has(row.at) && row.parent !== null)
            add(below, row.parent, row);
        for (const at of (trees.get(row.at) ?? trees.get(row.parent ?? -1))?.levels.keys() ?? [])
            trees.delete(at);
        const known = rows.get(row.at);
        if (known)
            Object.assign(known, row);
        else
            rows.set(row.at, row);
    }
}
const parentOf = (row) => (row.parent === null ? undefined : rows.get(row.parent));
const levelOf = (row) => treeOf(row).levels.get(row.at);
const tokensOf = (row) => row.spent.reduce((sum, one) => sum + one.tokens, 0);
const PARTS = [["cached_tokens", "cached"], ["cache_write_tokens", "written"], ["reasoning_tokens", "reasoning"]];
const partOf = (spent, name) => spent.reduce((sum, one) => sum + (one[name] ?? 0), 0);
function partsOf(spent) {
    const shown = PARTS.map(([name, words]) => [partOf(spent, name), words]).filter(([count]) => count > 0);
    return shown.length > 0 ? ` (${shown.map(([count, words]) => `${grouped(count)} ${words}`).join(", ")})` : "";
}
function costOf(spent) {
    let sum = 0;
    for (const { cost } of spent) {
        if (cost === null)
            return undefined;
        sum += cost;
    }
    return sum;
}
function tree(root, isOpen = () => true) {
    const found = [];
    const left = [root];
    for (let row = left.pop(); row; row = left.pop()) {
        found.push(row);
        if (isOpen(row))
            left.push(...(below.get(row.at) ?? []).toReversed());
    }
    return found;
}
function treeOf(row) {
    const known = trees.get(row.at);
    if (known)
        return known;
    let root = row;
    for (let above = parentOf(row); above; above = parentOf(above))
        root = above;
    const nodes = tree(root);
    const ended = nodes.reduce((latest, { began, seconds }) => Math.max(latest, began + seconds), -Infinity);
    const whole = { root, levels: new Map(), seconds: ended - root.began, cost: costOf(nodes.flatMap(({ spent }) => spent)) };
    for (const node of nodes) {
        whole.levels.set(node.at, node === root ? 0 : whole.levels.get(node.parent) + 1);
        trees.set(node.at, whole);
    }
    return whole;
}
const firstLine = (text) => text.trimStart().split("\n", 1)[0];
const number = (name, key, shown = grouped) => ({ name, isNumber: true, key, shown: (row) => { const value = key(row); return typeof value === "number" ? shown(value) : ""; } });
const words = (name, key) => ({ name, isNumber: false, key, shown: key });
const COLUMNS = [
    words("rollout", (row) => row.id),
    words("state", (row) => row.state),
    number("score", (row) => row.score, (score) => String(Number(score.toPrecision(6)))),
    number("turns", (row) => row.turns),
    number("calls", (row) => row.calls),
    number("tokens", tokensOf),
    ...PARTS.map(([name, words]) => number(words, (row) => partOf(row.spent, name) || undefined)),
    number("USD", (row) => costOf(row.spent), usd),
    number("time", (row) => row.seconds, duration),
    words("question", (row) => firstLine(row.question)),
    words("answer", (row) => firstLine(row.answer ?? "")),
];
const OPTIONAL = ["score", ...PARTS.map(([, words]) => words)];
let sortedBy;
const unfolded = new Set();
let found;
let wantedState = "";
const ROWS_AT_ONCE = 200;
let limit = ROWS_AT_ONCE;
function compare(a, b) {
    if (typeof a === "number" && typeof b === "number")
        return a - b;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
}
const isFiltered = () => found !== undefined || wantedState !== "";
const passes = (row) => (wantedState === "" || row.state === wantedState) && (!found || found.has(row.at));
function shownRows() {
    const isFree = !isFiltered();
    const first = [...rows.values()].filter((row) => (isFree ? !parentOf(row) : passes(row)));
    if (sortedBy) {
        const { column, isDown } = sortedBy;
        const keyed = first.map((row) => ({ row, key: column.key(row) }));
        keyed.sort(({ key: a }, { key: b }) => {
            if (a === undefined || b === undefined)
                return Number(a === undefined) - Number(b === undefined);
            return isDown ? compare(b, a) : compare(a, b);
        });
        first.splice(0, first.length, ...keyed.map(({ row }) => row));
    }
    if (!isFree)
        return first;
    return first.flatMap((row) => tree(row, ({ at }) => unfolded.has(at)));
}
function bar(kind, title, start, width) {
    const inner = make("span", { class: `bar ${kind}`, style: `margin-left:${start.toFixed(2)}%;width:${width.toFixed(2)}%` });
    return make("span", { class: "track", title }, inner);
}
function barOf(row, column) {
    const { root, levels, seconds, cost: whole } = treeOf(row);
    if (levels.size === 1)
        return undefined;
    if (column.name === "time" && seconds > 0) {
        const start = Math.min(Math.max((row.began - root.began) / seconds, 0), 1);
        return bar("call", "when it ran", start * 100, Math.min(row.seconds / seconds, 1 - start) * 100);
    }
    const cost = costOf(row.spent);
    return column.name === "USD" && cost !== undefined && whole ? bar("money", "its part of the cost", 0, (cost / whole) * 100) : undefined;
}
function cell(row, column) {
    if (column.name === "rollout") {
        const level = levelOf(row);
        const children = below.get(row.at)?.length ?? 0;
        const td = make("td", { style: `padding-left:${Math.min(level, 20)}em` }, make("a", { href: `#r${row.at}` }, row.id));
        if (children > 0 && !isFiltered()) {
            const isOpen = unfolded.has(row.at);
            const fold = make("button", { type: "button", class: "fold", "aria-expanded": String(isOpen) }, `${isOpen ? "▾" : "▸"} ${grouped(children)}`);
            fold.title = counted(children, "rollout") + " below it";
            fold.addEventListener("click", () => { isOpen ? unfolded.delete(row.at) : unfolded.add(row.at); drawOverview(); });
            td.append(" ", fold);
        }
        return td;
    }
    const isBad = row.has_ended && row.state !== "branched";
    const kind = column.name === "state" ? (row.is_answered ? "good" : isBad ? "bad" : "notice") : column.isNumber ? "number" : "words";
    const td = make("td", { class: kind, "data-column": column.name }, column.shown(row));
    const track = barOf(row, column);
    if (track)
        td.append(track);
    return td;
}
function totals(shown) {
    const spent = shown.flatMap((row) => row.spent);
    const running = shown.filter((row) => !row.has_ended).length;
    const cost = costOf(spent);
    const known = spent.reduce((sum, one) => sum + (one.cost ?? 0), 0);
    const scores = shown.map((row) => row.score).filter((score) => score !== undefined);
    return [
        counted(shown.length, "rollout"),
        `${grouped(shown.filter((row) => row.is_answered).length)} answered`,
        ...(running ? [`${grouped(running)} without an end`] : []),
        ...(scores.length ? [`score ${(scores.reduce((sum, score) => sum + score, 0) / scores.length).toFixed(3)}`] : []),
        `${spent.some((one) => one.is_estimated) ? "~" : ""}${grouped(spent.reduce((sum, one) => sum + one.tokens, 0))} tokens${partsOf(spent)}`,
        cost !== undefined ? `${usd(cost)} USD` : known > 0 ? `at least ${usd(known)} USD` : "cost unknown",
    ].join(" · ");
}
function histogram(of, values, shown) {
    const least = values.reduce((a, b) => Math.min(a, b), Infinity);
    const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    if (values.length < 10 || !(most > least))
        return [];
    const counts = new Array(24).fill(0);
    const width = (most - least) / counts.length;
    for (const value of values)
        counts[Math.min(Math.floor((value - least) / width), counts.length - 1)]++;
    const highest = Math.max(...counts);
    const bars = counts.map((count, at) => make("span", {
        style: `height:${(count / highest) * 100}%`,
        title: `${counted(count, "rollout")}: ${shown(least + width * at)} to ${shown(least + width * (at + 1))}`,
    }));
    return [make("figure", {}, make("figcaption", {}, `${of}: ${shown(least)} to ${shown(most)}`), make("div", { class: "histogram", "aria-hidden": "true" }, ...bars))];
}
const headings = new Map(COLUMNS.map((column) => {
    const button = make("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
        sortedBy = { column, isDown: sortedBy?.column === column && !sortedBy.isDown };
        drawOverview();
    });
    return [column, make("th", { scope: "col", class: column.isNumber && "number" }, button)];
}));
const atEnd = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting))
        return;
    limit += ROWS_AT_ONCE;
    drawOverview();
}, { rootMargin: "600px" });
const head = make("tr", {});
const body = make("tbody", {});
const table = make("table", { class: "overview" }, make("thead", {}, head), body);
const sums = make("p", { class: "totals" });
const distributions = make("div", { class: "histograms" });
const more = make("p", { class: "more" });
const drawn = new Map();
function rowOf(row, columns) {
    const whole = treeOf(row);
    const of = [unfolded.has(row.at), isFiltered(), columns.length].join();
    const known = drawn.get(row.at);
    if (known?.whole === whole && known.of === of)
        return known.tr;
    const made = make("tr", { "data-at": row.at }, ...columns.map((column) => cell(row, column)));
    const tr = known?.tr.isEqualNode(made) ? known.tr : made;
    drawn.set(row.at, { whole, of, tr });
    return tr;
}
function focused() {
    const element = document.activeElement;
    const row = element?.closest(".overview tr[data-at]");
    return row ? `[data-at="${row.dataset.at}"] ${element.matches(".fold") ? ".fold" : "a"}` : undefined;
}
function drawStates() {
    if (document.activeElement === one("#state"))
        return;
    const counts = new Map(wantedState === "" ? [] : [[wantedState, 0]]);
    for (const row of rows.values())
        counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
    const states = [...counts].sort(([, a], [, b]) => b - a);
    one("#state").replaceChildren(make("option", { value: "" }, "all"), ...states.map(([name, count]) => make("option", { value: name, selected: name === wantedState }, `${name} (${grouped(count)})`)));
}
function drawOverview() {
    const shown = shownRows();
    one("#shown").textContent = isFiltered() ? `${grouped(shown.length)} of ${grouped(rows.size)}` : "";
    if (place().kind !== "overview")
        return;
    const columns = COLUMNS.filter((column) => !OPTIONAL.includes(column.name) || [...rows.values()].some((row) => column.key(row) !== undefined));
    const of = isFiltered() ? shown : [...rows.values()];
    const costs = of.map((row) => costOf(row.spent)).filter((cost) => cost !== undefined);
    sums.textContent = totals(of);
    distributions.replaceChildren(...histogram("cost", costs, (cost) => `${usd(cost)} USD`), ...histogram("time", of.map((row) => row.seconds), duration));
    for (const [column, th] of headings) {
        if (sortedBy?.column === column)
            th.ariaSort = sortedBy.isDown ? "descending" : "ascending";
        else
            th.removeAttribute("aria-sort");
    }
    const had = focused();
    arrange(head, columns.map((column) => headings.get(column)));
    arrange(body, shown.slice(0, limit).map((row) => rowOf(row, columns)));
    more.textContent = `${grouped(shown.length - limit)} more`;
    arrange(main, [sums, distributions, table, ...(shown.length > limit ? [more] : [])]);
    if (had && document.activeElement === document.body)
        body.querySelector(had)?.focus({ preventScroll: true });
    atEnd.disconnect();
    if (shown.length > limit)
        atEnd.observe(more);
}
async function asked(path, signal) {
    const response = await fetch(path, { signal });
    if (!response.ok)
        throw new Error(`${response.status}: ${await response.text()}`);
    return response;
}
async function htmlOf(at, signal) {
    if (isLive)
        return (await asked(`${location.pathname}/body?at=${at}`, signal)).text();
    return one(`#body${at}`).textContent;
}
async function articleOf(at, signal) {
    const template = document.createElement("template");
    template.innerHTML = await htmlOf(at, signal);
    return marked(template.content.querySelector("article"));
}
const came = new WeakMap();
function marked(whole) {
    for (const part of whole.children)
        came.set(part, part.outerHTML);
    return whole;
}
const nameOf = (part, at) => part.dataset.number ?? part.dataset.part ?? `${part.tagName} ${at}`;
function kept(same, part) {
    const [was, now] = [same && came.get(same), came.get(part)];
    if (!same || was === undefined || now === undefined)
        return part;
    if (was === now)
        return same;
    came.set(same, now);
    const template = document.createElement("template");
    template.innerHTML = was;
    return become(same, template.content.firstElementChild, part);
}
const keyOf = (node) => (node instanceof HTMLElement ? node.dataset.key : undefined);
function partnerIn(nodes) {
    const keyed = new Map(nodes.map((node) => [keyOf(node), node]));
    return (node, at) => {
        const key = keyOf(node);
        if (key !== undefined)
            return keyed.get(key);
        return keyOf(nodes[at]) === undefined ? nodes[at] : undefined;
    };
}
const isMadeHere = (node) => node instanceof Element && node.matches(".children, .money > table");
function become(live, was, now) {
    if (was.isEqualNode(now))
        return live;
    if (live.nodeName !== now.nodeName || was.nodeName !== now.nodeName)
        return now;
    if (!(live instanceof Element && was instanceof Element && now instanceof Element)) {
        live.nodeValue = now.nodeValue;
        return live;
    }
    for (const { name } of was.attributes)
        if (name !== "open" && !now.hasAttribute(name))
            live.removeAttribute(name);
    for (const { name, value } of now.attributes)
        if (name !== "open")
            live.setAttribute(name, value);
    if (live.matches("pre"))
        live.replaceChildren(...now.childNodes);
    else {
        const lives = [...live.childNodes].filter((node) => !isMadeHere(node));
        const [same, before] = [partnerIn(lives), partnerIn([...was.childNodes])];
        const parts = [...now.childNodes].map((node, at) => {
            const [there, old] = [same(node, at), before(node, at)];
            return there && old ? become(there, old, node) : node;
        });
        arrange(live, [...parts, ...[...live.childNodes].filter(isMadeHere)]);
    }
    return live;
}
function update(before, article) {
    before.dataset.language = article.dataset.language ?? "";
    const parts = (of) => [...of.children].filter((part) => part instanceof HTMLElement);
    const known = new Map(parts(before).map((part, at) => [nameOf(part, at), part]));
    const parted = parts(article).map((part, at) => kept(known.get(nameOf(part, at)), part));
    arrange(before, [...parted, ...all(":scope > .children", before)]);
}
function moneyOf(row) {
    const sums = new Map();
    const level = levelOf(row);
    for (const node of tree(row)) {
        for (const spent of node.spent) {
            const depth = levelOf(node) - level;
            const key = `${depth} ${spent.model}`;
            const sum = sums.get(key) ?? { level: depth, model: spent.model, requests: 0, tokens: 0, is_estimated: false, cost: 0 };
            for (const [name] of PARTS)
                sum[name] = (sum[name] ?? 0) + (spent[name] ?? 0);
            sum.requests += spent.requests;
            sum.tokens += spent.tokens;
            sum.is_estimated ||= spent.is_estimated;
            sum.cost = sum.cost === null || spent.cost === null ? null : sum.cost + spent.cost;
            sums.set(key, sum);
        }
    }
    const hasLevels = below.has(row.at);
    const parts = PARTS.filter(([name]) => partOf([...sums.values()], name) > 0);
    const line = (cells, tag) => make("tr", {}, ...cells.slice(hasLevels ? 0 : 1).map((text) => make(tag, {}, text)));
    const lines = [...sums.values()].sort((a, b) => a.level - b.level).map((sum) => line([
        String(sum.level), sum.model, grouped(sum.requests), `${sum.is_estimated ? "~" : ""}${grouped(sum.tokens)}`, ...parts.map(([name]) => grouped(sum[name] ?? 0)), sum.cost === null ? "unknown" : usd(sum.cost),
    ], "td"));
    return make("table", {}, line(["depth", "model", "requests", "tokens", ...parts.map(([, words]) => words), "USD"], "th"), ...lines);
}
const factsOf = (row) => {
    const cost = costOf(row.spent);
    return [row.state, counted(row.turns, "turn"), duration(row.seconds), ...(cost === undefined ? [] : [`${usd(cost)} USD`])].join(" · ");
};
function linkTo(row, there) {
    const of = `${instance} ${row.stamp}`;
    if (there?.dataset.of === of)
        return there;
    const made = make("li", { "data-of": of }, make("a", { href: `#r${row.at}` }, row.id), " ", make("span", { class: "facts" }, factsOf(row)), make("span", { class: "asked" }, `${firstLine(row.question)} → ${firstLine(row.answer ?? "…")}`));
    if (!there)
        return made;
    arrange(there, [there.firstChild, ...[...made.childNodes].slice(1)]);
    there.dataset.of = of;
    return there;
}
function linkChildren(row, article, lists) {
    const byCall = new Map();
    for (const child of below.get(row.at) ?? [])
        add(byCall, child.call === null ? "" : `${child.turn} ${child.call}`, child);
    const keyOf = (call) => `${call.closest(".turn")?.dataset.number} ${call.dataset.call}`;
    const calls = new Map(all(".call", article).map((element) => [keyOf(element), element]));
    const there = new Map(lists.map((list) => [list.dataset.of ?? "", list]));
    for (const [call, list] of there)
        if (!byCall.has(call))
            list.remove();
    for (const [call, children] of byCall) {
        const within = calls.get(call)?.querySelector(".gave") ?? article;
        const list = there.get(call) ?? make("details", { class: "children", "data-of": call, "data-part": "children" }, make("summary", {}), make("ul", {}));
        const links = new Map(all("a", list).map((link) => [link.hash, link.parentElement]));
        list.querySelector("summary").textContent = `${counted(children.length, "rollout")} below it`;
        arrange(list.querySelector("ul"), children.map((child) => linkTo(child, links.get(`#r${child.at}`))));
        if (list.parentElement !== within)
            within.append(list);
    }
}
const MOST_OTHERS = 200;
function othersOf(row) {
    const others = [...rows.values()].filter((other) => other !== row && other.asks === row.asks && (other.parent === null) === (row.parent === null));
    return others.slice(0, MOST_OTHERS);
}
function whenChosen(select, shown, act) {
    let isByKey = false;
    const choose = () => { if (select.value !== shown)
        act(select.value); };
    for (const kind of ["keydown", "keypress"]) {
        select.addEventListener(kind, ({ key }) => {
            isByKey = key !== "Enter";
            setTimeout(() => (isByKey = false));
            if (key === "Enter")
                choose();
        });
    }
    select.addEventListener("change", () => { if (!isByKey)
        choose(); });
    select.addEventListener("blur", () => (select.value = shown));
}
function navigation(row) {
    const nav = make("nav", { "aria-label": "rollouts" });
    if (rows.size > 1)
        nav.append(make("a", { href: "#" }, `all ${grouped(rows.size)} rollouts`));
    const above = parentOf(row);
    if (above)
        nav.append(make("a", { href: `#r${above.at}` }, `above: ${above.id}`));
    const others = othersOf(row);
    if (others.length > 0) {
        const select = make("select", { id: "other", "aria-label": "compare with another attempt" }, make("option", { value: "" }, "compare with …"), ...others.map((other) => make("option", { value: other.at }, `${other.id}: ${factsOf(other)}`)));
        whenChosen(select, "", (other) => (location.hash = `#compare=${row.at},${other}`));
        nav.append(select);
    }
    return nav;
}
function navigationOf(row) {
    const [nav, there] = [navigation(row), main.querySelector("nav")];
    return there && (there.outerHTML === nav.outerHTML || there.querySelector("select:focus")) ? there : nav;
}
function arrangeRollout(row, article) {
    const href = main.querySelector("nav > a:focus")?.getAttribute("href");
    const nav = navigationOf(row);
    arrange(main, [nav, article]);
    if (href)
        nav.querySelector(`a[href="${href}"]`)?.focus({ preventScroll: true });
}
function drawBelow(row, article, lists = all("details.children", article)) {
    const money = article.querySelector(".money");
    const [made, table] = [moneyOf(row), money.querySelector("table")];
    if (!table?.isEqualNode(made)) {
        table?.remove();
        money.append(made);
    }
    linkChildren(row, article, lists);
}
let leaving = new AbortController();
function leave() {
    leaving.abort();
    leaving = new AbortController();
}
function again(work) {
    let [isRunning, isOld] = [false, false];
    return async () => {
        isOld = true;
        if (isRunning)
            return;
        isRunning = true;
        try {
            while (isOld) {
                isOld = false;
                await work();
            }
        }
        finally {
            isRunning = false;
        }
    };
}
const NEXT_TRY = 2000;
const atsOf = (now) => (now.kind === "rollout" ? [now.at] : now.ats);
const shownOf = (now) => main.querySelector(now.kind === "rollout" ? `article[data-at="${now.at}"]` : `.comparison[data-of="${now.ats}"]`);
async function draw(now, { signal }) {
    const absent = atsOf(now).find((at) => !rows.has(at));
    if (absent !== undefined)
        return missing(absent);
    try {
        const articles = await Promise.all(atsOf(now).map((at) => articleOf(at, signal)));
        if (signal.aborted)
            return;
        tell("");
        if (now.kind === "rollout")
            drawRollout(now, articles[0]);
        else
            drawComparison(now, articles);
    }
    catch (error) {
        if (signal.aborted)
            return;
        if (!shownOf(now))
            main.replaceChildren();
        trouble(error);
        const next = setTimeout(redraw, NEXT_TRY);
        signal.addEventListener("abort", () => clearTimeout(next));
    }
}
let redraw = async () => { };
function show(now) {
    leave();
    const shown = leaving;
    redraw = again(() => draw(now, shown));
    redraw();
}
function drawRollout(now, article) {
    const row = rows.get(now.at);
    const before = shownOf(now);
    const whole = before ?? article;
    const lists = all("details.children", whole);
    const had = document.activeElement;
    if (before)
        update(before, article);
    drawBelow(row, whole, lists);
    colourAll(whole);
    arrangeRollout(row, whole);
    document.title = `${row.id} · ${TITLE}`;
    if (!before)
        return begin();
    if (had instanceof HTMLElement && had.isConnected && had !== document.activeElement)
        had.focus({ preventScroll: true });
}
function begin() {
    if (showTurn())
        return;
    scrollTo(0, 0);
    const heading = main.querySelector("h2");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
}
function missing(at) {
    if (main.querySelector(`[data-missing="${at}"]`))
        return;
    main.replaceChildren(make("p", { "data-missing": at }, `no rollout ${at} on this page`), make("p", {}, make("a", { href: "#" }, "all rollouts")));
}
function drawComparison(now, articles) {
    const [left, right] = now.ats.map((at) => rows.get(at));
    const part = (at, name) => articles[at].querySelector(`[data-part="${name}"]`);
    const heads = [left, right].map((row, at) => marked(make("div", {}, make("h2", {}, make("a", { href: `#r${row.at}` }, row.id)), make("p", { class: "facts" }, factsOf(row)), part(at, "end"))));
    const turns = articles.map((article) => new Map(all("details.turn", article).map((turn) => [Number(turn.dataset.number), turn])));
    articles.forEach(colourAll);
    const numbers = [...new Set(turns.flatMap((of) => [...of.keys()]))].sort((a, b) => a - b);
    const before = shownOf(now);
    const there = new Map(all(".comparison > *").map((part) => [part.dataset.cell, part]));
    const cells = numbers.flatMap((number) => turns.map((of, at) => {
        const turn = of.get(number) ?? make("p", {}, make("span", {}, `no turn ${number}`));
        turn.dataset.cell = `${number} ${at}`;
        (turn.querySelector("summary") ?? turn).append(make("span", { class: "facts" }, ` · ${[left, right][at].id}`));
        return before ? kept(there.get(turn.dataset.cell), turn) : turn;
    }));
    if (before) {
        const known = [...before.children].slice(0, 2);
        known.forEach((head, at) => update(head, heads[at]));
        return arrange(before, [...known, ...cells]);
    }
    main.replaceChildren(make("nav", { "aria-label": "rollouts" }, make("a", { href: "#" }, "all rollouts")), part(0, "question"), make("div", { class: "comparison", "data-of": String(now.ats) }, ...heads, ...cells));
    document.title = `${left.id} and ${right.id} · ${TITLE}`;
    begin();
}
function place() {
    const two = /^#compare=(\d+),(\d+)$/.exec(location.hash);
    if (two)
        return { kind: "comparison", ats: [Number(two[1]), Number(two[2])] };
    const single = /^#r(\d+)(t\d+)?$/.exec(location.hash);
    if (single)
        return { kind: "rollout", at: Number(single[1]), ...(single[2] ? { turn: single[2] } : {}) };
    const [only] = rows.values();
    return only && rows.size === 1 ? { kind: "rollout", at: only.at } : { kind: "overview" };
}
const TITLE = document.title;
let overviewTop = 0;
let last = { kind: "overview" };
function go() {
    const now = place();
    if (last.kind === "overview" && now.kind !== "overview")
        overviewTop = scrollY;
    const isSame = last.kind === "rollout" && now.kind === "rollout" && last.at === now.at && shownOf(now);
    last = now;
    tell("");
    drawStates();
    if (isSame) {
        showTurn();
    }
    else if (now.kind === "overview") {
        leave();
        document.title = TITLE;
        drawOverview();
        scrollTo(0, overviewTop);
    }
    else {
        show(now);
    }
}
function showTurn(turn = document.getElementById(location.hash.slice(1))) {
    if (!(turn instanceof HTMLDetailsElement))
        return false;
    turn.open = true;
    turn.scrollIntoView();
    turn.querySelector("summary")?.focus({ preventScroll: true });
    return true;
}
let ofFile = "";
function tell(words) {
    const shown = [ofFile, words].filter(Boolean).join("; ");
    one("#trouble").textContent = shown;
    one("#trouble").hidden = shown === "";
}
const trouble = (error) => tell(String(error));
addEventListener("hashchange", () => {
    isTyped = false;
    go();
});
addEventListener("click", ({ target }) => {
    if (target instanceof HTMLAnchorElement && target.href === location.href)
        go();
});
const texts = new Map();
const ENTITIES = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };
function textOf(row) {
    let text = texts.get(row.at);
    if (text === undefined) {
        const whole = one(`#body${row.at}`).textContent;
        const html = [...whole.matchAll(/<pre[^>]*>([^]*?)<\/pre>/g)].map(([, text]) => text).join(" ");
        text = `${row.id} ${html.replace(/<span class="left-out">[^<]*<\/span>/g, " ").replace(/&(?:lt|gt|quot|#39|amp);/g, (entity) => ENTITIES[entity])}`.toLowerCase();
        texts.set(row.at, text);
    }
    return text;
}
let searching = new AbortController();
let isTyped = false;
async function search() {
    searching.abort();
    const { signal } = (searching = new AbortController());
    const typed = one("#search").value.toLowerCase();
    const wanted = typed.split(/\s+/).filter(Boolean);
    let hits;
    if (wanted.length > 0 && isLive) {
        try {
            hits = new Set(await (await asked(`${location.pathname}/search?${new URLSearchParams({ words: wanted.join(" ") })}`, signal)).json());
        }
        catch (error) {
            if (!signal.aborted)
                throw error;
        }
    }
    else if (wanted.length > 0) {
        hits = new Set();
        let pause = performance.now() + 30;
        for (const row of rows.values()) {
            if (wanted.every((word) => textOf(row).includes(word)))
                hits.add(row.at);
            if (performance.now() > pause) {
                await new Promise((resume) => setTimeout(resume));
                if (signal.aborted)
                    return;
                pause = performance.now() + 30;
            }
        }
    }
    if (signal.aborted)
        return;
    tell("");
    found = hits;
    if (isTyped)
        refilter();
    else
        drawOverview();
    isTyped = false;
}
function refilter() {
    limit = ROWS_AT_ONCE;
    if (place().kind !== "overview" && rows.size > 1)
        location.hash = "#";
    drawOverview();
}
let waiting = 0;
one("#search").addEventListener("input", () => {
    searching.abort();
    isTyped = true;
    clearTimeout(waiting);
    waiting = setTimeout(() => search().catch(trouble), 150);
});
function leaveSearch() {
    clearTimeout(waiting);
    const field = one("#search");
    field.value = "";
    field.blur();
    isTyped = false;
    search().catch(trouble);
}
one("#state").addEventListener("change", (event) => {
    wantedState = event.target.value;
    drawStates();
    refilter();
});
const WORDS = {
    python: /(?<comment>#.*)|(?<text>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<number>\b\d[\w.]*)/g,
    bash: /(?<comment>(?<=^|\s)#.*)|(?<text>"(?:\\[^]|[^"\\])*"|'[^']*')|(?<word>\b(?:case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while)\b|\$\w+|\$\{[^}]*\})|(?<number>(?<![\w.])\d+(?![\w.]))/gm,
};
const MAX_COLOURED = 20_000;
function colour(code, words) {
    if (code.querySelector("[class^=code-]") || getSelection()?.containsNode(code, true))
        return;
    for (const node of [...code.childNodes]) {
        if (!(node instanceof Text) || node.length > MAX_COLOURED)
            continue;
        const parts = [];
        let end = 0;
        for (const found of node.data.matchAll(words)) {
            const kind = Object.entries(found.groups).find(([, text]) => text !== undefined)[0];
            parts.push(node.data.slice(end, found.index), make("span", { class: `code-${kind}` }, found[0]));
            end = found.index + found[0].length;
        }
        if (end > 0)
            node.replaceWith(...parts, node.data.slice(end));
    }
}
const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
        if (!isIntersecting)
            continue;
        inView.unobserve(target);
        const words = WORDS[target.closest("[data-language]")?.dataset.language ?? ""];
        if (words)
            colour(target, words);
    }
}, { rootMargin: "400px" });
function colourAll(article) {
    for (const turn of all("details.turn", article))
        turn.dataset.language = article.dataset.language ?? "";
    for (const code of all("pre.repl", article))
        inView.observe(code);
}
function step(by) {
    const isOverview = place().kind === "overview";
    const stops = all(isOverview ? ".overview tbody a" : "details.turn", main);
    const focused = stops.findIndex((stop) => stop.contains(document.activeElement));
    const passed = stops.filter((stop) => stop.getBoundingClientRect().top < (by > 0 ? 8 : -8)).length;
    const next = focused >= 0 ? focused + by : isOverview ? (by > 0 ? 0 : -1) : by > 0 ? passed : passed - 1;
    const stop = stops[next];
    if (!stop)
        return;
    if (isOverview)
        return stop.focus();
    showTurn(stop);
    const now = place();
    if (stop.id && now.kind === "rollout")
        history.replaceState(null, "", `#${stop.id}`);
}
function stepRollout(by) {
    const now = place();
    if (now.kind !== "rollout")
        return;
    const isThis = (row) => row.at === now.at;
    const shown = shownRows();
    const order = shown.some(isThis) ? shown : [...rows.values()].filter((row) => !parentOf(row)).flatMap((row) => tree(row));
    const next = order[order.findIndex(isThis) + by];
    if (next)
        location.hash = `#r${next.at}`;
}
function openAll() {
    const turns = all("details.turn", main);
    const isOpening = turns.some((turn) => !turn.open);
    for (const turn of turns)
        turn.open = isOpening;
}
const help = one("#help");
one("#keys").addEventListener("click", () => help.showModal());
one("#close").addEventListener("click", () => help.close());
const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    n: () => stepRollout(1),
    p: () => stepRollout(-1),
    o: openAll,
    "/": () => one("#search").focus(),
    "?": () => help.showModal(),
    Escape: () => { if (rows.size > 1)
        location.hash = "#"; },
};
document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (help.open)
        return;
    if (event.key === "Escape" && field.id === "search")
        return leaveSearch();
    if (event.key === "Escape" && field.matches("select"))
        return field.blur();
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || field.matches("input, select, textarea"))
        return;
    event.preventDefault();
    act();
});
let instance = "";
const searchAgain = again(async () => {
    await new Promise((resume) => setTimeout(resume, 1000));
    if (one("#search").value.trim() !== "")
        await search();
});
const idsOf = (now) => (now.kind === "overview" ? "" : atsOf(now).map((at) => rows.get(at)?.id).join(" "));
function hear({ instance: now, rows: changed }) {
    const isAnew = now !== instance;
    const before = place();
    const wasShown = idsOf(before);
    if (isAnew) {
        instance = now;
        for (const known of [rows, below, trees])
            known.clear();
        if (found)
            found = new Set();
    }
    take(changed);
    const isStill = idsOf(before) === wasShown;
    if (isStill && before.kind === "rollout" && place().kind === "overview")
        history.replaceState(null, "", `#r${before.at}`);
    (isAnew ? search : searchAgain)().catch(trouble);
    drawStates();
    const here = place();
    const isTouched = (at) => changed.some((row) => row.at === at);
    if ((isAnew && !isStill) || here.kind !== last.kind) {
        main.replaceChildren();
        go();
    }
    else if (here.kind === "overview") {
        drawOverview();
    }
    else if (isAnew) {
        show(here);
    }
    else if (!shownOf(here) || atsOf(here).some(isTouched)) {
        redraw();
    }
    else if (here.kind === "rollout") {
        const [row, article] = [rows.get(here.at), shownOf(here)];
        if (!trees.has(here.at))
            drawBelow(row, article);
        arrangeRollout(row, article);
    }
}
let events;
let nextTry = 0;
function listen() {
    clearTimeout(nextTry);
    events?.close();
    if (document.hidden)
        return;
    const stream = (events = new EventSource(`${location.pathname}/events`));
    const live = one("#live");
    stream.addEventListener("open", () => {
        live.textContent = "live";
        tell("");
    });
    stream.addEventListener("rows", (event) => hear(JSON.parse(event.data)));
    stream.addEventListener("trouble", (event) => {
        const words = JSON.parse(event.data);
        live.textContent = words === null ? "live" : "";
        ofFile = words ?? "";
        tell("");
    });
    stream.addEventListener("error", () => {
        live.textContent = "reconnecting …";
        if (stream.readyState !== EventSource.CLOSED)
            return;
        asked(`${location.pathname}/events`).then((answer) => answer.body?.cancel()).catch(trouble);
        nextTry = setTimeout(listen, NEXT_TRY);
    });
}
if (isLive)
    document.addEventListener("visibilitychange", listen);
async function listRuns() {
    const base = location.pathname.split("/").slice(0, -2).join("/");
    const runs = await (await asked(`${base}/runs`)).json();
    const select = one("#runs");
    const there = new Map([...select.options].map((option) => [option.value, option]));
    arrange(select, runs.map(({ path, words }) => {
        const option = there.get(path) ?? make("option", { value: path, selected: path === location.pathname });
        if (option.textContent !== words)
            option.textContent = words;
        return option;
    }));
    select.hidden = runs.length < 2;
}
take(JSON.parse(one("#rows").textContent));
if (isLive) {
    main.replaceChildren(make("p", {}, "reading …"));
    listen();
    listRuns().catch(trouble);
    const runs = one("#runs");
    whenChosen(runs, location.pathname, (path) => (location.href = path));
    const again = () => listRuns().catch(() => { });
    runs.addEventListener("focus", again);
    runs.parentElement.addEventListener("pointerenter", again);
}
else {
    go();
}
