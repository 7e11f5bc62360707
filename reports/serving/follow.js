"use strict";
// Asks whether there is a new report, and then loads it again where the reader is.

const EVERY_MS = 2000;
const frame = document.getElementById("report");
const status = document.getElementById("status");
let shown = null; // version of the report in the frame
let place = 0; // where its reader was, in pixels from the top

function say(text) {
  if (status.textContent !== text) status.textContent = text; // a screen reader reads what changes
}

// The reader may have opened a file of a run in the frame, which stays until the reader goes back.
function isReport() {
  try {
    return frame.contentWindow.location.pathname === "/report.html";
  } catch {
    return false; // what is sandboxed is of another origin
  }
}

function load(version) {
  if (shown === null) {
    frame.hidden = false;
    frame.src = "report.html";
  } else if (isReport()) {
    place = frame.contentWindow.scrollY;
    frame.contentWindow.location.reload();
  } else {
    return;
  }
  shown = version;
}

frame.addEventListener("load", () => {
  if (!isReport()) return;
  frame.contentWindow.scrollTo(0, place);
  document.title = frame.contentDocument.title || document.title;
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
