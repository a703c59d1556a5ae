// The conversation as the reader sees and hears it.
import { fileNodes } from "./attach.js";
import { callCards, callForm } from "./calls.js";
import { render, renderQuestion } from "./markdown.js";
import { pictureNode } from "./pictures.js";
import { tokensNode } from "./tokens.js";

const $ = (id) => document.getElementById(id);
const kNear = 48;  // pixels from the end that still count as being there

function make(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function atEnd() {
  const box = $("scroll");
  return box.scrollHeight - box.scrollTop - box.clientHeight < kNear;
}

export function toEnd() {
  $("scroll").scrollTop = $("scroll").scrollHeight;
  $("latest").hidden = true;
}

// Who reads at the end stays there; who has scrolled up, perhaps before the other view was opened, is left alone.
function change(edit) {
  const seen = $("scroll").clientHeight > 0;
  const follow = seen ? atEnd() : $("latest").hidden;
  edit();
  if (follow) toEnd();
  else if (seen) $("latest").hidden = atEnd();
}

// A box that changes its size scrolls by itself; its reader did not scroll then.
let size = "";
const sizeNow = () => `${$("scroll").clientWidth} ${$("scroll").clientHeight}`;
$("scroll").addEventListener("scroll", () => {
  if (size === sizeNow()) $("latest").hidden = atEnd();
}, { passive: true });
new ResizeObserver(() => {
  size = sizeNow();
  if ($("latest").hidden) toEnd();
}).observe($("scroll"));
$("latest").onclick = () => {
  toEnd();
  $("scroll").focus();
};

// A screen reader hears whole sentences, not every token; the newest answer alone.
const kSentenceEnds = [". ", "! ", "? ", ": ", "\n"];
let heard = 0;
function speak(text, whole) {
  const fresh = text.slice(heard);
  const end = whole ? fresh.length : Math.max(...kSentenceEnds.map((mark) => fresh.lastIndexOf(mark))) + 1;
  if (end <= 0) return;
  heard += end;
  $("spoken").append(make("p", "", fresh.slice(0, end).replace(/[*`#_|>]+/g, " ")));
}

function button(text, onclick, className = "") {
  const node = make("button", `small ${className}`.trim(), text);
  node.type = "button";
  node.onclick = onclick;
  return node;
}

// ‹ 2 / 3 ›: the message's place among its versions. turn(step) shows another.
function versionsNode({ at, n, turn }) {
  const node = make("span", "versions");
  const step = (text, name, by) => {
    const to = button(text, () => turn(by), by < 0 ? "earlier" : "later");
    to.setAttribute("aria-label", name);
    to.disabled = at + by < 0 || at + by >= n;
    return to;
  };
  node.append(step("‹", "Earlier version", -1), make("span", "faint", `${at + 1} / ${n}`), step("›", "Later version", 1));
  return node;
}

const canCopy = Boolean(navigator.clipboard);  // missing on plain HTTP from another machine
async function copy(from, text) {
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = "Copied";
  } catch {
    from.textContent = "Not allowed";
  }
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}
$("messages").addEventListener("click", (event) => {
  const from = event.target.closest("button.copy-code");
  if (from) copy(from, from.closest(".code").querySelector("code").textContent);
});

export function clear() {
  $("messages").replaceChildren();
  $("latest").hidden = true;
}

// What edit() draws stays where the reader is.
export function inPlace(edit) {
  const top = $("scroll").scrollTop;
  edit();
  $("scroll").scrollTop = top;
  $("latest").hidden = atEnd();
}

export function addWelcome() {
  const welcome = make("div", "welcome");
  welcome.append(make("h2", "", "The same request gives the same bytes."),
                 make("p", "", "Set a seed and ask twice: the answer is the same, however busy the server is."));
  $("messages").append(welcome);
}

// Answers that stand beside each other.
export function addBeside() {
  const node = make("div", "beside");
  change(() => $("messages").append(node));
  return node;
}

// The question in a field, to be asked in another way.
function editForm({ content }, onSend, onCancel) {
  const form = make("form", "edit");
  const field = make("textarea", "");
  field.value = content;
  field.rows = Math.min(12, content.split("\n").length + 1);
  field.setAttribute("aria-label", "The question");
  const send = make("button", "", "Send");
  const foot = make("div", "foot");
  foot.append(send, button("Cancel", onCancel));
  form.append(field, foot);
  form.onsubmit = (event) => {
    event.preventDefault();
    if (field.value.trim() !== "") onSend(field.value.trim());
  };
  field.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.onsubmit(event);
    else if (event.key === "Escape") onCancel();
    else return;
    event.stopPropagation();
  };
  return [form, field];
}

// passed: it got no answer, and others came after it. versions: where there are several. onEdit gets the new text.
export function addQuestion(message, { passed = false, versions = null, onEdit }) {
  change(() => {
    $("messages").querySelector(".welcome")?.remove();
    const node = make("article", "message user");
    node.setAttribute("aria-label", "You");
    const foot = make("div", "foot");
    const edit = button("Edit", () => {
      const [form, field] = editForm(message, onEdit, () => {
        form.replaceWith(...shown);
        node.classList.remove("editing");
        edit.focus();
      });
      const shown = [...node.children];
      node.replaceChildren(form);
      node.classList.add("editing");
      field.focus();
    }, "edit-button");
    if (versions) foot.append(versionsNode(versions));
    foot.append(edit);
    const text = make("div", "text");
    renderQuestion(text, message.content, canCopy);
    const pictures = make("div", "pictures");
    pictures.append(...(message.pictures ?? []).map(pictureNode));
    if (message.pictures) node.append(pictures);
    node.append(...fileNodes(message.files ?? []), text);
    if (passed) node.append(make("p", "faint", "Not answered, so not sent along."));
    node.append(foot);
    $("messages").append(node);
  });
}

export function addResult({ name, content }) {
  change(() => {
    const node = make("article", "message result");
    node.setAttribute("aria-label", "Result of a call");
    const fold = make("details", "file");
    const pre = make("pre", "", content);
    pre.tabIndex = 0;
    fold.open = content.length < 400;
    fold.append(make("summary", "", `What ${name || "the call"} gave`), pre);
    node.append(fold);
    $("messages").append(node);
  });
}

// An answer that may still grow: { content, reasoning, calls, tokens, figures }.
export class AnswerView {
  #node = make("article", "message assistant");
  #think = make("details", "think");
  #thought = make("div", "text");
  #text = make("div", "text");
  #cards = make("div", "calls");
  #foot = make("div", "foot");
  #message = { content: "" };
  #due = false;
  #rest = 0;  // how long the last rendering took; a slow one leaves the reader's machine as much time again

  constructor(box = $("messages")) {
    this.#node.setAttribute("aria-label", "Answer");
    this.#think.append(make("summary", "", "Reasoning"), this.#thought);
    this.#think.addEventListener("toggle", () => {
      if (this.#think.open) render(this.#thought, this.#message.reasoning ?? "", canCopy);
    });
    this.#node.append(this.#text, this.#cards, this.#foot);
    change(() => box.append(this.#node));
  }

  // speaks: a screen reader hears it.
  begin(speaks = true) {
    if (speaks) {
      heard = 0;
      $("spoken").replaceChildren();
      this.#node.classList.add("spoken");
    }
    this.#foot.replaceChildren();
    this.#node.classList.add("writing");
    this.#node.setAttribute("aria-busy", "true");
  }

  grow(message) {
    this.#message = message;
    if (this.#node.classList.contains("spoken")) speak(message.content, false);
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => requestAnimationFrame(() => this.#paint()), this.#rest);
  }

  // What stood there already is not heard again.
  goOn(message) {
    heard = message.content.length;
    this.grow(message);
  }

  #paint() {
    if (!this.#due) return;
    this.#due = false;
    const began = performance.now();
    const { content, reasoning, calls, isJson } = this.#message;
    change(() => {
      if (reasoning && !this.#think.isConnected) this.#node.prepend(this.#think);
      this.#think.firstChild.textContent = content || calls || !this.#node.classList.contains("writing") ?
        "Reasoning" : `Reasoning … ${reasoning?.length ?? 0} characters`;
      if (this.#think.open) render(this.#thought, reasoning ?? "", canCopy);
      render(this.#text, content, canCopy, isJson);
      if (calls) this.#cards.replaceChildren(...callCards(calls));
    });
    this.#rest = performance.now() - began > 8 ? 2 * (performance.now() - began) : 0;
  }

  end(message) {
    const wasWriting = this.#node.classList.contains("spoken");
    const { content, figures, tokens } = message;
    this.#message = message;
    this.#due = true;
    this.#node.classList.remove("writing", "spoken");
    this.#paint();
    if (wasWriting) speak(content, true);
    this.#node.removeAttribute("aria-busy");
    change(() => {
      this.#foot.replaceChildren();
      if (figures) this.#foot.append(make("p", "faint figures", figures));
      if (content && canCopy) {
        const node = button("Copy", () => copy(node, content));
        this.#foot.append(node);
      }
      if (tokens?.length) this.#foot.append(this.#tokensButton(tokens));
    });
  }

  #tokensButton(tokens) {
    let shown = null;
    const node = button("Tokens", () => {
      if (shown) {
        shown.replaceWith(this.#text);
        shown = null;
      } else {
        this.#text.replaceWith(shown = tokensNode(tokens));
      }
      node.setAttribute("aria-pressed", Boolean(shown));
    }, "tokens-button");
    node.setAttribute("aria-pressed", false);
    return node;
  }

  offer(text, onclick, className) { change(() => this.#foot.append(button(text, onclick, className))); }
  offerVersions(versions) { change(() => this.#foot.append(versionsNode(versions))); }
  // onAnswer gets a text for each call.
  askResults(onAnswer) {
    change(() => this.#cards.append(callForm(this.#message.calls.filter(Boolean), onAnswer)));
  }
  mark() { this.#node.classList.add("chosen"); }
  remove() { this.#node.remove(); }
}

export class ErrorView {
  #node = make("article", "message error");
  constructor(sentence, offers) {
    this.#node.setAttribute("role", "alert");
    const foot = make("div", "foot");
    foot.append(...offers.map(([text, onclick]) => button(text, onclick)));
    this.#node.append(make("p", "text", sentence), foot);
    change(() => $("messages").append(this.#node));
  }
}
