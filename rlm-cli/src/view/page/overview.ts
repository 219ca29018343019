// The overview: a table of rows, with filters, totals and distributions.

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
  const isBad = row.has_ended && row.state !== "branched";
  const kind = column.name === "state" ? (row.is_answered ? "good" : isBad ? "bad" : "notice") : column.isNumber ? "number" : "words";
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
