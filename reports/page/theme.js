// Light or dark: as the system says until the button says otherwise.

const themeListeners = [];
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : prefersDark.matches;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function startTheme() {
  const button = make("button", { type: "button", class: "theme" }, "Dark");
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    for (const listener of themeListeners) listener();
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("gradsweep-theme", theme);
    } catch {
      // It holds for this page, then.
    }
    show();
  });
  prefersDark.addEventListener("change", show);
  document.getElementById("tools").append(button);
  show();
}
