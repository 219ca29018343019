// A rollout, or two attempts side by side.

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
