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

// Whether it is kept, once it is.
async function write(change) {
  if (!database) return false;
  try {
    const { transaction } = change(store("readwrite"));
    const kept = new Promise((resolve) => {
      transaction.oncomplete = () => resolve(true);
      transaction.onabort = () => resolve(false);
    });
    transaction.commit?.();
    return await kept;
  } catch {
    return false;  // the disk is full or the browser forbids it: they stay for this visit
  }
}

// Keeps those chats of an item that are wanted, and removes it once they are kept: a page may be left before that.
async function take(key, listOf, isWanted) {
  try {
    const text = localStorage.getItem(key), kept = [];
    for (const given of listOf(JSON.parse(text))) {
      const chat = sane(given);
      if (chat && isWanted(chat)) kept.push(keepChat(chat));
    }
    if ((await Promise.all(kept)).every((is) => is) && localStorage.getItem(key) === text) localStorage.removeItem(key);
  } catch { /* forbidden, or not ours */ }
}

// What an answer under way had come to when its page was left is written at once, which a database cannot promise.
function takeRescued() {
  try {
    for (const key of Object.keys(localStorage).filter((name) => name.startsWith(kRescue))) take(key, (chat) => [chat], () => true);
    // What pages kept before there was a database.
    take("ibid.chats", (all) => [...(all ?? [])].reverse(), (chat) => !chats.has(chat.id));
  } catch { /* forbidden */ }
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
// Promises whether the browser keeps it.
export function keepChat(chat, isChange = true) {
  if (isChange) chat.changed = lastChange = Math.max(Date.now(), lastChange + 1);
  chats.set(chat.id, chat);
  const kept = write((all) => all.put(chat));
  others?.postMessage(chat.id);
  return kept;
}

export function dropChat(id) {
  chats.delete(id);
  write((all) => all.delete(id));
  try {
    localStorage.removeItem(kRescue + id);  // where it could not be kept
  } catch { /* forbidden */ }
  others?.postMessage(id);
}
