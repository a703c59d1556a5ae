// A chat as a tree: an edited question or another answer is a further child of the same message, and nothing is lost.
//   chat:    { id, title, changed, messages, leaf, model }; model is the name of the one it asks, if it has chosen; leaf is the last message shown, -1 where there is none.
//   message: { role: "user" | "assistant" | "tool", parent, content, … }; parent is an index below its own, or -1.
import { isPictureUrl } from "./pictures.js";

const kRoles = ["user", "assistant", "tool"];
const kMost = 100_000;  // messages

// crypto.randomUUID is missing on pages that come over plain HTTP from another machine.
export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2);
export const newChat = () => ({ id: newId(), title: "", changed: Date.now(), messages: [], leaf: -1 });

// The indices from the first message to `to`.
export function path(chat, to = chat.leaf) {
  const indices = [];
  for (let i = to; i >= 0; i = chat.messages[i].parent) indices.push(i);
  return indices.reverse();
}

export function add(chat, parent, message) {
  chat.messages.push({ ...message, parent });
  chat.leaf = chat.messages.length - 1;
  return chat.leaf;
}

// Messages in the same place, the oldest first.
export function versions(chat, i) {
  const { parent, role } = chat.messages[i];
  return chat.messages.flatMap((m, k) => m.parent === parent && m.role === role ? [k] : []);
}

export const hasChildren = (chat, i) => chat.messages.some(({ parent }) => parent === i);

// Shows message `i` and the latest of what follows it.
export function choose(chat, i) {
  chat.leaf = i;
  for (let k = i + 1; k < chat.messages.length; ++k) if (chat.messages[k].parent === chat.leaf) chat.leaf = k;
}

export function title(chat) {
  if (chat.title) return chat.title.slice(0, 80);
  const first = chat.messages[0];
  return (first?.content || first?.files?.[0]?.name || first?.pictures?.[0]?.name || "New chat").slice(0, 80);
}

// ---- from a file, or from an older page: what is no chat is null
const text = (value) => typeof value === "string" ? value : "";
const count = (value) => Number.isFinite(value) ? value : 0;

function saneFiles(files) {
  return files.flatMap((file) => typeof file?.text === "string" ? [{ name: text(file.name), text: file.text }] : []);
}
function sanePictures(pictures) {
  return pictures.flatMap((picture) => isPictureUrl(picture?.url) ? [{ name: text(picture.name), url: picture.url }] : []);
}
function saneCalls(calls) {
  return calls.flatMap((call) => typeof call?.name !== "string" ? [] :
    [{ id: text(call.id), name: call.name, arguments: text(call.arguments) }]);
}
function saneTokens(tokens) {
  const pair = (t) => [text(t?.[0]), count(t?.[1])];
  return tokens.map((t) => [...pair(t), Array.isArray(t?.[2]) ? t[2].map(pair) : []]);
}

function saneMessage(given, parent) {
  const message = { role: given.role, parent, content: text(given.content) };
  for (const key of ["figures", "finish", "reasoning", "call", "name", "batch"]) {
    if (typeof given[key] === "string" && given[key]) message[key] = given[key];
  }
  if (Array.isArray(given.files)) message.files = saneFiles(given.files);
  if (Array.isArray(given.pictures)) message.pictures = sanePictures(given.pictures);
  if (Array.isArray(given.calls)) message.calls = saneCalls(given.calls);
  if (Array.isArray(given.tokens)) message.tokens = saneTokens(given.tokens);
  if (Number.isFinite(given.used)) message.used = given.used;
  if (given.isJson === true) message.isJson = true;
  const { failure } = given;
  if (typeof failure?.content === "string")
    message.failure = { content: failure.content, again: Boolean(failure.again), startNew: Boolean(failure.startNew) };
  return message;
}

export function sane(given) {
  if (typeof given?.id !== "string" || !given.id || !Array.isArray(given.messages) || given.messages.length > kMost) return null;
  const isList = given.messages.every((m) => m?.parent === undefined);  // as pages without versions kept them
  const messages = [];
  for (const m of given.messages) {
    if (isList && m?.role === "error") continue;
    if (!kRoles.includes(m?.role)) return null;
    const parent = isList ? messages.length - 1 : m.parent;
    if (!Number.isInteger(parent) || parent < -1 || parent >= messages.length) return null;
    messages.push(saneMessage(m, parent));
  }
  const last = messages.length - 1;
  const leaf = Number.isInteger(given.leaf) && given.leaf >= -1 && given.leaf <= last ? given.leaf : last;
  return { id: given.id, title: text(given.title), changed: count(given.changed), messages, leaf, model: text(given.model) };
}
