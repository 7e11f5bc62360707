// A plot that is drawn when it comes into view, and again when something has changed that it shows.

const SYMBOLS = {
  o: "circle", s: "square", "^": "triangle-up", D: "diamond", v: "triangle-down",
  P: "cross", h: "hexagon", p: "pentagon", X: "x", "*": "star", "<": "triangle-left", ">": "triangle-right",
};
const FACE = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const toDraw = new Map();
const inView = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const plot = toDraw.get(target);
      plot.visible = isIntersecting;
      if (isIntersecting && plot.stale) plot.draw();
    }
  },
  { rootMargin: "300px" },
);

// `content()` gives {traces, layout, alt}; `events` are plotly's. A control is an element, which calls `again` of what
// this returns; or [label, options, value, change] of a select, after whose change the plot is drawn again; or false.
function plot(host, title, controls, content, makeLegend = labelLegend, events = {}) {
  const keys = make("div", { class: "legend", role: "group", "aria-label": `Shown in: ${title}` });
  const canvas = make("div", { class: "canvas", role: "img", "aria-label": title });
  const elements = controls.filter(Boolean).map((control) => {
    if (!Array.isArray(control)) return control;
    const [label, options, value, change] = control;
    return select(label, options, value, (chosen) => {
      change(chosen);
      again();
    });
  });
  host.append(make("h3", {}, title), make("div", { class: "controls" }, ...elements), keys, make("div", { class: "wide" }, canvas));
  const state = { stale: true, visible: false, draw: null };
  state.draw = () => {
    state.stale = false;
    const { traces, layout, alt } = content();
    const says = alt || `${title}; the numbers are in the tables.`;
    canvas.setAttribute("aria-label", says);
    const styled = withStyle(layout, traces.length > 0);
    canvas.style.minHeight = `${styled.height}px`;
    const isFirst = !canvas.on;
    Plotly.react(canvas, traces, styled, {
      displaylogo: false,
      responsive: true,
      modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
      // Otherwise there is a button that sends what is drawn to plotly's makers.
      showSendToCloud: false,
      plotlyServerURL: "",
      toImageButtonOptions: { format: "svg", filename: title },
    });
    for (const [name, listener] of isFirst ? Object.entries(events) : []) canvas.on(name, listener);
  };
  const again = () => {
    makeLegend(keys);
    state.stale = true;
    if (state.visible) state.draw();
  };
  toDraw.set(canvas, state);
  choiceListeners.push(again);
  themeListeners.push(again);
  makeLegend(keys);
  inView.observe(canvas);
  return again;
}

function withStyle(layout, hasData) {
  const axis = { gridcolor: colour("line"), linecolor: colour("muted"), zerolinecolor: colour("line"), automargin: true };
  const styled = {
    height: 400,
    margin: { l: 60, r: 20, t: 24, b: 48 },
    showlegend: false,
    hovermode: "closest",
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FACE, size: 13, color: colour("text") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("text") },
    hoverlabel: { bgcolor: colour("paper"), bordercolor: colour("muted"), font: { color: colour("text") }, align: "left" },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis, title: { standoff: 12, ...layout.xaxis?.title } },
    yaxis: { ...axis, ...layout.yaxis, title: { standoff: 12, ...layout.yaxis?.title } },
  };
  if (!hasData) {
    const text = "No finished run has numbers for this.";
    styled.annotations = [{ text, showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }];
    styled.xaxis = styled.yaxis = { visible: false };
  }
  return styled;
}

// A line of (mean, low, high) over x with its band; low and high are missing where there is one run.
function lineTraces(x, [y, low, high], label, text, dash = "solid", ink = lineColour(label)) {
  const last = y.findLastIndex((value) => value !== null);
  const traces = [];
  if (low && high) {
    const known = x.map((_, place) => place).filter((p) => x[p] !== null && low[p] !== null && high[p] !== null);
    const back = [...known].reverse();
    traces.push({
      x: [...known, ...back].map((p) => x[p]),
      y: [...known.map((p) => high[p]), ...back.map((p) => low[p])],
      fill: "toself", fillcolor: faint(ink), line: { width: 0 }, mode: "lines", showlegend: false, hoverinfo: "skip", type: "scatter",
    });
  }
  traces.push({
    x, y, type: "scatter", mode: "lines+markers", name: plain(label), line: { color: ink, width: 2, dash },
    marker: { color: ink, symbol: symbol(label), opacity: 1, size: x.map((_, place) => (place === last ? 9 : 0)) },
    text, hovertemplate: "%{text}<extra></extra>", connectgaps: true,
  });
  return traces;
}

// Bars from low to high of (mean, low, high) as they are shown; a single run has none, but of its throughput.
function errorBars(triples, look) {
  const part = (from, to) => triples.map((triple) => Math.max((triple[from] ?? triple[0]) - (triple[to] ?? triple[0]), 0));
  return { ...look, type: "data", symmetric: false, array: part(2, 0), arrayminus: part(0, 1) };
}

function symbol(label) {
  return SYMBOLS[LOOKS.get(label)?.marker] ?? "circle";
}

function faint(ink, opacity = 0.18) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(ink.slice(place, place + 2), 16));
  return `rgba(${red},${green},${blue},${opacity})`;
}

// "97.31 (96.9 to 97.7)" of (mean, low, high).
function withInterval(triple, measure, isLog = false) {
  const [middle, ...ends] = shownBand(triple, measure, isLog).map((value) => number(value, measure.digits));
  return `${middle}${ends.length ? ` (${ends.join(" to ")})` : ""} ${measure.unit}`;
}
