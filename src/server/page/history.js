// The list of chats: search, rename, delete, export, import.
import { allChats, chatOf, dropChat, keepChat } from "./chats.js";
import { newId, sane, title } from "./tree.js";

const $ = (id) => document.getElementById(id);
const kSure = 4000;  // ms within which the second press deletes
const kRows = 200;
const kMostBytes = 200 << 20;  // of a file to import

function make(name, className, text) {
  const node = document.createElement(name);
  node.className = className;
  node.textContent = text;
  return node;
}

// Deleting wants two presses.
function dropButton(chat, onDrop) {
  const node = make("button", "drop", "");
  const calm = () => {
    node.classList.remove("sure");
    node.textContent = "×";
    node.setAttribute("aria-label", `Delete the chat ${title(chat)}`);
  };
  calm();
  node.onblur = calm;
  node.onclick = () => {
    if (!node.classList.contains("sure")) {
      node.classList.add("sure");
      node.textContent = "Delete?";
      node.removeAttribute("aria-label");
      setTimeout(calm, kSure);
      return;
    }
    dropChat(chat.id);
    onDrop(chat.id);
  };
  return node;
}

function renameButton(chat, row, redraw) {
  const node = make("button", "rename", "✎");
  node.setAttribute("aria-label", `Rename the chat ${title(chat)}`);
  node.onclick = () => {
    const field = make("input", "name", "");
    field.value = title(chat);
    field.setAttribute("aria-label", "Name of the chat");
    let isOver = false;
    const end = (keep) => {
      if (isOver) return;
      isOver = true;
      if (keep) {
        chat.title = field.value.trim().slice(0, 200);
        keepChat(chat, false);
      }
      row.replaceChildren();
      redraw();
      [...$("history").children].find(({ dataset }) => dataset.id === chat.id)?.querySelector(".open").focus();
    };
    field.onblur = () => end(true);
    field.onkeydown = (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.stopPropagation();
      event.preventDefault();  // the row's button has the focus before the key is over
      end(event.key === "Enter");
    };
    row.replaceChildren(field);
    field.select();
  };
  return node;
}

const holds = (chat, words) => {
  const text = [chat.title, ...chat.messages.map(({ content }) => content)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
};

function found() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length === 0 ? allChats() : allChats().filter((chat) => holds(chat, words));
}

export function drawHistory(openId, onOpen, onDrop) {
  const redraw = () => drawHistory(openId, onOpen, onDrop);
  if ($("history").querySelector("input.name")) return;  // a name is being written
  const chats = found();
  const none = $("search").value ? "None holds these words." : "None yet. They are kept in this browser alone.";
  $("no-history").textContent = chats.length > kRows ? `And ${chats.length - kRows} more: search finds them.` : none;
  $("no-history").hidden = chats.length > 0 && chats.length <= kRows;
  $("export").disabled = chats.length === 0;
  $("history").replaceChildren(...chats.slice(0, kRows).map((chat) => {
    const row = document.createElement("li");
    row.dataset.id = chat.id;
    const node = make("button", "open", title(chat));
    node.title = title(chat);
    if (chat.id === openId) node.setAttribute("aria-current", "true");
    node.onclick = () => onOpen(chatOf(chat.id) ?? chat);
    row.append(node, renameButton(chat, row, redraw), dropButton(chat, onDrop));
    return row;
  }));
}

function say(text) {
  $("history-said").textContent = text;
  $("history-said").hidden = !text;
}

// What the list shows, as a file.
function save() {
  const chats = found();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify({ ibid_chats: 1, chats }, null, 1)], { type: "application/json" }));
  link.download = `ibid-chats-${new Date().toISOString().slice(0, 10)}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  say(`${chats.length} exported.`);
}

// Takes what save() wrote; a chat that is here in another state becomes a further one.
async function load(file) {
  let given = null;
  try {
    if (file.size > kMostBytes) return say("The file is too large.");
    given = JSON.parse(await file.text());
  } catch { /* said below */ }
  const list = given?.ibid_chats === 1 && Array.isArray(given.chats) ? given.chats : null;
  if (!list) return say("The file holds no chats that this page has exported.");
  let n = 0, n_known = 0;
  for (const entry of list) {
    const chat = sane(entry);
    if (!chat) continue;
    const known = chatOf(chat.id);
    if (known && JSON.stringify(known.messages) === JSON.stringify(chat.messages)) {
      ++n_known;
      continue;
    }
    if (known) chat.id = newId();
    keepChat(chat, false);
    ++n;
  }
  const n_bad = list.length - n - n_known;
  say(`${n} imported.` + (n_known ? ` ${n_known} were here already.` : "") + (n_bad ? ` ${n_bad} could not be read.` : ""));
}

export function startHistory(redraw) {
  $("search").oninput = redraw;
  $("export").onclick = save;
  $("import").onclick = () => $("import-file").click();
  $("import-file").onchange = async () => {
    const [file] = $("import-file").files;
    if (file) await load(file);
    $("import-file").value = "";
    redraw();
  };
}
