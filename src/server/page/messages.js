// The conversation as the reader sees and hears it.
import { render } from "./markdown.js";

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

// A box that changes its size scrolls by itself; that says nothing about its reader.
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

function button(text, onclick) {
  const node = make("button", "small", text);
  node.type = "button";
  node.onclick = onclick;
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

export function addWelcome() {
  const welcome = make("div", "welcome");
  welcome.append(make("h2", "", "The same request gives the same bytes."),
                 make("p", "", "Set a seed and ask twice: the answer is the same, however busy the server is."));
  $("messages").append(welcome);
}

// passed: it got no answer, and others came after it.
export function addQuestion(text, passed = false) {
  change(() => {
    $("messages").querySelector(".welcome")?.remove();
    const node = make("article", "message user");
    node.setAttribute("aria-label", "You");
    node.append(make("div", "text", text));
    if (passed) node.append(make("p", "faint", "Not answered, so not sent along."));
    $("messages").append(node);
  });
}

// An answer that may still grow.
export class AnswerView {
  #node = make("article", "message assistant");
  #text = make("div", "text");
  #foot = make("div", "foot");
  #content = "";
  #due = false;
  #rest = 0;  // how long the last rendering took; a slow one leaves the reader's machine as much time again

  constructor() {
    this.#node.setAttribute("aria-label", "Answer");
    this.#node.append(this.#text, this.#foot);
    change(() => $("messages").append(this.#node));
  }

  begin() {
    heard = 0;
    $("spoken").replaceChildren();
    this.#node.classList.add("writing");
    this.#node.setAttribute("aria-busy", "true");
  }

  grow(content) {
    this.#content = content;
    speak(content, false);
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => requestAnimationFrame(() => this.#paint()), this.#rest);
  }

  #paint() {
    if (!this.#due) return;
    this.#due = false;
    const began = performance.now();
    change(() => render(this.#text, this.#content, canCopy));
    this.#rest = performance.now() - began > 8 ? 2 * (performance.now() - began) : 0;
  }

  end(content, figures) {
    const wasWriting = this.#node.classList.contains("writing");
    this.#content = content;
    this.#due = true;
    this.#paint();
    if (wasWriting) speak(content, true);
    this.#node.classList.remove("writing");
    this.#node.removeAttribute("aria-busy");
    change(() => {
      if (figures) this.#foot.append(make("p", "faint figures", figures));
      if (content && canCopy) {
        const node = button("Copy", () => copy(node, content));
        this.#foot.append(node);
      }
    });
  }

  offer(text, onclick) { change(() => this.#foot.append(button(text, onclick))); }
  withdraw(text) { [...this.#foot.children].find((node) => node.textContent === text)?.remove(); }
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
  remove() { this.#node.remove(); }
}
