// A run's config, beside that of the run it is compared with.

function configOf(row) {
  const { common, differing } = DATA.configs;
  const own = Object.entries(differing).map(([key, column]) => [key, textOf(column, row)]);
  return new Map([...Object.entries(common), ...own]);
}

// The baseline's run that differs in the fewest keys; null where there is no other run of the baseline.
function baselineOf(row) {
  const columns = Object.values(DATA.configs.differing);
  const compressor = DATA.configs.differing.compressor;
  if (!compressor || textOf(compressor, row) === DATA.configs.baseline) return null;
  const code = compressor.texts.indexOf(DATA.configs.baseline);
  let [best, fewest] = [null, Infinity];
  for (let other = 0; other < COUNT && code >= 0; other++) {
    if (compressor.rows[other] !== code) continue;
    const count = columns.reduce((sum, column) => sum + (column.rows[other] !== column.rows[row] ? 1 : 0), 0);
    if (count < fewest) [best, fewest] = [other, count];
  }
  return best;
}

// A table of the config: what differs from the baseline's run, or all of it.
function configTable(row) {
  const other = baselineOf(row);
  const [own, theirs] = [configOf(row), other === null ? null : configOf(other)];
  const differs = (key) => theirs !== null && own.get(key) !== theirs.get(key);
  const body = make("tbody");
  const table = make(
    "table",
    { class: "config" },
    make("caption", {}, theirs ? `Config, compared with the baseline's run: ${nameOf(other)}` : "Config"),
    make("thead", {}, make("tr", {}, ...["key", "this run", ...(theirs ? ["baseline"] : [])].map((name) => make("th", { scope: "col" }, name)))),
    body,
  );
  const show = (all) => {
    const keys = [...own.keys()].filter((key) => all || differs(key)).sort();
    body.replaceChildren(
      ...keys.map((key) =>
        make(
          "tr",
          { class: all && differs(key) ? "differs" : null },
          make("th", { scope: "row" }, key),
          make("td", {}, own.get(key) || "null"),
          theirs ? make("td", {}, theirs.get(key) || "null") : null,
        ),
      ),
    );
    if (!keys.length) body.append(make("tr", {}, make("td", { colspan: "3" }, "Nothing differs.")));
  };
  show(theirs === null);
  const toggle = make("input", { type: "checkbox", id: "all-keys", change: () => show(toggle.checked) });
  const label = make("label", { for: "all-keys" }, `All ${own.size} keys, not only those that differ`);
  return make("div", {}, theirs ? make("p", { class: "toggle" }, toggle, " ", label) : null, make("div", { class: "scroll" }, table));
}
