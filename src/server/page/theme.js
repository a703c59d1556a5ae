// Light or dark, before anything is painted. Without a choice of the reader's own the system's is followed.
const kThemeKey = "ibid.theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");

function chosenTheme() {
  try {
    return localStorage.getItem(kThemeKey);
  } catch {
    return null;
  }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemIsDark.matches;
}

// null follows the system.
function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem(kThemeKey, theme);
    else localStorage.removeItem(kThemeKey);
  } catch { /* forbidden: for this visit alone */ }
}

setTheme(chosenTheme());
