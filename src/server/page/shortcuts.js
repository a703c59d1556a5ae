// Keys that work wherever the focus is, and their list under "?".

const $ = (id) => document.getElementById(id);
const kIsMac = /Mac|iPhone|iPad/.test(navigator.platform);

const isWriting = () => document.activeElement?.matches("input:not([type=checkbox]), textarea, select");

function list() {
  if (!$("keys").open) $("keys").showModal();
}

// search(): the list of chats is to be seen. startNew(): a new chat.
export function startShortcuts({ search, startNew }) {
  if (kIsMac) for (const node of document.querySelectorAll("#keys .command")) node.textContent = "⌘";
  $("keys-button").onclick = list;
  $("keys-close").onclick = () => $("keys").close();
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey || $("keys").open) return;
    const command = kIsMac ? event.metaKey : event.ctrlKey;
    const key = event.key.toLowerCase();
    const isChat = !$("view-chat").hidden;
    if (command && !event.shiftKey && key === "k" && isChat) {
      search();
      $("search").focus();
      $("search").select();
    } else if (command && event.shiftKey && key === "o" && isChat) {
      startNew();
      $("input").focus({ preventScroll: true });
    } else if (!command && key === "?" && !isWriting()) {
      list();
    } else {
      return;
    }
    event.preventDefault();
  });
}
