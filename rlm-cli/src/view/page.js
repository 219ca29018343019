"use strict";
const find = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);
const groups = [];
for (const row of find(".overview tbody tr")) {
    if (Number(row.dataset.level) > 0 && groups.length > 0)
        groups.at(-1).push(row);
    else
        groups.push([row]);
}
function key(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent ?? "";
    return text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}
function compare(a, b) {
    if (typeof a === "number" && typeof b === "number")
        return a - b;
    if (typeof a !== typeof b)
        return typeof a === "number" ? -1 : 1;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
}
function sortBy(heading) {
    const isDown = heading.ariaSort === "ascending";
    for (const other of find(".overview th"))
        other.removeAttribute("aria-sort");
    heading.ariaSort = isDown ? "descending" : "ascending";
    const keyed = groups.map((rows) => ({ rows, key: key(rows[0], heading.cellIndex) }));
    keyed.sort((a, b) => (isDown ? compare(b.key, a.key) : compare(a.key, b.key)));
    one(".overview tbody").append(...keyed.flatMap(({ rows }) => rows));
}
for (const button of find(".overview th button")) {
    button.addEventListener("click", () => sortBy(button.parentElement));
}
const rollouts = find("details.rollout");
const rows = new Map(groups.flat().map((row) => [row.dataset.rollout, row]));
const texts = new Map();
function textOf(rollout) {
    let text = texts.get(rollout);
    if (text === undefined)
        texts.set(rollout, (text = (rollout.textContent ?? "").toLowerCase()));
    return text;
}
function filter() {
    const words = one("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = document.querySelector("#state")?.value ?? "";
    let shown = 0;
    for (const rollout of rollouts) {
        const isShown = (state === "" || rollout.dataset.state === state) && words.every((word) => textOf(rollout).includes(word));
        rollout.hidden = !isShown;
        const row = rows.get(rollout.dataset.rollout);
        if (row)
            row.hidden = !isShown;
        shown += Number(isShown);
    }
    one("#shown").textContent = shown === rollouts.length ? "" : `${shown} of ${rollouts.length}`;
}
let waiting = 0;
one("#search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 150);
});
document.querySelector("#state")?.addEventListener("change", filter);
const WORDS = {
    python: /(?<comment>#.*)|(?<text>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<number>\b\d[\w.]*)/g,
    bash: /(?<comment>(?<=^|\s)#.*)|(?<text>"(?:\\[^]|[^"\\])*"|'[^']*')|(?<word>\b(?:case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while)\b|\$\w+|\$\{[^}]*\})|(?<number>(?<![\w.])\d+(?![\w.]))/gm,
};
const MAX_COLOURED = 100_000;
function colour(code, words) {
    for (const node of [...code.childNodes]) {
        if (!(node instanceof Text) || node.length > MAX_COLOURED)
            continue;
        const parts = [];
        let end = 0;
        for (const found of node.data.matchAll(words)) {
            const kind = Object.entries(found.groups).find(([, text]) => text !== undefined)[0];
            const span = document.createElement("span");
            span.className = `code-${kind}`;
            span.textContent = found[0];
            parts.push(node.data.slice(end, found.index), span);
            end = found.index + found[0].length;
        }
        if (end > 0)
            node.replaceWith(...parts, node.data.slice(end));
    }
}
function open(rollout) {
    const words = WORDS[rollout.dataset.language ?? ""];
    if (!rollout.open || rollout.dataset.isColoured || !words)
        return;
    rollout.dataset.isColoured = "yes";
    for (const code of find("pre.repl", rollout))
        colour(code, words);
}
for (const rollout of rollouts) {
    rollout.addEventListener("toggle", () => open(rollout));
    open(rollout);
}
function step(by) {
    const turns = find("details.rollout[open]:not([hidden]) details.turn");
    const passed = turns.filter((turn) => turn.getBoundingClientRect().top < (by > 0 ? 8 : -8)).length;
    const turn = turns[by > 0 ? passed : passed - 1];
    if (!turn)
        return;
    turn.scrollIntoView();
    turn.querySelector("summary").focus({ preventScroll: true });
    history.replaceState(null, "", `#${turn.id}`);
}
function openAll() {
    const shown = rollouts.filter((rollout) => !rollout.hidden);
    const isOpening = shown.some((rollout) => !rollout.open);
    for (const rollout of shown)
        rollout.open = isOpening;
}
const help = one("#help");
one("#keys").addEventListener("click", () => help.showModal());
const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    o: openAll,
    "/": () => one("#search").focus(),
    "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key === "Escape" && field.id === "search")
        field.blur();
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || field.matches("input, select, textarea") || help.open)
        return;
    event.preventDefault();
    act();
});
document.body.classList.add("has-script");
