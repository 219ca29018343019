// What draws the page. The overview has a row for each rollout; a rollout is drawn from its HTML when it is opened, since a browser
// takes ten thousand of them as text, but not as elements. A page that is served asks for them, and hears of changes.
//
// The parts are in page/, in the order of page-build. Here is what a served page hears, and the beginning.

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
