import { render } from "/markdown.js";

const $ = (id) => document.getElementById(id);
const numbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const texts = ["system", "stop"];

// What survives a reload stays in this browser.
const store = {
  get(key, otherwise) { try { return JSON.parse(localStorage.getItem("ibid." + key)) ?? otherwise; } catch { return otherwise; } },
  set(key, value) { try { localStorage.setItem("ibid." + key, JSON.stringify(value)); } catch { /* full or forbidden: not kept */ } },
};
let chats = store.get("chats", []);
let current = null;
let running = null;

// ---- theme and tabs
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawEngine();
}
const asked = new URLSearchParams(location.search).get("theme");
$("theme").onclick = () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  store.set("theme", next);
  setTheme(next);
};

const tabs = ["chat", "engine"];
function show(tab) {
  for (const name of tabs) {
    const selected = name === tab;
    $("view-" + name).hidden = !selected;
    $("tab-" + name).setAttribute("aria-selected", selected);
    $("tab-" + name).tabIndex = selected ? 0 : -1;
  }
  history.replaceState(null, "", tab === "engine" ? "#engine" : "#");
  if (tab === "engine") poll(); else $("input").focus();
}
for (const name of tabs) {
  $("tab-" + name).onclick = () => show(name);
  $("tab-" + name).onkeydown = (e) => {
    if (e.key === "ArrowLeft" || e.key === "ArrowRight") {
      const other = name === "chat" ? "engine" : "chat";
      show(other);
      $("tab-" + other).focus();
    }
  };
}

// ---- settings
const settings = store.get("settings", { temperature: 0.7, top_p: 0.95 });
for (const id of [...numbers, ...texts]) {
  if (settings[id] !== undefined) $(id).value = settings[id];
  $(id).onchange = () => {
    const value = $(id).value;
    if (value === "") delete settings[id]; else settings[id] = numbers.includes(id) ? Number(value) : value;
    store.set("settings", settings);
  };
}
$("settings").onsubmit = (e) => e.preventDefault();
$("settings-button").onclick = () => $("settings-button").setAttribute("aria-expanded", $("side").classList.toggle("wide"));

// ---- history
function title(chat) { return (chat.messages[0]?.content ?? "New chat").slice(0, 60); }
function keep() {
  if (current && current.messages.length > 0 && !chats.includes(current)) chats.unshift(current);
  chats = chats.slice(0, 50);
  store.set("chats", chats);
  drawHistory();
}
function drawHistory() {
  $("history").replaceChildren(...chats.map((chat) => {
    const item = document.createElement("li");
    const open = document.createElement("button");
    open.className = "open";
    open.textContent = title(chat);
    open.setAttribute("aria-current", chat === current);
    open.onclick = () => { halt(); current = chat; draw(); };
    const drop = document.createElement("button");
    drop.textContent = "×";
    drop.setAttribute("aria-label", "Delete this chat");
    drop.onclick = () => { chats = chats.filter((c) => c !== chat); if (chat === current) startNew(); keep(); };
    item.append(open, drop);
    return item;
  }));
}
function startNew() {
  halt();
  current = { messages: [] };
  draw();
}
$("new").onclick = startNew;

// ---- messages
function bubble(message) {
  const node = document.createElement("div");
  node.className = "message " + message.role;
  if (message.role === "assistant") render(node, message.content); else node.textContent = message.content;
  $("messages").append(node);
  if (message.figures) $("messages").append(figures(message.figures));
  return node;
}
function figures(text) {
  const node = document.createElement("p");
  node.className = "faint figures";
  node.textContent = text;
  return node;
}
function draw() {
  $("messages").replaceChildren();
  if (current.messages.length === 0) {
    const welcome = document.createElement("div");
    welcome.className = "welcome";
    const head = document.createElement("h1");
    head.textContent = "The same request gives the same bytes.";
    const line = document.createElement("p");
    line.textContent = "Set a seed and ask twice. Enter sends, Shift+Enter starts a line, Esc stops.";
    welcome.append(head, line);
    $("messages").append(welcome);
  }
  for (const message of current.messages) bubble(message);
  $("messages").scrollTop = $("messages").scrollHeight;
  drawHistory();
}

function requestBody() {
  const messages = current.messages.filter((m) => m.role !== "error").map(({ role, content }) => ({ role, content }));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const id of numbers) if (Number.isFinite(settings[id])) body[id] = settings[id];
  if (settings.stop) body.stop = settings.stop;
  return body;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}

async function ask(text) {
  if (current.messages.length === 0) $("messages").replaceChildren();
  const question = { role: "user", content: text };
  current.messages.push(question);
  bubble(question);
  const body = requestBody();
  const answer = { role: "assistant", content: "" };
  const node = bubble(answer);
  node.classList.add("writing");
  const list = $("messages");
  list.scrollTop = list.scrollHeight;
  const chat = current;
  const control = new AbortController();
  running = control;
  $("send").hidden = true;
  $("halt").hidden = false;
  const began = performance.now();
  let first = 0, tokens = 0, cached = 0, seed, finish = "", due = false;
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: control.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      seed = event.seed;
      if (event.usage) { tokens = event.usage.completion_tokens; cached = event.usage.prompt_tokens_details.cached_tokens; }
      const choice = event.choices[0];
      if (!choice) continue;
      if (choice.finish_reason) finish = choice.finish_reason;
      if (choice.delta.content) {
        first ||= performance.now();
        answer.content += choice.delta.content;
        if (!due) {
          due = true;
          requestAnimationFrame(() => {
            due = false;
            const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
            render(node, answer.content);
            if (atEnd) list.scrollTop = list.scrollHeight;
          });
        }
        $("status").textContent = `first token after ${((first - began) / 1000).toFixed(2)} s`;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") finish = "stopped";
    else { chat.messages.push({ role: "error", content: error.message }); finish = "error"; }
  }
  const ended = performance.now();
  running = null;
  $("send").hidden = false;
  $("halt").hidden = true;
  node.classList.remove("writing");
  render(node, answer.content);
  if (answer.content !== "") {
    const parts = [];
    if (first) parts.push(`first token ${((first - began) / 1000).toFixed(2)} s`);
    if (tokens > 1 && first) parts.push(`${((tokens - 1) / ((ended - first) / 1000)).toFixed(1)} tokens/s`, `${tokens} tokens`);
    if (cached > 0) parts.push(`${cached} prompt tokens from the cache`);
    if (seed !== undefined) parts.push(`seed ${seed}`);
    if (finish && finish !== "stop") parts.push(finish === "length" ? "ended at the limit" : finish);
    answer.figures = parts.join(" · ");
    chat.messages.splice(chat.messages.indexOf(question) + 1, 0, answer);
  }
  $("status").textContent = "";
  keep();
  if (chat === current) draw();
}
function halt() { running?.abort(); }
$("halt").onclick = halt;
$("ask").onsubmit = (e) => {
  e.preventDefault();
  const text = $("input").value.trim();
  if (text === "" || running) return;
  $("input").value = "";
  fit();
  ask(text);
};
function fit() {
  $("input").style.height = "auto";
  $("input").style.height = $("input").scrollHeight + 2 + "px";
}
$("input").oninput = fit;
$("input").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); $("ask").requestSubmit(); }
};
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") halt();
  if (e.key === "/" && document.activeElement === document.body) { e.preventDefault(); $("input").focus(); }
});

// ---- the engine, live
let steps = [];
let engine = null;
let polling = false;
async function poll() {
  if (polling) return;
  polling = true;
  while (!$("view-engine").hidden) {
    try {
      const since = steps.length > 0 ? steps[steps.length - 1].n : -1;
      engine = await (await fetch("/engine?since=" + since)).json();
      if (engine.steps_total < since) steps = [];
      steps = [...steps, ...engine.steps].slice(-240);
      drawEngine();
    } catch { $("row-words").textContent = "The server does not answer."; }
    await new Promise((done) => setTimeout(done, 300));
  }
  polling = false;
}
function card(name, value) {
  const node = document.createElement("div");
  node.className = "card";
  const figure = document.createElement("b");
  figure.textContent = value;
  node.append(figure, name);
  return node;
}
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
function surface(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.dataset.height ??= canvas.getAttribute("height");
  const h = Number(canvas.dataset.height);
  canvas.style.height = h + "px";
  canvas.width = width * scale;
  canvas.height = h * scale;
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  paint.clearRect(0, 0, width, h);
  return { paint, width, height: h };
}
function bars(canvas, parts, unit) {
  const { paint, width, height } = surface(canvas);
  const wide = 5;
  const shown = steps.slice(-Math.floor((width - 8) / wide));
  const most = Math.max(1e-9, ...shown.map((s) => parts.reduce((sum, p) => sum + s[p.key], 0)));
  shown.forEach((step, i) => {
    let top = height - 4;
    for (const part of parts) {
      const size = step[part.key] / most * (height - 24);
      paint.fillStyle = color(part.color);
      paint.fillRect(width - 4 - (shown.length - i) * wide, top - size, wide - 1, size);
      top -= size;
    }
  });
  paint.fillStyle = color("faint");
  paint.font = "12px system-ui, sans-serif";
  paint.fillText(shown.length > 0 ? `highest: ${+most.toFixed(2)} ${unit}` : "no step yet", 8, 15);
}
function drawBlocks() {
  const { paint, width, height } = surface($("blocks"));
  const b = engine.blocks;
  if (b.total === 0) return;
  // Each square stands for the same number of blocks.
  const size = 9, columns = Math.floor((width - 8) / size), places = columns * Math.floor((height - 8) / size);
  const each = Math.max(1, Math.ceil(b.total / places)), squares = Math.ceil(b.total / each);
  const edges = [["shared", b.shared], ["in_use", b.in_use], ["cached", b.in_use + b.cached], ["free", b.total]];
  for (let i = 0; i < squares; ++i) {
    const kind = edges.find(([, end]) => i * each < end)?.[0] ?? "free";
    paint.fillStyle = color(kind);
    paint.fillRect(4 + i % columns * size, 4 + Math.floor(i / columns) * size, size - 2, size - 2);
  }
  $("block-words").textContent = `${b.total} blocks: ${b.in_use} in use, ${b.shared} of them shared, ${b.cached} cached, ${b.free} free` + (each > 1 ? `; a square is ${each} blocks.` : ".");
}
function drawEngine() {
  if (!engine || $("view-engine").hidden) return;
  const t = engine.tokens;
  $("cards").replaceChildren(
    card("running", engine.running), card("waiting", engine.waiting), card("steps", engine.steps_total),
    card("tokens generated", t.generated), card("prompt tokens", t.prompt),
    card("found in the cache", t.prompt > 0 ? Math.round(100 * t.cached / t.prompt) + " %" : "–"),
    card("preemptions", engine.preemptions), card("cancelled", engine.cancelled));
  bars($("batch"), [{ key: "decode", color: "decode" }, { key: "prefill", color: "prefill" }], "tokens");
  bars($("times"), ["forward", "plan", "sample", "settle"].map((p) => ({ key: p + "_ms", color: p })), "ms");
  drawBlocks();
  $("rows").replaceChildren(...engine.requests.slice(0, 30).map((r) => {
    const row = document.createElement("tr");
    for (const cell of [r.route, r.age.toFixed(1) + " s", r.prompt_tokens, r.generated, r.choices]) row.insertCell().textContent = cell;
    return row;
  }));
  $("row-words").textContent = engine.requests_total === 0 ? "Nothing: ask something in the other tab." : engine.requests_total > 30 ? `and ${engine.requests_total - 30} more` : "";
}
window.addEventListener("resize", drawEngine);

// ---- start
setTheme(asked ?? store.get("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
startNew();
fetch("/v1/models").then((r) => r.json()).then((models) => {
  const model = models.data[0];
  $("model").textContent = `${model.id} · context ${model.max_model_len}`;
  document.title = model.id + " · ibid";
}).catch(() => { $("model").textContent = "The model is still loading; reload in a moment."; });
show(location.hash === "#engine" ? "engine" : "chat");
