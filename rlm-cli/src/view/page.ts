// What draws the page. The overview has a row for each rollout; a rollout is drawn from its HTML when it is opened, since a browser
// takes ten thousand of them as text, but not as elements. A page that is served asks for them, and hears of changes.

/** Parts of tokens: prompt tokens that were cached, or written to a cache, and those of reasoning. Zeros are left out. */
interface Parts { cached_tokens?: number; cache_write_tokens?: number; reasoning_tokens?: number }

interface Spent extends Parts { model: string; requests: number; tokens: number; is_estimated: boolean; cost: number | null }

/** `asks` is the number of the first rollout with this question. */
interface Row {
  at: number; stamp: number; id: string; parent: number | null; turn: number | null; call: string | null; asks: number;
  state: string; is_answered: boolean; has_ended: boolean; turns: number; calls: number;
  began: number; seconds: number; question: string; answer: string | null; score?: number; spent: Spent[];
}

type Child = Node | string;

const one = <T extends HTMLElement>(selector: string): T => document.querySelector<T>(selector)!;
const all = <T extends Element>(selector: string, within: ParentNode = document): T[] => [...within.querySelectorAll<T>(selector)];

/** An element, with attributes that are neither false nor undefined. */
function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string | number | boolean | undefined>, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/** Makes these the children of an element, and leaves alone those that are: they keep focus, selection and scroll. */
function arrange(parent: Element, wanted: Node[]): void {
  const kept = new Set(wanted);
  for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove();
  wanted.forEach((node, at) => {
    if (parent.childNodes[at] !== node) parent.insertBefore(node, parent.childNodes[at] ?? null);
  });
}

/** Adds to one of the lists of a map. */
function add<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

const isLive = document.body.dataset.live !== undefined;
const main = one("#main");

// Words

const grouped = (count: number): string => count.toLocaleString("en-US");
const counted = (count: number, noun: string): string => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

function duration(seconds: number): string {
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 119.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return `${grouped(Math.floor(whole / 60))} min ${whole % 60} s`;
}

function usd(cost: number): string {
  return cost === 0 ? "0" : cost < 0.0001 ? "< 0.0001" : cost.toFixed(4);
}

// Rows

/** In the order of the file. */
const rows = new Map<number, Row>();

/** Those that the code of each has started. */
const below = new Map<number, Row[]>();

/** A rollout that a host has started, with all below it. */
interface Tree { root: Row; levels: Map<number, number>; seconds: number; cost: number | undefined }

/** The tree of each rollout, until one in it changes. */
const trees = new Map<number, Tree>();

function take(changed: Row[]): void {
  for (const row of changed) {
    if (!rows.has(row.at) && row.parent !== null) add(below, row.parent, row);
    for (const at of (trees.get(row.at) ?? trees.get(row.parent ?? -1))?.levels.keys() ?? []) trees.delete(at);
    const known = rows.get(row.at);
    if (known) Object.assign(known, row);
    else rows.set(row.at, row);
  }
}

const parentOf = (row: Row): Row | undefined => (row.parent === null ? undefined : rows.get(row.parent));
const levelOf = (row: Row): number => treeOf(row).levels.get(row.at)!;
const tokensOf = (row: Row): number => row.spent.reduce((sum, one) => sum + one.tokens, 0);

/** The names of the parts of tokens, and their words. */
const PARTS: [keyof Parts, string][] = [["cached_tokens", "cached"], ["cache_write_tokens", "written"], ["reasoning_tokens", "reasoning"]];

const partOf = (spent: Spent[], name: keyof Parts): number => spent.reduce((sum, one) => sum + (one[name] ?? 0), 0);

/** ` (11,000 cached, 500 reasoning)`; empty where all are 0. */
function partsOf(spent: Spent[]): string {
  const shown = PARTS.map(([name, words]) => [partOf(spent, name), words] as const).filter(([count]) => count > 0);
  return shown.length > 0 ? ` (${shown.map(([count, words]) => `${grouped(count)} ${words}`).join(", ")})` : "";
}

/** Undefined if a part of it is not known. */
function costOf(spent: Spent[]): number | undefined {
  let sum = 0;
  for (const { cost } of spent) {
    if (cost === null) return undefined;
    sum += cost;
  }
  return sum;
}

/** A rollout and those below it, to whatever depth; of those that `isOpen` says. */
function tree(root: Row, isOpen: (row: Row) => boolean = () => true): Row[] {
  const found: Row[] = [];
  const left = [root];
  for (let row = left.pop(); row; row = left.pop()) {
    found.push(row);
    if (isOpen(row)) left.push(...(below.get(row.at) ?? []).toReversed());
  }
  return found;
}

function treeOf(row: Row): Tree {
  const known = trees.get(row.at);
  if (known) return known;
  let root = row;
  for (let above = parentOf(row); above; above = parentOf(above)) root = above;
  const nodes = tree(root);
  // Those below may go on after it.
  const ended = nodes.reduce((latest, { began, seconds }) => Math.max(latest, began + seconds), -Infinity);
  const whole: Tree = { root, levels: new Map(), seconds: ended - root.began, cost: costOf(nodes.flatMap(({ spent }) => spent)) };
  for (const node of nodes) {
    whole.levels.set(node.at, node === root ? 0 : whole.levels.get(node.parent!)! + 1);
    trees.set(node.at, whole);
  }
  return whole;
}

/** The first one that is not blank. */
const firstLine = (text: string): string => text.trimStart().split("\n", 1)[0]!;

interface Column { name: string; isNumber: boolean; key: (row: Row) => string | number | undefined; shown: (row: Row) => string }

const number = (name: string, key: Column["key"], shown: (value: number) => string = grouped): Column =>
  ({ name, isNumber: true, key, shown: (row) => { const value = key(row); return typeof value === "number" ? shown(value) : ""; } });
const words = (name: string, key: (row: Row) => string): Column => ({ name, isNumber: false, key, shown: key });

const COLUMNS: Column[] = [
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

/** Columns that are left out where all rows have nothing in them. */
const OPTIONAL = ["score", ...PARTS.map(([, words]) => words)];

// Overview

let sortedBy: { column: Column; isDown: boolean } | undefined;
const unfolded = new Set<number>();

/** The rollouts that have what is searched for; undefined: all. */
let found: Set<number> | undefined;
let wantedState = "";

/** Rows that are drawn: more when the end of the table comes into view. */
const ROWS_AT_ONCE = 200;
let limit = ROWS_AT_ONCE;

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

const isFiltered = (): boolean => found !== undefined || wantedState !== "";
const passes = (row: Row): boolean => (wantedState === "" || row.state === wantedState) && (!found || found.has(row.at));

/** Rows to show: without a filter those that a host has started, with those below them that are unfolded. */
function shownRows(): Row[] {
  const isFree = !isFiltered();
  const first = [...rows.values()].filter((row) => (isFree ? !parentOf(row) : passes(row)));
  if (sortedBy) {
    const { column, isDown } = sortedBy;
    const keyed = first.map((row) => ({ row, key: column.key(row) }));
    keyed.sort(({ key: a }, { key: b }) => {
      // What is unknown comes last.
      if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
      return isDown ? compare(b, a) : compare(a, b);
    });
    first.splice(0, first.length, ...keyed.map(({ row }) => row));
  }
  if (!isFree) return first;
  return first.flatMap((row) => tree(row, ({ at }) => unfolded.has(at)));
}

function bar(kind: string, title: string, start: number, width: number): Node {
  const inner = make("span", { class: `bar ${kind}`, style: `margin-left:${start.toFixed(2)}%;width:${width.toFixed(2)}%` });
  return make("span", { class: "track", title }, inner);
}

/** When it ran, or its part of the cost, in its tree. */
function barOf(row: Row, column: Column): Node | undefined {
  const { root, levels, seconds, cost: whole } = treeOf(row);
  if (levels.size === 1) return undefined;
  if (column.name === "time" && seconds > 0) {
    const start = Math.min(Math.max((row.began - root.began) / seconds, 0), 1);
    return bar("call", "when it ran", start * 100, Math.min(row.seconds / seconds, 1 - start) * 100);
  }
  const cost = costOf(row.spent);
  return column.name === "USD" && cost !== undefined && whole ? bar("money", "its part of the cost", 0, (cost / whole) * 100) : undefined;
}

function cell(row: Row, column: Column): HTMLTableCellElement {
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
  const kind = column.name === "state" ? (row.is_answered ? "good" : row.has_ended ? "bad" : "notice") : column.isNumber ? "number" : "words";
  const td = make("td", { class: kind, "data-column": column.name }, column.shown(row));
  const track = barOf(row, column);
  if (track) td.append(track);
  return td;
}

function totals(shown: Row[]): string {
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

/** The distribution of a value, where there are ten of it that differ. */
function histogram(of: string, values: number[], shown: (value: number) => string): Node[] {
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (values.length < 10 || !(most > least)) return [];
  const counts = new Array<number>(24).fill(0);
  const width = (most - least) / counts.length;
  for (const value of values) counts[Math.min(Math.floor((value - least) / width), counts.length - 1)]!++;
  const highest = Math.max(...counts);
  const bars = counts.map((count, at) => make("span", {
    style: `height:${(count / highest) * 100}%`,
    title: `${counted(count, "rollout")}: ${shown(least + width * at)} to ${shown(least + width * (at + 1))}`,
  }));
  return [make("figure", {},
    make("figcaption", {}, `${of}: ${shown(least)} to ${shown(most)}`),
    make("div", { class: "histogram", "aria-hidden": "true" }, ...bars))];
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
  if (!entries.some((entry) => entry.isIntersecting)) return;
  limit += ROWS_AT_ONCE;
  drawOverview();
}, { rootMargin: "600px" });

/** The parts of the overview, which stay. */
const head = make("tr", {});
const body = make("tbody", {});
const table = make("table", { class: "overview" }, make("thead", {}, head), body);
const sums = make("p", { class: "totals" });
const distributions = make("div", { class: "histograms" });
const more = make("p", { class: "more" });

/** The row of a rollout, as it was drawn, and of what. */
const drawn = new Map<number, { whole: Tree; of: string; tr: HTMLTableRowElement }>();

function rowOf(row: Row, columns: Column[]): HTMLTableRowElement {
  const whole = treeOf(row);
  const of = [unfolded.has(row.at), isFiltered(), columns.length].join();
  const known = drawn.get(row.at);
  if (known?.whole === whole && known.of === of) return known.tr;
  const made = make("tr", { "data-at": row.at }, ...columns.map((column) => cell(row, column)));
  const tr = known?.tr.isEqualNode(made) ? known.tr : made;
  drawn.set(row.at, { whole, of, tr });
  return tr;
}

/** What has the focus, to give it to what takes its place. */
function focused(): string | undefined {
  const element = document.activeElement;
  const row = element?.closest<HTMLElement>(".overview tr[data-at]");
  return row ? `[data-at="${row.dataset.at}"] ${element!.matches(".fold") ? ".fold" : "a"}` : undefined;
}

function drawStates(): void {
  // Whoever chooses from the list goes on doing that.
  if (document.activeElement === one("#state")) return;
  const counts = new Map<string, number>(wantedState === "" ? [] : [[wantedState, 0]]);
  for (const row of rows.values()) counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  const states = [...counts].sort(([, a], [, b]) => b - a);
  one("#state").replaceChildren(
    make("option", { value: "" }, "all"),
    ...states.map(([name, count]) => make("option", { value: name, selected: name === wantedState }, `${name} (${grouped(count)})`)));
}

function drawOverview(): void {
  const shown = shownRows();
  one("#shown").textContent = isFiltered() ? `${grouped(shown.length)} of ${grouped(rows.size)}` : "";
  if (place().kind !== "overview") return;
  const columns = COLUMNS.filter((column) => !OPTIONAL.includes(column.name) || [...rows.values()].some((row) => column.key(row) !== undefined));
  const of = isFiltered() ? shown : [...rows.values()];
  const costs = of.map((row) => costOf(row.spent)).filter((cost) => cost !== undefined);
  sums.textContent = totals(of);
  distributions.replaceChildren(...histogram("cost", costs, (cost) => `${usd(cost)} USD`), ...histogram("time", of.map((row) => row.seconds), duration));
  for (const [column, th] of headings) {
    if (sortedBy?.column === column) th.ariaSort = sortedBy.isDown ? "descending" : "ascending";
    else th.removeAttribute("aria-sort");
  }
  const had = focused();
  arrange(head, columns.map((column) => headings.get(column)!));
  arrange(body, shown.slice(0, limit).map((row) => rowOf(row, columns)));
  more.textContent = `${grouped(shown.length - limit)} more`;
  arrange(main, [sums, distributions, table, ...(shown.length > limit ? [more] : [])]);
  if (had && document.activeElement === document.body) body.querySelector<HTMLElement>(had)?.focus({ preventScroll: true });
  atEnd.disconnect();
  if (shown.length > limit) atEnd.observe(more);
}

// A rollout

async function asked(path: string, signal?: AbortSignal): Promise<Response> {
  const response = await fetch(path, { signal });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return response;
}

/** The HTML of a rollout: all texts in it are escaped. */
async function htmlOf(at: number, signal: AbortSignal): Promise<string> {
  if (isLive) return (await asked(`${location.pathname}/body?at=${at}`, signal)).text();
  return one(`#body${at}`).textContent;
}

async function articleOf(at: number, signal: AbortSignal): Promise<HTMLElement> {
  const template = document.createElement("template");
  template.innerHTML = await htmlOf(at, signal);
  return marked(template.content.querySelector("article")!);
}

/** The HTML of the parts of a rollout, as they came. */
const came = new WeakMap<Element, string>();

function marked(whole: HTMLElement): HTMLElement {
  for (const part of whole.children) came.set(part, part.outerHTML);
  return whole;
}

/** What a part is, in each state of a rollout. */
const nameOf = (part: HTMLElement, at: number): string => part.dataset.number ?? part.dataset.part ?? `${part.tagName} ${at}`;

/** The part that is there, with what has changed of it; the new one where there is none. */
function kept(same: HTMLElement | undefined, part: HTMLElement): Node {
  const [was, now] = [same && came.get(same), came.get(part)];
  if (!same || was === undefined || now === undefined) return part;
  if (was === now) return same;
  came.set(same, now);
  const template = document.createElement("template");
  template.innerHTML = was;
  return become(same, template.content.firstElementChild!, part);
}

const keyOf = (node: Node | undefined): string | undefined => (node instanceof HTMLElement ? node.dataset.key : undefined);

/** Finds what is the same as a node among these: by its key, or by its place where it has none. */
function partnerIn(nodes: Node[]): (node: Node, at: number) => Node | undefined {
  const keyed = new Map(nodes.map((node) => [keyOf(node), node]));
  return (node, at) => {
    const key = keyOf(node);
    if (key !== undefined) return keyed.get(key);
    return keyOf(nodes[at]) === undefined ? nodes[at] : undefined;
  };
}

const isMadeHere = (node: Node): boolean => node instanceof Element && node.matches(".children, .money > table");

/** Changes a node where `now` differs from `was`, which it was made of. The rest stays, with its focus and scroll, and so does what is made here. */
function become(live: Node, was: Node, now: Node): Node {
  if (was.isEqualNode(now)) return live;
  if (live.nodeName !== now.nodeName || was.nodeName !== now.nodeName) return now;
  if (!(live instanceof Element && was instanceof Element && now instanceof Element)) {
    live.nodeValue = now.nodeValue;
    return live;
  }
  for (const { name } of was.attributes) if (name !== "open" && !now.hasAttribute(name)) live.removeAttribute(name);
  for (const { name, value } of now.attributes) if (name !== "open") live.setAttribute(name, value);
  // Its colours are not in the HTML as it came.
  if (live.matches("pre")) live.replaceChildren(...now.childNodes);
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

/** Puts into a rollout what has changed of it. Lists of children, which are none of its parts, stay at its end. */
function update(before: HTMLElement, article: HTMLElement): void {
  before.dataset.language = article.dataset.language ?? "";
  const parts = (of: HTMLElement): HTMLElement[] => [...of.children].filter((part) => part instanceof HTMLElement);
  const known = new Map(parts(before).map((part, at) => [nameOf(part, at), part]));
  const parted = parts(article).map((part, at) => kept(known.get(nameOf(part, at)), part));
  arrange(before, [...parted, ...all(":scope > .children", before)]);
}

/** The requests of a rollout and of those below it, by level and model. */
function moneyOf(row: Row): Node {
  const sums = new Map<string, Spent & { level: number }>();
  const level = levelOf(row);
  for (const node of tree(row)) {
    for (const spent of node.spent) {
      const depth = levelOf(node) - level;
      const key = `${depth} ${spent.model}`;
      const sum = sums.get(key) ?? { level: depth, model: spent.model, requests: 0, tokens: 0, is_estimated: false, cost: 0 };
      for (const [name] of PARTS) sum[name] = (sum[name] ?? 0) + (spent[name] ?? 0);
      sum.requests += spent.requests;
      sum.tokens += spent.tokens;
      sum.is_estimated ||= spent.is_estimated;
      sum.cost = sum.cost === null || spent.cost === null ? null : sum.cost + spent.cost;
      sums.set(key, sum);
    }
  }
  const hasLevels = below.has(row.at);
  const parts = PARTS.filter(([name]) => partOf([...sums.values()], name) > 0);
  const line = (cells: string[], tag: "td" | "th"): Node => make("tr", {}, ...cells.slice(hasLevels ? 0 : 1).map((text) => make(tag, {}, text)));
  const lines = [...sums.values()].sort((a, b) => a.level - b.level).map((sum) => line([
    String(sum.level), sum.model, grouped(sum.requests), `${sum.is_estimated ? "~" : ""}${grouped(sum.tokens)}`, ...parts.map(([name]) => grouped(sum[name] ?? 0)), sum.cost === null ? "unknown" : usd(sum.cost),
  ], "td"));
  return make("table", {}, line(["depth", "model", "requests", "tokens", ...parts.map(([, words]) => words), "USD"], "th"), ...lines);
}

const factsOf = (row: Row): string => {
  const cost = costOf(row.spent);
  return [row.state, counted(row.turns, "turn"), duration(row.seconds), ...(cost === undefined ? [] : [`${usd(cost)} USD`])].join(" · ");
};

/** A link to a rollout, with its facts, question and answer. The link that is there stays. */
function linkTo(row: Row, there: HTMLElement | undefined): HTMLElement {
  const of = `${instance} ${row.stamp}`;
  if (there?.dataset.of === of) return there;
  const made = make("li", { "data-of": of },
    make("a", { href: `#r${row.at}` }, row.id), " ", make("span", { class: "facts" }, factsOf(row)),
    make("span", { class: "asked" }, `${firstLine(row.question)} → ${firstLine(row.answer ?? "…")}`));
  if (!there) return made;
  arrange(there, [there.firstChild!, ...[...made.childNodes].slice(1)]);
  there.dataset.of = of;
  return there;
}

/** The rollouts that its code has started, folded, in the calls that did; in the lists that there are. */
function linkChildren(row: Row, article: HTMLElement, lists: HTMLElement[]): void {
  const byCall = new Map<string, Row[]>();
  // Models may use the id of a call again in a later turn.
  for (const child of below.get(row.at) ?? []) add(byCall, child.call === null ? "" : `${child.turn} ${child.call}`, child);
  const keyOf = (call: HTMLElement): string => `${call.closest<HTMLElement>(".turn")?.dataset.number} ${call.dataset.call}`;
  const calls = new Map(all<HTMLElement>(".call", article).map((element) => [keyOf(element), element]));
  const there = new Map(lists.map((list) => [list.dataset.of ?? "", list]));
  for (const [call, list] of there) if (!byCall.has(call)) list.remove();
  for (const [call, children] of byCall) {
    const within = calls.get(call)?.querySelector(".gave") ?? article;
    const list = there.get(call) ?? make("details", { class: "children", "data-of": call, "data-part": "children" }, make("summary", {}), make("ul", {}));
    const links = new Map(all<HTMLAnchorElement>("a", list).map((link) => [link.hash, link.parentElement!]));
    list.querySelector("summary")!.textContent = `${counted(children.length, "rollout")} below it`;
    arrange(list.querySelector("ul")!, children.map((child) => linkTo(child, links.get(`#r${child.at}`))));
    if (list.parentElement !== within) within.append(list);
  }
}

/** Most other attempts that can be chosen. */
const MOST_OTHERS = 200;

/** Other attempts at its question. */
function othersOf(row: Row): Row[] {
  const others = [...rows.values()].filter((other) => other !== row && other.asks === row.asks && (other.parent === null) === (row.parent === null));
  return others.slice(0, MOST_OTHERS);
}

/** Acts on another choice than what is shown: at once, or with Enter where keys go through the options of a list that is closed. */
function whenChosen(select: HTMLSelectElement, shown: string, act: (chosen: string) => void): void {
  let isByKey = false;
  const choose = (): void => { if (select.value !== shown) act(select.value); };
  for (const kind of ["keydown", "keypress"] as const) {
    select.addEventListener(kind, ({ key }) => {
      isByKey = key !== "Enter";
      setTimeout(() => (isByKey = false));
      if (key === "Enter") choose();
    });
  }
  select.addEventListener("change", () => { if (!isByKey) choose(); });
  select.addEventListener("blur", () => (select.value = shown));
}

function navigation(row: Row): HTMLElement {
  const nav = make("nav", { "aria-label": "rollouts" });
  if (rows.size > 1) nav.append(make("a", { href: "#" }, `all ${grouped(rows.size)} rollouts`));
  const above = parentOf(row);
  if (above) nav.append(make("a", { href: `#r${above.at}` }, `above: ${above.id}`));
  const others = othersOf(row);
  if (others.length > 0) {
    const select = make("select", { id: "other", "aria-label": "compare with another attempt" }, make("option", { value: "" }, "compare with …"),
      ...others.map((other) => make("option", { value: other.at }, `${other.id}: ${factsOf(other)}`)));
    whenChosen(select, "", (other) => (location.hash = `#compare=${row.at},${other}`));
    nav.append(select);
  }
  return nav;
}

/** The navigation that is there, unless it says something else now. A list that is open stays. */
function navigationOf(row: Row): HTMLElement {
  const [nav, there] = [navigation(row), main.querySelector("nav")];
  return there && (there.outerHTML === nav.outerHTML || there.querySelector("select:focus")) ? there : nav;
}

/** Shows a rollout below its navigation. A link there that has the focus keeps it. */
function arrangeRollout(row: Row, article: HTMLElement): void {
  const href = main.querySelector("nav > a:focus")?.getAttribute("href");
  const nav = navigationOf(row);
  arrange(main, [nav, article]);
  if (href) nav.querySelector<HTMLElement>(`a[href="${href}"]`)?.focus({ preventScroll: true });
}

/** Draws what a rollout shows of those below it, too. */
function drawBelow(row: Row, article: HTMLElement, lists = all<HTMLElement>("details.children", article)): void {
  const money = article.querySelector(".money")!;
  const [made, table] = [moneyOf(row), money.querySelector("table")];
  if (!table?.isEqualNode(made)) {
    table?.remove();
    money.append(made);
  }
  linkChildren(row, article, lists);
}

/** Ends what is being drawn: the reader has gone elsewhere, or the file is another one. */
let leaving = new AbortController();

function leave(): void {
  leaving.abort();
  leaving = new AbortController();
}

/** Runs what `work` does, never twice at once: a call meanwhile has it run once more. */
function again(work: () => Promise<void>): () => Promise<void> {
  let [isRunning, isOld] = [false, false];
  return async () => {
    isOld = true;
    if (isRunning) return;
    isRunning = true;
    try {
      while (isOld) {
        isOld = false;
        await work();
      }
    } finally {
      isRunning = false;
    }
  };
}

/** Milliseconds after which what failed is asked for again. */
const NEXT_TRY = 2000;

type Drawn = Exclude<Place, { kind: "overview" }>;

const atsOf = (now: Drawn): number[] => (now.kind === "rollout" ? [now.at] : now.ats);

/** What shows this place, if it is shown. */
const shownOf = (now: Drawn): HTMLElement | null =>
  main.querySelector(now.kind === "rollout" ? `article[data-at="${now.at}"]` : `.comparison[data-of="${now.ats}"]`);

/** Draws a rollout or a comparison, unless the reader leaves it before its HTML has come. */
async function draw(now: Drawn, { signal }: AbortController): Promise<void> {
  const absent = atsOf(now).find((at) => !rows.has(at));
  if (absent !== undefined) return missing(absent);
  try {
    const articles = await Promise.all(atsOf(now).map((at) => articleOf(at, signal)));
    if (signal.aborted) return;
    tell("");
    if (now.kind === "rollout") drawRollout(now, articles[0]!);
    else drawComparison(now, articles);
  } catch (error) {
    if (signal.aborted) return;
    if (!shownOf(now)) main.replaceChildren();
    trouble(error);
    const next = setTimeout(redraw, NEXT_TRY);
    signal.addEventListener("abort", () => clearTimeout(next));
  }
}

/** Draws what is shown once more. */
let redraw = async (): Promise<void> => {};

function show(now: Drawn): void {
  leave();
  const shown = leaving;
  redraw = again(() => draw(now, shown));
  redraw();
}

function drawRollout(now: Drawn & { kind: "rollout" }, article: HTMLElement): void {
  const row = rows.get(now.at)!;
  const before = shownOf(now);
  const whole = before ?? article;
  const lists = all<HTMLElement>("details.children", whole);
  const had = document.activeElement;
  if (before) update(before, article);
  drawBelow(row, whole, lists);
  colourAll(whole);
  arrangeRollout(row, whole);
  document.title = `${row.id} · ${TITLE}`;
  if (!before) return begin();
  // A list that has moved has lost the focus.
  if (had instanceof HTMLElement && had.isConnected && had !== document.activeElement) had.focus({ preventScroll: true });
}

/** Has a reader begin at the turn of the address, or at the top of what is new. */
function begin(): void {
  if (showTurn()) return;
  scrollTo(0, 0);
  const heading = main.querySelector("h2")!;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function missing(at: number): void {
  if (main.querySelector(`[data-missing="${at}"]`)) return;
  main.replaceChildren(make("p", { "data-missing": at }, `no rollout ${at} on this page`), make("p", {}, make("a", { href: "#" }, "all rollouts")));
}

/** Two attempts side by side: their ends, then turn by turn. */
function drawComparison(now: Drawn & { kind: "comparison" }, articles: HTMLElement[]): void {
  const [left, right] = now.ats.map((at) => rows.get(at)!) as [Row, Row];
  const part = (at: number, name: string): Element => articles[at]!.querySelector(`[data-part="${name}"]`)!;
  const heads = [left, right].map((row, at) => marked(make("div", {},
    make("h2", {}, make("a", { href: `#r${row.at}` }, row.id)), make("p", { class: "facts" }, factsOf(row)), part(at, "end"))));
  const turns = articles.map((article) => new Map(all<HTMLElement>("details.turn", article).map((turn) => [Number(turn.dataset.number), turn])));
  articles.forEach(colourAll);
  const numbers = [...new Set(turns.flatMap((of) => [...of.keys()]))].sort((a, b) => a - b);
  const before = shownOf(now);
  const there = new Map(all<HTMLElement>(".comparison > *").map((part) => [part.dataset.cell, part]));
  const cells = numbers.flatMap((number) => turns.map((of, at) => {
    const turn = of.get(number) ?? make("p", {}, make("span", {}, `no turn ${number}`));
    turn.dataset.cell = `${number} ${at}`;
    (turn.querySelector("summary") ?? turn).append(make("span", { class: "facts" }, ` · ${[left, right][at]!.id}`));
    return before ? kept(there.get(turn.dataset.cell), turn) : turn;
  }));
  if (before) {
    const known = [...before.children].slice(0, 2) as HTMLElement[];
    known.forEach((head, at) => update(head, heads[at]!));
    return arrange(before, [...known, ...cells]);
  }
  main.replaceChildren(
    make("nav", { "aria-label": "rollouts" }, make("a", { href: "#" }, "all rollouts")),
    part(0, "question"),
    make("div", { class: "comparison", "data-of": String(now.ats) }, ...heads, ...cells));
  document.title = `${left.id} and ${right.id} · ${TITLE}`;
  begin();
}

// Where the reader is

type Place = { kind: "overview" } | { kind: "rollout"; at: number; turn?: string } | { kind: "comparison"; ats: [number, number] };

function place(): Place {
  const two = /^#compare=(\d+),(\d+)$/.exec(location.hash);
  if (two) return { kind: "comparison", ats: [Number(two[1]), Number(two[2])] };
  const single = /^#r(\d+)(t\d+)?$/.exec(location.hash);
  if (single) return { kind: "rollout", at: Number(single[1]), ...(single[2] ? { turn: single[2] } : {}) };
  const [only] = rows.values();
  return only && rows.size === 1 ? { kind: "rollout", at: only.at } : { kind: "overview" };
}

const TITLE = document.title;
let overviewTop = 0;
let last: Place = { kind: "overview" };

function go(): void {
  const now = place();
  if (last.kind === "overview" && now.kind !== "overview") overviewTop = scrollY;
  const isSame = last.kind === "rollout" && now.kind === "rollout" && last.at === now.at && shownOf(now);
  last = now;
  tell("");
  drawStates();
  if (isSame) {
    showTurn();
  } else if (now.kind === "overview") {
    leave();
    document.title = TITLE;
    drawOverview();
    scrollTo(0, overviewTop);
  } else {
    show(now);
  }
}

/** Shows the turn of the address; false if there is none. */
function showTurn(turn = document.getElementById(location.hash.slice(1))): boolean {
  if (!(turn instanceof HTMLDetailsElement)) return false;
  turn.open = true;
  turn.scrollIntoView();
  turn.querySelector("summary")?.focus({ preventScroll: true });
  return true;
}

/** What is wrong with the file, as long as that is so. */
let ofFile = "";

function tell(words: string): void {
  const shown = [ofFile, words].filter(Boolean).join("; ");
  one("#trouble").textContent = shown;
  one("#trouble").hidden = shown === "";
}

const trouble = (error: unknown): void => tell(String(error));

addEventListener("hashchange", () => {
  // Whoever goes elsewhere is not taken to what is found.
  isTyped = false;
  go();
});
// Nothing changes where a link leads to the address that there is.
addEventListener("click", ({ target }) => {
  if (target instanceof HTMLAnchorElement && target.href === location.href) go();
});

// Search

/** All text of a rollout on this page, in small letters. */
const texts = new Map<number, string>();
const ENTITIES: Record<string, string> = { "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&amp;": "&" };

function textOf(row: Row): string {
  let text = texts.get(row.at);
  if (text === undefined) {
    const whole = one(`#body${row.at}`).textContent;
    // What models and programs wrote, without the page's own words.
    const html = [...whole.matchAll(/<pre[^>]*>([^]*?)<\/pre>/g)].map(([, text]) => text).join(" ");
    text = `${row.id} ${html.replace(/<span class="left-out">[^<]*<\/span>/g, " ").replace(/&(?:lt|gt|quot|#39|amp);/g, (entity) => ENTITIES[entity]!)}`.toLowerCase();
    texts.set(row.at, text);
  }
  return text;
}

let searching = new AbortController();

/** What is searched for was typed and not found yet: whoever typed it goes to what is found. */
let isTyped = false;

async function search(): Promise<void> {
  searching.abort();
  const { signal } = (searching = new AbortController());
  const typed = one<HTMLInputElement>("#search").value.toLowerCase();
  const wanted = typed.split(/\s+/).filter(Boolean);
  let hits: Set<number> | undefined;
  if (wanted.length > 0 && isLive) {
    try {
      hits = new Set<number>(await (await asked(`${location.pathname}/search?${new URLSearchParams({ words: wanted.join(" ") })}`, signal)).json());
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  } else if (wanted.length > 0) {
    hits = new Set();
    let pause = performance.now() + 30;
    for (const row of rows.values()) {
      if (wanted.every((word) => textOf(row).includes(word))) hits.add(row.at);
      if (performance.now() > pause) {
        await new Promise((resume) => setTimeout(resume));
        if (signal.aborted) return;
        pause = performance.now() + 30;
      }
    }
  }
  if (signal.aborted) return;
  tell("");
  found = hits;
  if (isTyped) refilter();
  else drawOverview();
  isTyped = false;
}

function refilter(): void {
  limit = ROWS_AT_ONCE;
  if (place().kind !== "overview" && rows.size > 1) location.hash = "#";
  drawOverview();
}

let waiting = 0;
one("#search").addEventListener("input", () => {
  searching.abort();
  isTyped = true;
  clearTimeout(waiting);
  waiting = setTimeout(() => search().catch(trouble), 150);
});

function leaveSearch(): void {
  clearTimeout(waiting);
  const field = one<HTMLInputElement>("#search");
  field.value = "";
  field.blur();
  isTyped = false;
  search().catch(trouble);
}

one<HTMLSelectElement>("#state").addEventListener("change", (event) => {
  wantedState = (event.target as HTMLSelectElement).value;
  drawStates();
  refilter();
});

// Colours of code

const WORDS: Record<string, RegExp> = {
  python:
    /(?<comment>#.*)|(?<text>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<number>\b\d[\w.]*)/g,
  bash: /(?<comment>(?<=^|\s)#.*)|(?<text>"(?:\\[^]|[^"\\])*"|'[^']*')|(?<word>\b(?:case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while)\b|\$\w+|\$\{[^}]*\})|(?<number>(?<![\w.])\d+(?![\w.]))/gm,
};

/** Longest code with colours, in characters. */
const MAX_COLOURED = 20_000;

function colour(code: Element, words: RegExp): void {
  if (code.querySelector("[class^=code-]")) return;
  for (const node of [...code.childNodes]) {
    if (!(node instanceof Text) || node.length > MAX_COLOURED) continue;
    const parts: Child[] = [];
    let end = 0;
    for (const found of node.data.matchAll(words)) {
      const kind = Object.entries(found.groups!).find(([, text]) => text !== undefined)![0];
      parts.push(node.data.slice(end, found.index), make("span", { class: `code-${kind}` }, found[0]));
      end = found.index + found[0].length;
    }
    if (end > 0) node.replaceWith(...parts, node.data.slice(end));
  }
}

/** Colours code when it comes into view. */
const inView = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    inView.unobserve(target);
    const words = WORDS[target.closest<HTMLElement>("[data-language]")?.dataset.language ?? ""];
    if (words) colour(target, words);
  }
}, { rootMargin: "400px" });

function colourAll(article: HTMLElement): void {
  for (const turn of all<HTMLElement>("details.turn", article)) turn.dataset.language = article.dataset.language ?? "";
  for (const code of all("pre.repl", article)) inView.observe(code);
}

// Keys

/** Goes to the next turn or row that can be seen, or the one before. */
function step(by: 1 | -1): void {
  const isOverview = place().kind === "overview";
  const stops = all<HTMLElement>(isOverview ? ".overview tbody a" : "details.turn", main);
  const focused = stops.findIndex((stop) => stop.contains(document.activeElement));
  const passed = stops.filter((stop) => stop.getBoundingClientRect().top < (by > 0 ? 8 : -8)).length;
  const next = focused >= 0 ? focused + by : isOverview ? (by > 0 ? 0 : -1) : by > 0 ? passed : passed - 1;
  const stop = stops[next];
  if (!stop) return;
  if (isOverview) return stop.focus();
  showTurn(stop);
  const now = place();
  if (stop.id && now.kind === "rollout") history.replaceState(null, "", `#${stop.id}`);
}

/** Goes to the rollout behind this one in the overview, or before it; of all where the overview does not show this one. */
function stepRollout(by: 1 | -1): void {
  const now = place();
  if (now.kind !== "rollout") return;
  const isThis = (row: Row): boolean => row.at === now.at;
  const shown = shownRows();
  const order = shown.some(isThis) ? shown : [...rows.values()].filter((row) => !parentOf(row)).flatMap((row) => tree(row));
  const next = order[order.findIndex(isThis) + by];
  if (next) location.hash = `#r${next.at}`;
}

/** Opens all turns, or closes them. */
function openAll(): void {
  const turns = all<HTMLDetailsElement>("details.turn", main);
  const isOpening = turns.some((turn) => !turn.open);
  for (const turn of turns) turn.open = isOpening;
}

const help = one<HTMLDialogElement>("#help");
one("#keys").addEventListener("click", () => help.showModal());
one("#close").addEventListener("click", () => help.close());

const KEYS: Record<string, () => void> = {
  j: () => step(1),
  k: () => step(-1),
  n: () => stepRollout(1),
  p: () => stepRollout(-1),
  o: openAll,
  "/": () => one("#search").focus(),
  "?": () => help.showModal(),
  Escape: () => { if (rows.size > 1) location.hash = "#"; },
};
document.addEventListener("keydown", (event) => {
  const field = event.target as HTMLElement;
  if (help.open) return;
  if (event.key === "Escape" && field.id === "search") return leaveSearch();
  if (event.key === "Escape" && field.matches("select")) return field.blur();
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || field.matches("input, select, textarea")) return;
  event.preventDefault();
  act();
});

// Changes

interface Changes { instance: string; rows: Row[] }

let instance = "";

/** What is searched for may be in what has come. */
const searchAgain = again(async () => {
  await new Promise((resume) => setTimeout(resume, 1000));
  if (one<HTMLInputElement>("#search").value.trim() !== "") await search();
});

const idsOf = (now: Place): string => (now.kind === "overview" ? "" : atsOf(now).map((at) => rows.get(at)?.id).join(" "));

function hear({ instance: now, rows: changed }: Changes): void {
  const isAnew = now !== instance;
  const before = place();
  const wasShown = idsOf(before);
  if (isAnew) {
    // Another server, or another file of this name: what was known is void.
    instance = now;
    for (const known of [rows, below, trees]) known.clear();
    if (found) found = new Set();
  }
  take(changed);
  // Whoever reads the first rollout goes on reading it when there is a second one.
  const isStill = idsOf(before) === wasShown;
  if (isStill && before.kind === "rollout" && place().kind === "overview") history.replaceState(null, "", `#r${before.at}`);
  (isAnew ? search : searchAgain)().catch(trouble);
  drawStates();
  const here = place();
  const isTouched = (at: number): boolean => changed.some((row) => row.at === at);
  if ((isAnew && !isStill) || here.kind !== last.kind) {
    main.replaceChildren();
    go();
  } else if (here.kind === "overview") {
    drawOverview();
  } else if (isAnew) {
    show(here);
  } else if (!shownOf(here) || atsOf(here).some(isTouched)) {
    redraw();
  } else if (here.kind === "rollout") {
    const [row, article] = [rows.get(here.at)!, shownOf(here)!];
    // It is in no tree that is known, if another one in its tree has changed.
    if (!trees.has(here.at)) drawBelow(row, article);
    arrangeRollout(row, article);
  }
}

let events: EventSource | undefined;
let nextTry = 0;

function listen(): void {
  clearTimeout(nextTry);
  events?.close();
  if (document.hidden) return;
  const stream = (events = new EventSource(`${location.pathname}/events`));
  const live = one("#live");
  stream.addEventListener("open", () => {
    live.textContent = "live";
    tell("");
  });
  stream.addEventListener("rows", (event) => hear(JSON.parse(event.data)));
  stream.addEventListener("trouble", (event) => {
    const words: string | null = JSON.parse(event.data);
    live.textContent = words === null ? "live" : "";
    ofFile = words ?? "";
    tell("");
  });
  stream.addEventListener("error", () => {
    live.textContent = "reconnecting …";
    // The browser tries again by itself, but not after an answer that is none of a stream: it says why.
    if (stream.readyState !== EventSource.CLOSED) return;
    asked(`${location.pathname}/events`).then((answer) => answer.body?.cancel()).catch(trouble);
    nextTry = setTimeout(listen, NEXT_TRY);
  });
}

// A browser has few connections to a server, for all of its tabs.
if (isLive) document.addEventListener("visibilitychange", listen);

/** The recorded runs, to go from one to another. What is being chosen stays so. */
async function listRuns(): Promise<void> {
  const base = location.pathname.split("/").slice(0, -2).join("/");
  const runs: { path: string; words: string }[] = await (await asked(`${base}/runs`)).json();
  const select = one<HTMLSelectElement>("#runs");
  const there = new Map([...select.options].map((option) => [option.value, option]));
  arrange(select, runs.map(({ path, words }) => {
    const option = there.get(path) ?? make("option", { value: path, selected: path === location.pathname });
    if (option.textContent !== words) option.textContent = words;
    return option;
  }));
  select.hidden = runs.length < 2;
}

take(JSON.parse(one("#rows").textContent));
if (isLive) {
  main.replaceChildren(make("p", {}, "reading …"));
  listen();
  listRuns().catch(trouble);
  const runs = one<HTMLSelectElement>("#runs");
  whenChosen(runs, location.pathname, (path) => (location.href = path));
  // Whoever turns to the list finds what has come since. Without the server it stays: what is wrong is said of the stream.
  const again = (): unknown => listRuns().catch(() => {});
  runs.addEventListener("focus", again);
  runs.parentElement!.addEventListener("pointerenter", again);
} else {
  go();
}
