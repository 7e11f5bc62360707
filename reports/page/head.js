// Before anything is drawn: the page has scripts, and the theme that was chosen last.
document.documentElement.classList.add("js");
addEventListener("error", () => {
  if (!document.documentElement.dataset.ready) document.documentElement.classList.remove("js");
});
try {
  const theme = localStorage.getItem("gradsweep-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser may keep nothing for files; then the system's theme it is.
}
