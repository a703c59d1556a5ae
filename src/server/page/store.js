// What survives a reload, in this browser alone: the settings and the last chats.

const kMostChats = 50;
const kept = new Map();  // where the browser forbids or cannot hold it: for this visit

function read(key, otherwise) {
  if (kept.has(key)) return kept.get(key);
  try {
    return JSON.parse(localStorage.getItem("ibid." + key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key, value) {
  try {
    localStorage.setItem("ibid." + key, JSON.stringify(value));
    kept.delete(key);
    return true;
  } catch {
    return false;
  }
}

export const defaults = { temperature: 0.7, top_p: 0.95 };
export const loadSettings = () => ({ ...read("settings", defaults) });
export function saveSettings(settings) {
  if (!write("settings", settings)) kept.set("settings", settings);
}

// A chat: { id, messages: [{ role: "user" | "assistant" | "error", content, … }] }; the latest first. Read anew each time,
// because another window of this browser may have changed them.
export function loadChats() {
  const chats = read("chats", []);
  return Array.isArray(chats) ? chats.filter((chat) => chat?.id && Array.isArray(chat.messages)) : [];
}

function saveChats(chats) {
  const all = chats.slice(0, kMostChats);
  for (let n = all.length; n >= Math.min(1, all.length); --n) {
    if (write("chats", all.slice(0, n))) return;  // no room: the oldest go
  }
  kept.set("chats", all);
}

export function saveChat(chat) {
  saveChats([chat, ...loadChats().filter((other) => other.id !== chat.id)]);
}

export function dropChat(id) {
  saveChats(loadChats().filter((chat) => chat.id !== id));
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

// crypto.randomUUID is missing on pages that come over plain HTTP from another machine.
export const newChat = () => ({ id: Date.now().toString(36) + Math.random().toString(36).slice(2), messages: [] });
