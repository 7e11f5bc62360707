// The table of runs: filter, order, rows.

function startRuns() {
  const host = document.getElementById("runs-table");
  const columns = DATA.runs.columns.filter((column) => column.name !== "reason");
  const firstNumber = columns.findIndex((column) => column.kind === "number");
  const numbers = columns.filter((column) => column.kind === "number").length;
  const order = { column: null, sign: 1 };
  const said = make("p", { role: "status", class: "note" });
  const controls = make("div", { class: "controls", role: "search", "aria-label": "Filter the runs" });
  const body = make("tbody");
  const heads = columns.map((column) => head(column, () => sortBy(column)));
  const table = make(
    "table",
    { class: "runs", "aria-rowcount": COUNT + 1 },
    make("caption", { class: "unseen" }, "All runs; arrow keys go from row to row, Enter shows a run"),
    make("colgroup", {}, ...columns.map(widthOf)),
    make("thead", {}, make("tr", { "aria-rowindex": 1 }, ...heads)),
    body,
  );
  const box = make("div", { class: "scroll tall", role: "region", tabindex: "0", "aria-label": "All runs" }, table);
  const virtual = new VirtualTable(box, body, cells, openRun, columns.length);
  const filtered = makeFilter(controls, update);
  const draws = (rows, isLimited) => () => {
    drawButton.toggleAttribute("data-plotted", isLimited); // for who loads the page again
    drawRuns(rows());
  };
  const drawButton = make("button", { type: "button", "data-plots": true, click: draws(() => virtual.rows, true) }, "Plot only these");
  const allButton = make("button", { type: "button", click: draws(() => null, false) }, "Plot all");
  if (LOOKS.size > 1) controls.append(drawButton, allButton);
  host.append(controls, said, box);
  update();
  onPrint((isPrinting) => virtual.print(isPrinting));

  function cells(row) {
    const unfinished = DATA.runs.unfinished[row];
    const line = [];
    for (let place = 0; place < columns.length; place++) {
      const column = columns[place];
      const text = textOf(column, row);
      if (unfinished && place === firstNumber) {
        line.push(make("td", { colspan: numbers, class: "bad", title: unfinished.reason }, unfinished.reason));
        place += numbers - 1;
      } else if (place === 0) {
        line.push(make("th", { scope: "row" }, make("button", { type: "button", class: "open", title: text }, text || "unknown")));
      } else if (column.name === "run") {
        line.push(make("td", {}, make("a", { href: `${address(textOf(DATA.runs.paths, row))}/`, title: text, tabindex: "-1" }, text)));
      } else {
        const kind = column.name === "status" ? (unfinished ? "status bad" : "status") : null;
        line.push(make("td", { class: column.kind === "number" ? "number" : kind, title: text }, text));
      }
    }
    return line;
  }

  function sortBy(column) {
    if (order.column !== column) Object.assign(order, { column, sign: column.kind === "number" ? -1 : 1 });
    else if (order.sign === (column.kind === "number" ? -1 : 1)) order.sign *= -1;
    else order.column = null;
    columns.forEach((one, place) => {
      const sense = one !== order.column ? "none" : order.sign > 0 ? "ascending" : "descending";
      heads[place].setAttribute("aria-sort", sense);
    });
    update();
  }

  function update() {
    const rows = filtered();
    if (order.column) {
      const ranks = ranksOf(order.column);
      const rank = (row) => ranks[order.column.rows[row]];
      rows.sort((a, b) => {
        const [x, y] = [rank(a), rank(b)];
        return x === null || y === null ? (x === null) - (y === null) : order.sign * (x - y);
      });
    }
    virtual.show(rows);
    table.setAttribute("aria-rowcount", rows.length + 1);
    const printed = rows.length > MOST_PRINTED ? `; a print has the first ${MOST_PRINTED.toLocaleString("en-US")}` : "";
    said.textContent = `${rows.length.toLocaleString("en-US")} of ${counted(COUNT, "run")}${printed}.`;
  }
}

// The place of each of a column's texts in their order; null for what is no number in a column of numbers.
function ranksOf(column) {
  const value = (text) => (column.kind === "number" ? text.replace(/[,†‡§¶‖◊△]/g, "") : text);
  const places = column.texts.map((_, place) => place);
  places.sort((a, b) => compare(value(column.texts[a]), value(column.texts[b])));
  const ranks = [];
  places.forEach((place, rank) => {
    const isMissing = column.kind === "number" && Number.isNaN(Number(value(column.texts[place])));
    ranks[place] = isMissing ? null : rank;
  });
  return ranks;
}

function head(column, sort) {
  const name = make("span", {}, column.name);
  const button = make("button", { type: "button", click: sort }, name);
  if (column.unit) button.append(" ", make("span", { class: "unit" }, `[${column.unit}]`));
  return make("th", { scope: "col", "aria-sort": "none", class: column.kind === "number" ? "number" : null }, button);
}

// As wide as the longest text, within reason: rows that come into view must not move the columns.
function widthOf(column) {
  const longest = Math.max(column.name.length + 2, column.unit.length + 2, ...column.texts.slice(0, 5000).map((text) => text.length));
  const element = make("col");
  element.style.width = `${Math.min(longest, column.name === "run" ? 40 : 26) * 0.62 + 1.4}em`;
  return element;
}

function onPrint(listener) {
  addEventListener("beforeprint", () => listener(true));
  addEventListener("afterprint", () => listener(false));
  matchMedia("print").addEventListener("change", (event) => listener(event.matches));
}
