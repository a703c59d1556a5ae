// The list of chats that this browser keeps.
import { dropChat, loadChats } from "./store.js";

const $ = (id) => document.getElementById(id);
const kSure = 4000;  // ms within which the second press deletes
const title = (item) => (item.messages[0]?.content ?? "New chat").slice(0, 80);

// Deleting wants two presses.
function dropButton(item, onDrop) {
  const node = document.createElement("button");
  const calm = () => {
    node.classList.remove("sure");
    node.textContent = "×";
    node.setAttribute("aria-label", `Delete the chat ${title(item)}`);
  };
  calm();
  node.className = "drop";
  node.onblur = calm;
  node.onclick = () => {
    if (!node.classList.contains("sure")) {
      node.classList.add("sure");
      node.textContent = "Delete?";
      node.removeAttribute("aria-label");
      setTimeout(calm, kSure);
      return;
    }
    dropChat(item.id);
    onDrop(item.id);
  };
  return node;
}

export function drawHistory(openId, onOpen, onDrop) {
  const items = loadChats();
  $("no-history").hidden = items.length > 0;
  $("history").replaceChildren(...items.map((item) => {
    const row = document.createElement("li");
    const node = document.createElement("button");
    node.className = "open";
    node.textContent = title(item);
    if (item.id === openId) node.setAttribute("aria-current", "true");
    node.onclick = () => onOpen(loadChats().find(({ id }) => id === item.id) ?? item);
    row.append(node, dropButton(item, onDrop));
    return row;
  }));
}
