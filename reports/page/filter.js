// Which runs are shown: words anywhere in a row, its status, and the value of each key.

// All that a row can be found by, in small letters: what its columns say, and `key=value`.
function searchable() {
  const words = Array(COUNT).fill("");
  const add = (column, prefix) => {
    const texts = column.texts.map((text) => `${prefix}${text}\n`.toLowerCase());
    for (let row = 0; row < COUNT; row++) words[row] += texts[column.rows[row]];
  };
  for (const column of DATA.runs.columns) add(column, column.kind === "name" ? `${column.name}=` : "");
  for (const [key, column] of Object.entries(DATA.configs.differing)) add(column, `${key}=`);
  for (const [row, { reason }] of Object.entries(DATA.runs.unfinished)) words[row] += reason.toLowerCase();
  return words;
}

// Whether a word is in a row: anywhere, but the number of `key=1` as a whole, not in `key=12` or `key=1.5`.
function finder(word) {
  if (!/[^=]=.*\d$/.test(word)) return (row) => row.includes(word);
  const pattern = new RegExp(`(?<![\\w-])${word.replace(/[^\w]/g, "\\$&")}(?![\\w.])`);
  return (row) => pattern.test(row);
}

const MOST_SELECTS = 8;

// Controls, and `rows()`: the rows that pass, in the table's first order.
function makeFilter(host, changed) {
  let words = null;
  const chosen = new Map();
  const text = make("input", { type: "search", id: "filter-text", placeholder: "qsgd lr=0.1 …", autocomplete: "off", spellcheck: "false" });
  text.addEventListener("input", changed);
  const fields = [
    make("div", { class: "control grow" }, make("label", { for: "filter-text" }, "Runs with these words"), text),
  ];
  const status = DATA.runs.columns.find((column) => column.name === "status");
  const keys = filterKeys().filter((column) => column !== status).slice(0, MOST_SELECTS);
  for (const column of [...(status ? [status] : []), ...keys]) {
    const values = column === status ? [...column.texts] : [...column.texts].sort(compare);
    const options = [["*", "all"], ...values.map((value) => [String(column.texts.indexOf(value)), value])];
    fields.push(
      select(column.name, options, "*", (value) => {
        if (value === "*") chosen.delete(column);
        else chosen.set(column, Number(value));
        changed();
      }),
    );
  }
  const reset = make("button", { type: "button" }, "Clear");
  reset.addEventListener("click", () => {
    text.value = "";
    chosen.clear();
    for (const list of host.querySelectorAll("select")) list.value = "*";
    changed();
  });
  host.append(...fields, reset);
  return () => {
    words ??= searchable();
    const wanted = text.value.toLowerCase().split(/\s+/).filter(Boolean).map(finder);
    const rows = [];
    for (let row = 0; row < COUNT; row++) {
      const passes = [...chosen].every(([column, code]) => column.rows[row] === code);
      if (passes && wanted.every((isIn) => isIn(words[row]))) rows.push(row);
    }
    return rows;
  };
}
