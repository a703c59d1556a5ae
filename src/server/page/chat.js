// Chats: which one is open, what is asked of the server, and what comes of it.
import { startAttach, takeFiles, withFiles } from "./attach.js";
import { growCalls } from "./calls.js";
import { chatOf, keepChat, openChats, rescue } from "./chats.js";
import { boundOf, figures, rate, waitingWords } from "./figures.js";
import { showFill } from "./fill.js";
import { drawHistory, startHistory } from "./history.js";
import { AnswerView, ErrorView, addBeside, addQuestion, addResult, addWelcome, clear, inPlace, toEnd } from "./messages.js";
import { isUnloaded, modelToAsk, refreshModels, startModels, wishModel } from "./models.js";
import { drawerIsOpen, openDrawer, parameters, showServed, startSettings, systemPrompt } from "./settings.js";
import { startShortcuts } from "./shortcuts.js";
import { rememberOpen, rememberedOpen } from "./store.js";
import { complete } from "./stream.js";
import { growTokens } from "./tokens.js";
import { add, choose, hasChildren, newChat, newId, path, versions } from "./tree.js";

const $ = (id) => document.getElementById(id);
const kHint = "Enter sends · Shift+Enter starts a line · Esc stops";
const kKeepEvery = 1000;  // ms between two writings of an answer that grows
const kSayEvery = 250;
let chat = newChat();
let running = null;         // { control, mine } of the answer under way
const dropped = new Set();  // ids of chats that an answer under way must not bring back

// ---- asking
function asMessage(given, next) {
  const { role, content, reasoning, calls, call } = given;
  if (role === "user") return { role, content: withFiles(given) };
  if (role === "tool") return { role, tool_call_id: call, content };
  const message = { role, content };
  if (reasoning) message.reasoning_content = reasoning;
  if (calls && next?.role === "tool")
    message.tool_calls = calls.map(({ id, name, arguments: text }) => ({ id, type: "function", function: { name, arguments: text } }));
  return message;
}

// The conversation up to message `to`. A question without an answer is sent only while it is the last: templates want roles
// that alternate.
function conversation(to) {
  const said = path(chat, to).map((i) => chat.messages[i]);
  const sent = said.filter(({ role }, i) => role !== "user" || said[i + 1]?.role !== "user");
  const messages = sent.map((message, i) => asMessage(message, sent[i + 1]));
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

function say(sentence) {
  $("status").classList.remove("idle");
  $("status").textContent = sentence;
}

function halt() {
  running?.control.abort();
  running = null;
  setBusy(false);
}

function grow(message, { delta = {}, logprobs, finish_reason: finish }) {
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  if (delta.tool_calls) growCalls(message.calls ??= [], delta.tool_calls);
  if (logprobs) growTokens(message.tokens ??= [], logprobs);
  if (finish) message.finish = finish;
}
const isPiece = ({ delta }) => Boolean(delta?.content || delta?.reasoning_content || delta?.tool_calls);

// Answers message `parent` of the open chat, or lets answer `goesOn` go on where it was cut.
async function answer(parent, goesOn = -1) {
  halt();
  const mine = chat;
  const control = new AbortController();
  const me = running = { control, mine };
  const begun = goesOn >= 0 ? mine.messages[goesOn] : null;
  const facts = { began: performance.now(), first: 0, said: 0, kept: 0 };
  const wait = setInterval(() => sayWaiting(me, facts), 1000);
  let failure = null, messages = [], views = [];
  delete (begun ?? mine.messages[parent]).failure;
  setBusy(true);
  try {
    if (facts.model = modelToAsk()) mine.model = facts.model;
    const body = { model: facts.model, messages: conversation(begun ? goesOn : parent), stream: true, return_progress: true,
                   stream_options: { include_usage: true, continuous_usage_stats: true }, ...parameters() };
    if (begun) Object.assign(body, { continue_final_message: true, add_generation_prompt: false, n: undefined });
    facts.n = body.n ?? 1;
    facts.asked = body.max_tokens;
    const isJson = body.response_format ? true : undefined;
    const batch = facts.n > 1 ? newId() : undefined;
    messages = begun ? [begun] : Array.from({ length: facts.n }, () => ({ role: "assistant", content: "", batch, isJson }));
    draw(parent, true);
    const box = messages.length > 1 ? addBeside() : undefined;
    views = messages.map(() => new AnswerView(box));
    views.forEach((view, i) => view.begin(i === 0));
    if (begun) views[0].goOn(begun);
    toEnd();
    if (!begun) refreshModels();  // it may be another server by now
    for await (const chunk of complete(body, control.signal)) {
      facts.seed = chunk.seed ?? facts.seed;
      facts.usage = chunk.usage ?? facts.usage;
      if (chunk.prompt_progress) {
        if (isUnloaded() && !facts.reading) refreshModels();  // by now it is loaded
        facts.reading = chunk.prompt_progress;
        sayWaiting(me, facts);
      }
      const [choice] = chunk.choices;
      if (!choice) continue;
      if (isPiece(choice) && !facts.first) {
        facts.first = performance.now();
        if (!begun) messages = messages.map((message) => mine.messages[add(mine, parent, message)]);
        choose(mine, begun ? goesOn : mine.messages.indexOf(messages[0]));
      }
      grow(messages[choice.index], choice);
      if (isPiece(choice)) views[choice.index].grow(messages[choice.index]);
      if (facts.first && running === me) progress(mine, facts);
    }
  } catch (error) {
    if (error.name === "AbortError") messages.forEach((message) => { message.finish ??= "stopped"; });
    else failure = { content: error.message, again: error.again ?? true, startNew: error.startNew ?? false };
  }
  if (begun && begun.finish !== "stop" && control.signal.aborted) begun.finish = "stopped";
  clearInterval(wait);
  facts.ended = performance.now();
  if (failure) refreshModels(true);
  settle(mine, messages, facts, parent, begun, failure, control.signal.aborted);
  if (running === me) {
    running = null;
    setBusy(false);
  }
  if (mine === chat) finish(views, messages, parent, failure);
  keep(mine);
}

function sayWaiting(me, facts) {
  if (running === me && !facts.first) $("status").textContent = waitingWords(facts, performance.now());
}

// While it grows: how fast, how full the context is, and what there is of it is kept.
function progress(mine, facts) {
  const now = performance.now();
  if (facts.usage && now - facts.said > kSayEvery) {
    facts.said = now;
    const n = facts.usage.completion_tokens;
    $("status").textContent = n > 1 ? `${rate(facts, now).toFixed(1)} tokens/s · ${n} tokens` : "";
    showFill(facts.usage.prompt_tokens + n / facts.n);
  }
  if (now - facts.kept > kKeepEvery) {
    if (facts.kept && !dropped.has(mine.id)) keepChat(mine);
    facts.kept = now;
  }
}

// What is known when an answer has ended, whyever it did.
function settle(mine, messages, facts, parent, begun, failure, isStopped) {
  if (facts.first || begun) {
    for (const message of messages) if (message.finish === "length" && boundOf(facts) === "full") message.finish = "full";
    facts.finish = messages[0].finish;
    messages[0].figures = figures(facts);
    if (facts.usage) messages[0].used = facts.usage.prompt_tokens + Math.ceil(facts.usage.completion_tokens / facts.n);
    for (const message of messages) if (message.calls) message.calls = message.calls.filter(Boolean);
  } else if (!failure) {
    const content = isStopped ? "Stopped before the first token." : "The model ended at once, without a word.";
    failure = { content, again: true, startNew: false };
  }
  if (!failure) return;
  if (facts.first || begun) messages[0].finish = "cut";
  (facts.first || begun ? messages[0] : mine.messages[parent]).failure = failure;
}

// The views that grew get what an answer has that has ended.
function finish(views, messages, parent, failure) {
  const indices = messages.map((message) => chat.messages.indexOf(message));
  if (indices.length > 0 && indices[0] < 0) views.forEach((view) => view.remove());
  else if (indices.length > 1) offerBeside(views, indices);
  else if (indices.length > 0) offerAll(views[0], indices[0]);
  if (views.length === 0) draw(parent, true);
  if (messages[0]?.used) showFill(messages[0].used);
  if (failure) showFailure(failure, chat.leaf);
}

// A further version of a question, with the same files and pictures.
function askAgain(i, content) {
  const { parent, files, pictures } = chat.messages[i];
  answerQuestion(parent, { role: "user", content, ...(files && { files }), ...(pictures && { pictures }) });
}

function answerQuestion(parent, message) {
  const i = add(chat, parent, message);
  keep(chat);
  answer(i);
  focusInput();
}

function answerAgain(i) {
  answer(i);
  focusInput();
}

function giveResults(i, results) {
  const { calls } = chat.messages[i];
  let parent = i;
  calls.forEach(({ id, name }, k) => { parent = add(chat, parent, { role: "tool", call: id, name, content: results[k] }); });
  keep(chat);
  answer(parent);
  focusInput();
}

// ---- showing
function versionsOf(i) {
  const all = versions(chat, i);
  if (all.length < 2) return null;
  const at = all.indexOf(i);
  return { at, n: all.length, turn: (by) => take(all[at + by]) };
}

function take(i) {
  halt();
  choose(chat, i);
  keepChat(chat, false);
  inPlace(draw);
}

function offer(view, i) {
  const message = chat.messages[i];
  const isLast = !hasChildren(chat, i);
  view.end(message);
  const isCut = ["length", "stopped", "cut"].includes(message.finish);
  if (isLast && isCut && message.content && !message.calls) view.offer("Go on", () => answer(message.parent, i), "go-on");
  view.offer("Again", () => answerAgain(message.parent), "again");
  if (isLast && message.finish === "tool_calls") view.askResults((results) => giveResults(i, results));
}

function offerAll(view, i) {
  offer(view, i);
  const others = versionsOf(i);
  if (others) view.offerVersions(others);
}

// Choices of one request, while none has been taken up: the reader takes one.
function offerBeside(views, indices) {
  views.forEach((view, k) => {
    offer(view, indices[k]);
    if (indices[k] === chat.leaf) view.mark();
    else view.offer("Take this one", () => take(indices[k]), "take");
  });
}

function besideOf(i) {
  const { batch } = chat.messages[i];
  return batch && !hasChildren(chat, i) ? versions(chat, i).filter((k) => chat.messages[k].batch === batch) : [i];
}

function showFailure({ content, again, startNew: fresh }, i) {
  const offers = [];
  const { role, parent } = chat.messages[i];
  if (again) offers.push(["Try again", () => answerAgain(role === "assistant" ? parent : i)]);
  if (fresh) offers.push(["New chat", startNew]);
  new ErrorView(content, offers);
}

// to: as far as this message; answering: what follows is on its way.
function draw(to = chat.leaf, answering = false) {
  clear();
  const shown = path(chat, to);
  if (shown.length === 0) addWelcome();
  shown.forEach((i, k) => {
    const message = chat.messages[i];
    if (message.role === "user") {
      const passed = chat.messages[shown[k + 1]]?.role === "user";
      addQuestion(message, { passed, versions: versionsOf(i), onEdit: (text) => askAgain(i, text) });
    } else if (message.role === "tool") {
      addResult(message);
    } else if (k === shown.length - 1 && besideOf(i).length > 1) {
      const box = addBeside();
      offerBeside(besideOf(i).map(() => new AnswerView(box)), besideOf(i));
    } else {
      offerAll(new AnswerView(), i);
    }
  });
  const last = chat.messages[to];
  if (last?.failure && !answering) showFailure(last.failure, to);
  else if (last && last.role !== "assistant" && !answering) showFailure({ content: "This question was not answered.", again: true }, to);
  showFill(shown.reduce((used, i) => chat.messages[i].used ?? used, 0));
}

function keep(changed) {
  if (!dropped.has(changed.id)) keepChat(changed);
  showHistory();
}

function open(other) {
  halt();
  chat = other;
  wishModel(chat.model);
  rememberOpen(chat.id);
  closePanel();
  draw();
  toEnd();
  showHistory();
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
const closePanel = () => openPanel(false);

function fit() {
  $("input").style.height = "auto";
  $("input").style.height = $("input").scrollHeight + "px";
}

function send(event) {
  event.preventDefault();
  const text = $("input").value.trim();
  if (running) return;
  const given = takeFiles();
  if (text === "" && !given.files && !given.pictures) return;
  closePanel();
  $("input").value = "";
  fit();
  if (chat.leaf >= 0) delete chat.messages[chat.leaf].failure;
  answerQuestion(chat.leaf, { role: "user", content: text, ...given });
}

function openPanel(isOpen) {
  if (isOpen) openDrawer(false);
  $("view-chat").classList.toggle("panel-open", isOpen);
  $("panel-button").setAttribute("aria-expanded", isOpen);
}

function onKey(event) {
  if ($("keys").open) return;
  const panel = $("view-chat").classList.contains("panel-open");
  if (event.key === "Escape" && drawerIsOpen() && $("drawer").contains(document.activeElement)) openDrawer(false);
  else if (event.key === "Escape" && running) halt();
  else if (event.key === "Escape" && drawerIsOpen()) openDrawer(false);
  else if (event.key === "Escape" && panel) {
    closePanel();
    $("panel-button").focus();
  } else if (event.key === "/" && document.activeElement === document.body) {
    event.preventDefault();
    $("input").focus();
  }
}

export async function startChat() {
  startSettings();
  startModels((id) => {
    chat.model = id;
    if (chat.messages.length > 0) keepChat(chat, false);
    wishModel(id);
  }, showServed);
  startAttach(say);
  startHistory(showHistory);
  $("new").onclick = startNew;
  $("halt").onclick = halt;
  $("panel-button").onclick = () => openPanel(!$("view-chat").classList.contains("panel-open"));
  startShortcuts({ search: () => { if ($("panel-button").checkVisibility()) openPanel(true); }, startNew });
  $("ask").onsubmit = send;
  $("input").oninput = fit;
  $("input").onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    else if (event.key === "ArrowUp" && $("input").value === "" && !running) {
      event.preventDefault();
      [...document.querySelectorAll(".edit-button")].at(-1)?.click();
    }
  };
  document.addEventListener("keydown", onKey);
  // What has come of an answer so far survives a reload in its midst.
  window.addEventListener("pagehide", () => { if (running && running.mine.messages.length > 0) rescue(running.mine); });
  setBusy(false);
  focusInput();
  await openChats(showHistory);
  if (chat.messages.length === 0) return open(chatOf(rememberedOpen()) ?? newChat());
  rememberOpen(chat.id);  // who was quick has asked already
  keep(chat);
}
