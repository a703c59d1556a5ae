// Chats: which one is open, what is asked of the server, and what comes of it.
import { drawHistory } from "./history.js";
import { parameters, startSettings, systemPrompt } from "./settings.js";
import { loadChats, newChat, rememberOpen, rememberedOpen, saveChat } from "./store.js";
import { complete } from "./stream.js";
import { AnswerView, ErrorView, addQuestion, addWelcome, clear, toEnd } from "./messages.js";

const $ = (id) => document.getElementById(id);
const kHint = "Enter sends · Shift+Enter starts a line · Esc stops";
let chat = newChat();
let running = null;         // the AbortController of the answer under way
let lastAnswer = null;      // the view that offers to answer again
const dropped = new Set();  // ids of chats that an answer under way must not bring back

// ---- asking
// A question without an answer is sent only while it is the last: templates want roles that alternate.
function conversation() {
  const said = chat.messages.filter(({ role }) => role !== "error");
  const sent = said.filter(({ role }, i) => role === "assistant" || (said[i + 1]?.role ?? "assistant") === "assistant");
  const messages = sent.map(({ role, content }) => ({ role, content }));
  return systemPrompt() ? [{ role: "system", content: systemPrompt() }, ...messages] : messages;
}

function setBusy(busy) {
  const lost = document.activeElement === $(busy ? "send" : "halt");
  $("send").hidden = busy;
  $("halt").hidden = !busy;
  if (lost) (busy ? $("halt") : $("input")).focus();
  $("status").classList.toggle("idle", !busy);
  $("status").textContent = busy ? "Waiting for the first token …" : kHint;
}

function halt() {
  running?.abort();
  running = null;
  setBusy(false);
}

const seconds = (ms) => (ms / 1000).toFixed(2) + " s";

function figures({ began, first, ended, usage, seed, finish, limited }) {
  const parts = [];
  if (first) parts.push(`first token ${seconds(first - began)}`);
  if (usage) {
    if (usage.completion_tokens > 1 && ended > first)
      parts.push(`${((usage.completion_tokens - 1) * 1000 / (ended - first)).toFixed(1)} tokens/s`);
    parts.push(`${usage.completion_tokens} tokens`);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${usage.prompt_tokens} prompt tokens` + (cached > 0 ? `, ${cached} of them cached` : ""));
  }
  if (seed !== undefined) parts.push(`seed ${seed}`);
  if (finish === "length") parts.push(limited ? "ended at max tokens" : "ended because the context is full");
  else if (finish && finish !== "stop") parts.push(finish);
  return parts.join(" · ");
}

// Answers the last question of the open chat.
async function answer() {
  halt();
  const mine = chat;
  const control = running = new AbortController();
  const body = { messages: conversation(), stream: true, stream_options: { include_usage: true }, ...parameters() };
  const message = { role: "assistant", content: "" };
  const facts = { began: performance.now(), first: 0, limited: body.max_tokens !== undefined };
  lastAnswer?.withdraw("Again");
  const view = new AnswerView();
  view.begin();
  toEnd();
  setBusy(true);
  let failure = null;
  try {
    for await (const chunk of complete(body, control.signal)) {
      facts.seed = chunk.seed ?? facts.seed;
      facts.usage = chunk.usage ?? facts.usage;
      const choice = chunk.choices[0];
      facts.finish = choice?.finish_reason ?? facts.finish;
      const piece = choice?.delta?.content;
      if (!piece) continue;
      if (!facts.first) {
        facts.first = performance.now();
        mine.messages.push(message);
        if (running === control) $("status").textContent = `First token after ${seconds(facts.first - facts.began)}`;
      }
      message.content += piece;
      view.grow(message.content);
    }
  } catch (error) {
    if (error.name === "AbortError") facts.finish = "stopped";
    else failure = { role: "error", content: error.message, again: error.again, startNew: error.startNew };
  }
  facts.ended = performance.now();
  message.figures = figures(facts);
  if (!facts.first && !failure) {
    const stopped = facts.finish === "stopped";
    const content = stopped ? "Stopped before the first token." : "The model ended at once, without a word.";
    failure = { role: "error", content, again: true };
  }
  if (failure) mine.messages.push(failure);
  view.end(message.content, message.figures);
  if (!facts.first) view.remove();
  if (mine === chat) {
    if (failure) showFailure(failure);
    else offerAgain(view);
  }
  if (running === control) {
    running = null;
    setBusy(false);
  }
  if (mine.messages.length > 0) keep(mine);
}

function offerAgain(view) {
  lastAnswer = view;
  view.offer("Again", answerAgain);
}

// Drops what came of the last question, and asks it again.
function answerAgain() {
  while (chat.messages.length > 0 && chat.messages.at(-1).role !== "user") chat.messages.pop();
  if (chat.messages.length === 0) return;
  draw(true);
  answer();
  focusInput();
}

function showFailure({ content, again, startNew: fresh }) {
  const offers = [];
  if (again) offers.push(["Try again", answerAgain]);
  if (fresh) offers.push(["New chat", startNew]);
  new ErrorView(content, offers);
}

// ---- chats
function keep(changed) {
  if (!dropped.has(changed.id)) saveChat(changed);
  showHistory();
}

// answering: what comes of the last question is on its way.
function draw(answering = false) {
  clear();
  lastAnswer = null;
  if (chat.messages.length === 0) addWelcome();
  chat.messages.forEach((message, i) => {
    const last = i === chat.messages.length - 1;
    if (message.role === "user") {
      addQuestion(message.content, chat.messages[i + 1]?.role === "user");
      if (last && !answering) showFailure({ content: "This question was not answered.", again: true });
    } else if (message.role === "assistant") {
      const view = new AnswerView();
      view.end(message.content, message.figures);
      if (last) offerAgain(view);
    } else if (last) {
      showFailure(message);
    }
  });
  toEnd();
  showHistory();
}

function open(other) {
  halt();
  chat = other;
  rememberOpen(chat.id);
  closePanel();
  draw();
}

function startNew() {
  open(newChat());
  focusInput();
}

// On a touch screen the focus would cover half of the page with a keyboard.
function focusInput() {
  if (!matchMedia("(pointer: coarse)").matches) $("input").focus({ preventScroll: true });
}

function showHistory() {
  drawHistory(chat.id, open, (id) => {
    dropped.add(id);
    if (id === chat.id) startNew();
    else showHistory();
  });
}

// ---- controls
function closePanel() {
  $("view-chat").classList.remove("panel-open");
  $("panel-button").setAttribute("aria-expanded", "false");
}

function fit() {
  $("input").style.height = "auto";
  $("input").style.height = $("input").scrollHeight + "px";
}

function send(event) {
  event.preventDefault();
  const text = $("input").value.trim();
  if (text === "" || running) return;
  closePanel();
  $("input").value = "";
  fit();
  const failed = chat.messages.at(-1)?.role === "error";
  chat.messages = chat.messages.filter(({ role }) => role !== "error");
  chat.messages.push({ role: "user", content: text });
  if (failed) draw(true);
  else addQuestion(text);
  keep(chat);
  answer();
}

export function startChat() {
  startSettings();
  $("new").onclick = startNew;
  $("halt").onclick = halt;
  $("panel-button").onclick = () => {
    const isOpen = $("view-chat").classList.toggle("panel-open");
    $("panel-button").setAttribute("aria-expanded", isOpen);
  };
  $("ask").onsubmit = send;
  $("input").oninput = fit;
  $("input").onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) halt();
    else if (event.key === "Escape" && $("view-chat").classList.contains("panel-open")) {
      closePanel();
      $("panel-button").focus();
    } else if (event.key === "/" && document.activeElement === document.body) {
      event.preventDefault();
      $("input").focus();
    }
  });
  // What has come of an answer so far survives a reload in its midst.
  window.addEventListener("pagehide", () => { if (running) keep(chat); });
  window.addEventListener("storage", showHistory);
  open(loadChats().find(({ id }) => id === rememberedOpen()) ?? newChat());
  focusInput();
}
