// What survives a reload besides the chats, in this browser alone: the settings, and which chat a window shows.

const kept = new Map();  // where the browser forbids or cannot hold it: for this visit

export const defaults = { temperature: 0.7, top_p: 0.95 };

export function loadSettings() {
  if (kept.has("settings")) return { ...kept.get("settings") };
  try {
    return { ...(JSON.parse(localStorage.getItem("ibid.settings")) ?? defaults) };
  } catch {
    return { ...defaults };
  }
}

export function saveSettings(settings) {
  try {
    localStorage.setItem("ibid.settings", JSON.stringify(settings));
    kept.delete("settings");
  } catch {
    kept.set("settings", settings);
  }
}

// Which chat this window shows.
export function rememberOpen(id) {
  try {
    sessionStorage.setItem("ibid.open", id);
  } catch { /* forbidden: a reload begins a new chat */ }
}
export function rememberedOpen() {
  try {
    return sessionStorage.getItem("ibid.open");
  } catch {
    return null;
  }
}
