// Rows of rollouts, and what is made of them: elements, words, trees, columns.

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
