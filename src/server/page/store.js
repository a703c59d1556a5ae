// What survives a reload besides the chats, in this browser alone: the settings, and which chat a window shows.

const kept = new Map();  // where the browser forbids or cannot hold it: for this visit

const kVersion = 2;  // settings before it had temperature 0.7 and top-p 0.95 written into them, whatever the server's were

export function loadSettings() {
  if (kept.has("settings")) return { ...kept.get("settings") };
  try {
    const { version, ...settings } = JSON.parse(localStorage.getItem("ibid.settings")) ?? {};
    if (version === kVersion) return settings;
    if (settings.temperature === 0.7) delete settings.temperature;
    if (settings.top_p === 0.95) delete settings.top_p;
    return settings;
  } catch {
    return {};
  }
}

export function saveSettings(settings) {
  try {
    localStorage.setItem("ibid.settings", JSON.stringify({ ...settings, version: kVersion }));
    kept.delete("settings");
  } catch {
    kept.set("settings", settings);
  }
}

// The model that the reader chose last.
export function rememberModel(id) {
  try {
    localStorage.setItem("ibid.model", id);
    kept.delete("model");
  } catch {
    kept.set("model", id);
  }
}
export function rememberedModel() {
  if (kept.has("model")) return kept.get("model");
  try {
    return localStorage.getItem("ibid.model");
  } catch {
    return null;
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
