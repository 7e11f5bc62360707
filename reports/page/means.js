// Means of the chosen runs of a cell, as reports/page/cells.py computes those of all of its runs.

const [CURVE_KEYS, PROFILE_KEYS] = [DATA.curve_x, ["step"]]; // x of curves; all else is y

// [mean, low, high] with the 95 % interval by Student's t; [mean] of a single value; null without one.
function bandOf(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  if (known.length < 2) return [mean];
  const variance = known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1);
  const half = DATA.quantiles[known.length - 2] * Math.sqrt(variance / known.length);
  return [mean, mean - half, mean + half];
}

// What is shown of a cell if only these of its runs count.
function summarize(rows) {
  const done = rows.filter((row) => fact("status")(row) === "done");
  const shown = done.length ? done : rows;
  const races = new Set();
  const timed = rows.filter((row) => {
    const { race, values } = DATA.samples.rows[row];
    if (values[DATA.samples.names.indexOf("iterations_per_second")] === null || races.has(race)) return false;
    if (race !== null) races.add(race); // a race's figure counts once
    return true;
  });
  const values = {};
  DATA.samples.names.forEach((name, place) => {
    const members = DATA.samples.raced.includes(name) ? timed : done;
    const band = bandOf(members.map((row) => DATA.samples.rows[row].values[place]));
    if (band) values[name] = band;
  });
  const own = timed.length === 1 ? DATA.samples.rows[timed[0]].own : null;
  for (const name of own ? ["iterations_per_second", "samples_per_second"] : []) {
    if (values[name]) values[name] = [values[name][0], ...own.map((end) => values[name][0] * end)];
  }
  return {
    done: done.length, timed: timed.length, values,
    curve: averageCurves(DATA.curves.curves, shown, CURVE_KEYS), profile: averageCurves(DATA.profiles.curves, shown, PROFILE_KEYS),
  };
}

// The mean of some runs' curves at each of their first x; null where the page lacks one of them.
function averageCurves(curves, rows, xs) {
  const members = rows.map((row) => curves[row]);
  if (!members.length || members.some((curve) => !curve)) return null;
  const places = members.map((curve) => new Map(curve[xs[0]].map((x, place) => [x, place])));
  const every = [...new Set(members.flatMap((curve) => curve[xs[0]]))].sort((a, b) => a - b);
  const found = { n: rows.length };
  for (const name of Object.keys(members[0])) {
    const bands = every.map((x) => bandOf(members.map((curve, run) => curve[name]?.[places[run].get(x)] ?? null)) ?? [null]);
    const sides = [0, 1, 2].map((side) => bands.map((band) => band[side] ?? null));
    if (xs.includes(name)) found[name] = sides[0];
    else if (sides[0].some((mean) => mean !== null)) found[name] = sides.slice(0, rows.length > 1 ? 3 : 1);
  }
  return found;
}

// Let a cell show the means of these runs of it; all of its runs: as the page came.
function limitCell(cell, rows) {
  cell.whole ??= { ...cell };
  Object.assign(cell, cell.whole);
  if (rows.length && rows.length < cell.runs.length) Object.assign(cell, summarize(rows));
}
