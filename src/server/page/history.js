// The list of chats, by day: search, rename, delete, export, import. It is one stop of the Tab key: arrow keys go from chat
// to chat and to what can be done with one.
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

// Deleting needs two presses.
function dropButton(chat, onDrop) {
  const node = make("button", "drop", "");
  node.tabIndex = -1;
  node.title = "Delete (Del)";
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
  node.tabIndex = -1;
  node.title = "Rename (F2)";
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
      rows().find(({ dataset }) => dataset.id === chat.id)?.querySelector(".open").focus();
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

// ---- arrow keys
const rows = () => [...$("history").querySelectorAll("li")];
const openOf = (row) => row.querySelector(".open");

// Which of the chats Tab comes to.
function stopAt(node) {
  for (const row of rows()) if (openOf(row)) openOf(row).tabIndex = openOf(row) === node ? 0 : -1;
}

function onKey(event) {
  const row = event.target.closest("#history li");
  if (!row || event.target.localName !== "button") return;
  const all = rows(), buttons = [...row.querySelectorAll("button")];
  const at = all.indexOf(row), k = buttons.indexOf(event.target);
  const to = {
    ArrowDown: () => openOf(all[Math.min(at + 1, all.length - 1)]), ArrowUp: () => openOf(all[Math.max(at - 1, 0)]),
    Home: () => openOf(all[0]), End: () => openOf(all.at(-1)),
    ArrowRight: () => buttons[Math.min(k + 1, buttons.length - 1)], ArrowLeft: () => buttons[Math.max(k - 1, 0)],
    Escape: () => k > 0 && openOf(row),
  }[event.key]?.();
  if (to) to.focus();
  else if (event.key === "F2") row.querySelector(".rename").click();
  else if (event.key === "Delete") {
    row.querySelector(".drop").focus();
    row.querySelector(".drop").click();
  } else return;
  event.preventDefault();
  event.stopPropagation();
}

// ---- the list
const kDay = 24 * 3600 * 1000;

// By the reader's own clock: "Today", "Yesterday", the days of a week by how long ago they were, then months.
function dayOf(time, now) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - kDay) return "Yesterday";
  if (time >= midnight - 6 * kDay) return "Last 7 days";
  return new Date(time).toLocaleDateString("en-US", { month: "long", year: "numeric" });
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
  const hadFocus = document.activeElement?.closest("#history li")?.dataset.id;
  const groups = new Map();
  const now = Date.now();
  for (const chat of chats.slice(0, kRows)) {
    const row = document.createElement("li");
    row.dataset.id = chat.id;
    const node = make("button", "open", title(chat));
    node.dir = "auto";
    node.title = title(chat);
    if (chat.id === openId) node.setAttribute("aria-current", "true");
    node.onclick = () => onOpen(chatOf(chat.id) ?? chat);
    row.append(node, renameButton(chat, row, redraw), dropButton(chat, onDrop));
    const day = dayOf(chat.changed, now);
    if (!groups.has(day)) groups.set(day, []);
    groups.get(day).push(row);
  }
  $("history").replaceChildren(...[...groups].flatMap(([day, items]) => {
    const list = document.createElement("ul");
    list.setAttribute("aria-label", day);
    list.append(...items);
    return [make("h2", "day", day), list];
  }));
  $("history").hidden = chats.length === 0;
  const all = rows();
  stopAt(openOf(all.find(({ dataset }) => dataset.id === openId) ?? all[0] ?? document.createElement("li")));
  if (hadFocus !== undefined && document.activeElement === document.body)
    (openOf(all.find(({ dataset }) => dataset.id === hadFocus) ?? all[0] ?? document.createElement("li")) ?? $("new")).focus();
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
  } catch { /* reported below */ }
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
  $("search").onkeydown = ({ key }) => { if (key === "ArrowDown") openOf(rows()[0] ?? $("side"))?.focus(); };
  $("history").addEventListener("keydown", onKey);
  $("history").addEventListener("focusin", ({ target }) => {
    const row = target.closest("li");
    if (row && openOf(row)) stopAt(openOf(row));
  });
  $("export").onclick = save;
  $("import").onclick = () => $("import-file").click();
  $("import-file").onchange = async () => {
    const [file] = $("import-file").files;
    if (file) await load(file);
    $("import-file").value = "";
    redraw();
  };
}
