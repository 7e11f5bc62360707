// All parts of the page; where one fails, what the page shows without scripts is there again.

startTheme();
startRuns();
startPlots();
document.documentElement.dataset.ready = "true";
