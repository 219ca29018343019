// Keys.

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
