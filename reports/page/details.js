// What is known of one run, in a dialog: Escape closes it, and the focus goes back to where it was.

const FILES = ["config.yaml", "state.json"];
const FILES_OF_STEPS = ["epochs.csv", "steps.csv"];

// The run as the table's first columns name it.
function nameOf(row) {
  const names = DATA.runs.columns.filter((column) => column.kind === "name");
  return names.map((column, place) => (place ? `${column.name}=` : "") + (textOf(column, row) || "null")).join(" ");
}

function fact(name) {
  return (row) => textOf(DATA.facts[name], row);
}

let dialog = null;

// `step(by)` gives the row before or after this one in the table, or null.
function openRun(row, step) {
  if (!dialog) {
    dialog = make("dialog", { "aria-labelledby": "run-title" });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
  }
  const closer = make("button", { type: "button", click: () => dialog.close() }, "Close");
  const walker = (text, by) => {
    const other = step(by);
    return make("button", { type: "button", disabled: other === null, click: () => openRun(other.row, other.step) }, text);
  };
  const status = fact("status")(row);
  dialog.replaceChildren(
    make("header", {},
      make("h2", { id: "run-title", tabindex: "-1" }, nameOf(row)),
      make("div", { class: "controls" }, walker("Previous", -1), walker("Next", 1), closer)),
    make("p", {}, make("span", { class: status === "done" ? "status" : "status bad" }, status), ` ${DATA.runs.unfinished[row]?.reason ?? ""}`),
    ...[filesOf(row), logOf(row), resultsOf(row), curveOf(row)].filter((part) => part !== null),
    configTable(row),
    factsOf(row),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  document.getElementById("run-title").focus();
  drawRun(row);
}

function filesOf(row) {
  const path = textOf(DATA.runs.paths, row);
  const names = [...FILES, ...(Number(fact("steps_done")(row)) ? FILES_OF_STEPS : [])];
  if (["done", "diverged"].includes(fact("status")(row))) names.push("result.json");
  const attempts = Number(fact("attempts")(row));
  if (attempts) names.push(`attempt-${attempts}/stdout.log`, `attempt-${attempts}/stderr.log`);
  const link = (name) => make("a", { href: `${address(path)}/${address(name)}` }, name);
  const list = make("p", { class: "files" }, "Files of ", make("a", { href: `${address(path)}/` }, make("code", {}, path)), ": ");
  names.forEach((name, place) => list.append(place ? ", " : "", link(name)));
  return list;
}

function logOf(row) {
  const found = DATA.runs.unfinished[row];
  if (!found) return null;
  if (!found.log) return make("p", { class: "note" }, `Of its log nothing is in this page: ${found.log_name}.`);
  return make("section", {}, make("h3", {}, `Last lines of ${found.log_name}`), make("pre", { tabindex: "0" }, found.log));
}

function resultsOf(row) {
  if (fact("status")(row) !== "done") return null;
  const list = make("dl", { class: "results" });
  for (const column of DATA.runs.columns.filter((one) => one.kind === "number")) {
    const unit = column.unit ? ` ${column.unit}` : "";
    list.append(make("div", {}, make("dt", {}, column.name), make("dd", {}, textOf(column, row) + unit)));
  }
  return list;
}

// The run's cell with the means over all of its runs, whichever the plots are limited to.
function wholeOf(row) {
  const cell = CELL_OF.get(row);
  return cell?.whole ?? cell;
}

function curveOf(row) {
  const curve = DATA.curves.curves[row];
  const section = make("section", {}, make("h3", {}, "Curves"));
  if (!curve && !wholeOf(row)?.curve) return null;
  if (!curve) {
    const why = fact("epochs_done")(row) ? "has no room in this page; it is in epochs.csv" : "was not recorded";
    section.append(make("p", { class: "note" }, `This run's own curve ${why}. Drawn is the mean of the runs that differ only in their seed.`));
  }
  section.append(make("div", { id: "run-controls", class: "controls" }), make("div", { id: "run-curve", class: "canvas", role: "img", "aria-label": "Curves of this run; the numbers are in epochs.csv" }));
  return section;
}

const runAxes = { x: DATA.progress, y: "test_accuracy" };

// The run's own curve before the mean and band of its cell.
function drawRun(row) {
  const host = document.getElementById("run-curve");
  if (!host) return;
  const [own, cell] = [DATA.curves.curves[row], wholeOf(row)];
  const draw = () => {
    const { x, y } = runAxes;
    const ink = lineColour(cell?.label);
    const curves = [cell?.curve?.[y] && [cell.curve[x], cell.curve[y][0]], own?.[y] && [own[x], own[y]]].filter(Boolean);
    const axes = curveAxes(x, y, curves);
    const traces = floorTraces(curves, y, axes);
    if (cell?.curve?.[y] && (cell.curve.n > 1 || !own)) {
      traces.push(...cellCurve(cell, "curve", x, y, axes, true, colour("muted")));
      traces.at(-1).name = `mean of ${counted(cell.curve.n, "run")} that differ only in the seed`;
    }
    if (own?.[y]) {
      const [xs, values] = [own[x].map((at) => convert(at, axes.x.measure)), own[y].map((value) => convert(value, CURVE_Y[y]))];
      const text = values.map((value, place) => `this run<br>${CURVE_X[x].name} ${number(xs[place])} ${axes.x.measure.unit}: ${number(value, 4)} ${CURVE_Y[y].unit}`);
      traces.push({
        x: xs, y: values, type: "scatter", mode: "lines+markers", text, hovertemplate: "%{text}<extra></extra>",
        name: "this run", line: { color: ink, width: 2.5 }, marker: { size: 6, color: ink, symbol: symbol(cell?.label) },
      });
    }
    const layout = {
      height: 320, showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false },
      xaxis: axes.x.layout, yaxis: { ...axes.y.layout, ...axes.rangeOf(traces) },
    };
    Plotly.react(host, traces, withStyle(layout, traces.length > 0), { displaylogo: false, responsive: true, displayModeBar: false });
  };
  const chooser = (label, axis, names, entries) =>
    select(label, names.map((name) => [name, entries[name].name]), runAxes[axis], (chosen) => {
      runAxes[axis] = chosen;
      draw();
    });
  document.getElementById("run-controls").append(
    chooser("Value", "y", ["test_accuracy", "test_loss", "train_loss", ...DATA.metrics], CURVE_Y),
    chooser("Against", "x", DATA.curve_x, CURVE_X),
  );
  draw();
}

function factsOf(row) {
  const list = make("dl", {});
  for (const name of Object.keys(DATA.facts).filter((name) => name !== "status" && fact(name)(row))) {
    list.append(make("dt", {}, name.replace("_", " ")), make("dd", {}, fact(name)(row)));
  }
  return list;
}
