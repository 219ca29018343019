// What the page does besides being read: rows are sorted, rollouts filtered and searched, and keys go from turn to turn. Without
// it, the page has the same content.

type Row = HTMLTableRowElement;

const find = <T extends Element>(selector: string, within: ParentNode = document): T[] => [...within.querySelectorAll<T>(selector)];
const one = <T extends HTMLElement>(selector: string): T => document.querySelector<T>(selector)!;

/** Rows in the order of the file, each with those below it in the tree. */
const groups: Row[][] = [];
for (const row of find<Row>(".overview tbody tr")) {
  if (Number(row.dataset.level) > 0 && groups.length > 0) groups.at(-1)!.push(row);
  else groups.push([row]);
}

/** What a cell is sorted by: a number, or its text. */
function key(row: Row, column: number): number | string {
  const cell = row.cells[column]!;
  const text = cell.dataset.value ?? cell.textContent ?? "";
  return text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  // Texts come after numbers.
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function sortBy(heading: HTMLTableCellElement): void {
  const isDown = heading.ariaSort === "ascending";
  for (const other of find<HTMLTableCellElement>(".overview th")) other.removeAttribute("aria-sort");
  heading.ariaSort = isDown ? "descending" : "ascending";
  const keyed = groups.map((rows) => ({ rows, key: key(rows[0]!, heading.cellIndex) }));
  keyed.sort((a, b) => (isDown ? compare(b.key, a.key) : compare(a.key, b.key)));
  one(".overview tbody").append(...keyed.flatMap(({ rows }) => rows));
}

for (const button of find<HTMLButtonElement>(".overview th button")) {
  button.addEventListener("click", () => sortBy(button.parentElement as HTMLTableCellElement));
}

const rollouts = find<HTMLDetailsElement>("details.rollout");
const rows = new Map(groups.flat().map((row) => [row.dataset.rollout, row]));
const texts = new Map<Element, string>();

/** All text of a rollout, in small letters. */
function textOf(rollout: Element): string {
  let text = texts.get(rollout);
  if (text === undefined) texts.set(rollout, (text = (rollout.textContent ?? "").toLowerCase()));
  return text;
}

/** Shows the rollouts with this state and all these words, and how many they are. */
function filter(): void {
  const words = one<HTMLInputElement>("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = document.querySelector<HTMLSelectElement>("#state")?.value ?? "";
  let shown = 0;
  for (const rollout of rollouts) {
    const isShown = (state === "" || rollout.dataset.state === state) && words.every((word) => textOf(rollout).includes(word));
    rollout.hidden = !isShown;
    const row = rows.get(rollout.dataset.rollout);
    if (row) row.hidden = !isShown;
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

const WORDS: Record<string, RegExp> = {
  python:
    /(?<comment>#.*)|(?<text>"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?<word>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b)|(?<number>\b\d[\w.]*)/g,
  bash: /(?<comment>(?<=^|\s)#.*)|(?<text>"(?:\\[^]|[^"\\])*"|'[^']*')|(?<word>\b(?:case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while)\b|\$\w+|\$\{[^}]*\})|(?<number>(?<![\w.])\d+(?![\w.]))/gm,
};

/** Longest code with colours, in characters. */
const MAX_COLOURED = 100_000;

function colour(code: Element, words: RegExp): void {
  for (const node of [...code.childNodes]) {
    if (!(node instanceof Text) || node.length > MAX_COLOURED) continue;
    const parts: (Node | string)[] = [];
    let end = 0;
    for (const found of node.data.matchAll(words)) {
      const kind = Object.entries(found.groups!).find(([, text]) => text !== undefined)![0];
      const span = document.createElement("span");
      span.className = `code-${kind}`;
      span.textContent = found[0];
      parts.push(node.data.slice(end, found.index), span);
      end = found.index + found[0].length;
    }
    if (end > 0) node.replaceWith(...parts, node.data.slice(end));
  }
}

/** Colours the code of a rollout when it is first opened. */
function open(rollout: HTMLDetailsElement): void {
  const words = WORDS[rollout.dataset.language ?? ""];
  if (!rollout.open || rollout.dataset.isColoured || !words) return;
  rollout.dataset.isColoured = "yes";
  for (const code of find("pre.repl", rollout)) colour(code, words);
}

for (const rollout of rollouts) {
  rollout.addEventListener("toggle", () => open(rollout));
  open(rollout);
}

/** Goes to the next turn that can be seen, or the one before. */
function step(by: 1 | -1): void {
  const turns = find<HTMLElement>("details.rollout[open]:not([hidden]) details.turn");
  const passed = turns.filter((turn) => turn.getBoundingClientRect().top < (by > 0 ? 8 : -8)).length;
  const turn = turns[by > 0 ? passed : passed - 1];
  if (!turn) return;
  turn.scrollIntoView();
  turn.querySelector("summary")!.focus({ preventScroll: true });
  history.replaceState(null, "", `#${turn.id}`);
}

/** Opens all rollouts that are shown, or closes them. */
function openAll(): void {
  const shown = rollouts.filter((rollout) => !rollout.hidden);
  const isOpening = shown.some((rollout) => !rollout.open);
  for (const rollout of shown) rollout.open = isOpening;
}

const help = one<HTMLDialogElement>("#help");
one("#keys").addEventListener("click", () => help.showModal());

const KEYS: Record<string, () => void> = {
  j: () => step(1),
  k: () => step(-1),
  o: openAll,
  "/": () => one("#search").focus(),
  "?": () => help.showModal(),
};
document.addEventListener("keydown", (event) => {
  const field = event.target as HTMLElement;
  if (event.key === "Escape" && field.id === "search") field.blur();
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || field.matches("input, select, textarea") || help.open) return;
  event.preventDefault();
  act();
});
document.body.classList.add("has-script");
