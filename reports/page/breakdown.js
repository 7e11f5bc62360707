// Where the time of a step goes, by phase.

function breakdownPlot(host) {
  const timed = CELLS.filter((cell) => mean(cell, "step_s") !== null);
  const groups = settings(timed);
  if (!timed.length) return;
  const off = new Set();
  let [setting, share] = [fullest(groups), "ms"];
  const controls = [
    ["Value", [["ms", "time [ms]"], ["%", "share [%]"]], share, (chosen) => (share = chosen)],
    groups.size > 1 && ["Setting", [...groups.keys()], setting, (chosen) => (setting = chosen)],
  ];
  const phases = Object.keys(DATA.phases);
  const toggle = (phase) => {
    if (!off.delete(phase)) off.add(phase);
    again();
  };
  const phaseLegend = (keys) =>
    legend(keys, phases.map((phase) => [phase, swatch(DATA.phases[phase])]), (phase) => !off.has(phase), toggle);
  const again = plot(host, "Where the time of a step goes", controls, () => {
    const shown = (groups.get(setting) ?? []).filter((cell) => isDrawn(cell) && mean(cell, "step_s") !== null);
    const names = shown.map((cell) => plain(cell.label, 32));
    const traces = phases.filter((phase) => !off.has(phase)).map((phase) => {
      const times = shown.map((cell) => timeOf(cell, phase) * (share === "ms" ? 1e3 : 100 / mean(cell, "step_s")));
      return {
        type: "bar", orientation: "h", name: phase, x: times, y: names,
        marker: { color: DATA.phases[phase], line: { color: colour("muted"), width: 0.5 } },
        text: times.map((time, place) => `${names[place]}<br>${phase}: ${number(time)} ${share}`),
        textposition: "none", hovertemplate: "%{text}<extra></extra>",
      };
    });
    const layout = {
      barmode: "stack", bargap: 0.3, height: 110 + 30 * shown.length,
      xaxis: { title: { text: share === "ms" ? "time of a step [ms]" : "share of a step [%]" } },
      yaxis: { autorange: "reversed", type: "category" },
    };
    const says = shown.map((cell) => `${cell.label} ${number(mean(cell, "step_s") * 1e3)} ms`).join(", ");
    return { traces: shown.length ? traces : [], layout, alt: `Time of a step by phase, ${setting}: ${says}.` };
  }, phaseLegend);
}

function timeOf(cell, phase) {
  if (phase !== "other") return mean(cell, `${phase}_s`) ?? 0;
  const named = Object.keys(DATA.phases).reduce((sum, name) => sum + (mean(cell, `${name}_s`) ?? 0), 0);
  return Math.max(mean(cell, "step_s") - named, 0);
}
