// The chats that this browser keeps: an object store of IndexedDB, as many as the disk holds, and all of them here in
// memory, so that a look at them never waits. Where the browser keeps nothing they last for this visit.
import { sane } from "./tree.js";

const kRescue = "ibid.rescue.";
const chats = new Map();
const others = typeof BroadcastChannel === "function" ? new BroadcastChannel("ibid.chats") : null;
let database = null;

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function connect() {
  const request = indexedDB.open("ibid", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("chats", { keyPath: "id" });
  return done(request);
}

const store = (mode) => database.transaction("chats", mode).objectStore("chats");

function write(change) {
  if (!database) return;
  try {
    const request = change(store("readwrite"));
    request.transaction.commit?.();
  } catch { /* the disk is full or the browser forbids it: they stay for this visit */ }
}

// What an answer under way had come to when its page was left is written at once, which a database cannot promise.
function takeRescued() {
  try {
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(kRescue))) {
      const chat = sane(JSON.parse(localStorage.getItem(key)));
      localStorage.removeItem(key);
      if (chat) keepChat(chat);
    }
    // What pages kept before there was a database.
    for (const old of [...(JSON.parse(localStorage.getItem("ibid.chats")) ?? [])].reverse()) {
      const chat = sane(old);
      if (chat && !chats.has(chat.id)) keepChat(chat);
    }
    localStorage.removeItem("ibid.chats");
  } catch { /* forbidden, or not ours */ }
}

export function rescue(chat) {
  try {
    localStorage.setItem(kRescue + chat.id, JSON.stringify(chat));
  } catch { /* no room: what was kept last stays */ }
}

// onChange: another window of this browser has changed them.
export async function openChats(onChange) {
  try {
    database = await connect();
    for (const chat of chats.values()) write((all) => all.put(chat));  // of who was quicker than the database
    for (const given of await done(store("readonly").getAll())) {
      const chat = sane(given);
      if (chat && !chats.has(chat.id)) chats.set(chat.id, chat);
    }
  } catch {
    database = null;
  }
  takeRescued();
  if (!others) return;
  others.onmessage = async ({ data: id }) => {
    try {
      const chat = database && sane(await done(store("readonly").get(id)));
      if (chat) chats.set(id, chat);
      else if (database) chats.delete(id);
    } catch { /* as it was */ }
    onChange();
  };
}

// The latest first.
export const allChats = () => [...chats.values()].sort((a, b) => b.changed - a.changed);
export const chatOf = (id) => chats.get(id);

let lastChange = 0;
export function keepChat(chat, isChange = true) {
  if (isChange) chat.changed = lastChange = Math.max(Date.now(), lastChange + 1);
  chats.set(chat.id, chat);
  write((all) => all.put(chat));
  others?.postMessage(chat.id);
}

export function dropChat(id) {
  chats.delete(id);
  write((all) => all.delete(id));
  others?.postMessage(id);
}
