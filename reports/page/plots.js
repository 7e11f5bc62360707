// Which plot goes where: the page has an empty place for each.

const PLOTS = {
  scaling: scalingPlot,
  accuracy: (host) =>
    curvesPlot(host, "Over training", "curve", DATA.curve_x, ["test_accuracy", "test_loss", "train_loss", ...DATA.metrics, "local_test_accuracy", "consensus_distance"]),
  pareto: paretoPlot,
  error: (host) =>
    curvesPlot(host, "Compression over training", "profile", ["step"], ["compression_error", "memory_norm"]),
  breakdown: breakdownPlot,
  heatmap: heatmapPlot,
  parallel: parallelPlot,
};

function startPlots() {
  for (const host of document.querySelectorAll("[data-plot]")) {
    PLOTS[host.dataset.plot](host);
    host.hidden = !host.children.length;
  }
  for (const section of document.querySelectorAll("section[hidden]")) {
    section.hidden = !section.querySelector("[data-plot]:not([hidden])");
  }
  for (const link of document.querySelectorAll("nav a")) {
    link.hidden = document.getElementById(link.hash.slice(1))?.hidden ?? false;
  }
}
