"use strict";
// Asks whether there is a new report, and then loads it again as its reader has left it.

const EVERY_MS = 2000;
const BUSY_MS = 2000; // after a key or a click the reader is left alone
const frame = document.getElementById("report");
const status = document.getElementById("status");
let shown = null; // version of the report in the frame
let left = null; // what its reader had chosen when it was loaded again
let used = -Infinity; // when the reader last did something
let isLoading = false; // then there is nothing chosen in the frame yet

function say(text) {
  if (status.textContent !== text) status.textContent = text; // a screen reader reads what changes
}

// The reader may have opened a file of a run in the frame, which stays until the reader goes back.
function report() {
  try {
    const { pathname } = frame.contentWindow.location;
    return pathname === "/report.html" ? frame.contentDocument : null;
  } catch {
    return null; // what is sandboxed is of another origin
  }
}

// By what an element is known in the next page: ids there may be others.
function nameOf(element) {
  const plot = element.closest("[data-plot]")?.dataset.plot ?? "";
  const run = element.closest("tr")?.querySelector("a")?.getAttribute("href") ?? "";
  return [plot, run, element.labels?.[0]?.textContent ?? element.ariaLabel ?? element.textContent].join("\n");
}

const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";

function focusedIn(page) {
  const element = page.activeElement;
  if (document.activeElement !== frame || !element?.matches(FOCUSABLE)) return null;
  return { name: nameOf(element), from: element.selectionStart ?? null, to: element.selectionEnd ?? null };
}

function focusIn(page, { name, from, to }) {
  const element = [...page.querySelectorAll(FOCUSABLE)].find((one) => nameOf(one) === name);
  element?.focus({ preventScroll: true });
  if (element && from !== null) element.setSelectionRange(from, to);
}

// Whatever has a state in the page, by the names that it has for its reader.
function chosenIn(page) {
  const fields = [...page.querySelectorAll("input, select")];
  const sorted = page.querySelector("th[aria-sort=ascending], th[aria-sort=descending]");
  return {
    texts: fields.map((field) => [nameOf(field), field.selectedOptions?.[0]?.textContent ?? field.value]),
    sorted: sorted && [sorted.textContent, sorted.ariaSort],
    isPlotted: page.querySelector("[data-plotted]") !== null,
    off: [...page.querySelectorAll(".legend button[aria-pressed=false]")].map((button) => button.textContent),
    open: [...page.querySelectorAll("details")].map((details) => details.open),
    boxes: [...page.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]),
    top: frame.contentWindow.scrollY,
    focused: focusedIn(page),
  };
}

function choose(page, { texts, sorted, isPlotted, off, open, boxes, top, focused }) {
  const named = new Map([...page.querySelectorAll("input, select")].map((field) => [nameOf(field), field]));
  for (const [name, text] of texts) {
    const field = named.get(name);
    if (!field) continue;
    const option = [...(field.options ?? [])].find((one) => one.textContent === text);
    const value = field.options ? option?.value : text;
    if (value === undefined || value === field.value) continue;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  const head = sorted && [...page.querySelectorAll("th[aria-sort]")].find((one) => one.textContent === sorted[0]);
  for (let clicks = 0; head && head.ariaSort !== sorted[1] && clicks < 2; clicks++) head.querySelector("button")?.click();
  if (isPlotted) page.querySelector("[data-plots]")?.click();
  for (const text of off) {
    [...page.querySelectorAll(".legend button[aria-pressed=true]")].find((button) => button.textContent === text)?.click();
  }
  page.querySelectorAll("details").forEach((details, place) => (details.open = open[place] ?? details.open));
  page.querySelectorAll(".scroll").forEach((box, place) => box.scrollTo(...(boxes[place] ?? [0, 0])));
  frame.contentWindow.scrollTo(0, top);
  if (focused) focusIn(page, focused);
}

function load(version) {
  const page = report();
  if (isLoading || performance.now() - used < BUSY_MS) return; // later
  if (shown === null) {
    frame.hidden = false;
    frame.src = "report.html";
  } else if (page && !page.querySelector("dialog[open]")) {
    left = chosenIn(page);
    frame.contentWindow.location.reload();
  } else {
    return; // the reader is reading something else: later
  }
  shown = version;
  isLoading = true;
}

frame.addEventListener("load", () => {
  isLoading = false;
  const page = report();
  if (!page) return;
  document.title = page.title || document.title;
  for (const event of ["keydown", "pointerdown"]) page.addEventListener(event, () => (used = performance.now()), true);
  if (left) choose(page, left);
  left = null;
});

async function look() {
  try {
    const state = await (await fetch("state.json", { cache: "no-store" })).json();
    if (state.version !== null && state.version !== shown) load(state.version);
    if (state.problem) say(`The latest report could not be made: ${state.problem}`);
    else if (state.version === null) say("The report is being made.");
    else say(state.active ? "The sweep is running; this page follows it." : "Nobody is running the sweep.");
  } catch {
    say("The server does not answer; this page shows what was there last.");
  }
  setTimeout(look, EVERY_MS);
}

look();
