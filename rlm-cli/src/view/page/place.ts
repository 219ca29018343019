// Where the reader is: the address, and what it shows.

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
