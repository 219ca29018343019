// The search, and the filter by states.

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
