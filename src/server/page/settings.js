// The drawer of system prompt and parameters, and what of it goes into a request. An empty field is left to the server.
import { refreshModels } from "./models.js";
import { loadSettings, saveSettings } from "./store.js";

const $ = (id) => document.getElementById(id);
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed", "n"];
const kTexts = ["system", "stop", "reasoning_effort", "tools", "tool_choice", "schema"];
const kTicks = ["logprobs"];
const kTopLogprobs = 5;
// Where the server's own value is shown in an empty field: what switches each off, by which it is called then.
const kServed = { temperature: undefined, top_p: 1, top_k: 0, min_p: 0, repetition_penalty: 1 };
const kFields = [...kNumbers, ...kTexts, ...kTicks];
let settings = loadSettings();

// An error of the reader's own: shown as the server's are.
export class Unusable extends Error {}

function parsed(id, what) {
  try {
    return JSON.parse(settings[id]);
  } catch (error) {
    throw new Unusable(`${what} in the settings is no JSON: ${error.message}`);
  }
}

// As the API has them, or a function alone, or a single one.
function tools() {
  const given = parsed("tools", "The list of tools");
  const list = Array.isArray(given) ? given : [given];
  return list.map((tool) => {
    const one = tool?.function ?? tool;
    if (typeof one?.name !== "string") throw new Unusable("Each tool in the settings needs a name: [{\"name\": …, \"parameters\": {…}}].");
    return tool.function ? tool : { type: "function", function: one };
  });
}

export function systemPrompt() { return settings.system ?? ""; }

// Throws Unusable.
export function parameters() {
  const body = {};
  for (const id of kNumbers) if (Number.isFinite(settings[id])) body[id] = settings[id];
  if (body.n === 1) delete body.n;
  if (settings.stop) body.stop = settings.stop;
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (settings.logprobs) Object.assign(body, { logprobs: true, top_logprobs: kTopLogprobs });
  if (settings.tools) {
    body.tools = tools();
    if (settings.tool_choice) body.tool_choice = settings.tool_choice;
  }
  if (settings.schema) {
    const schema = parsed("schema", "The JSON Schema");
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  }
  return body;
}

// ---- the form
function check(id, read) {
  let sentence = "";
  try {
    if (settings[id]) read();
  } catch (error) {
    sentence = error.message;
  }
  $(id + "-wrong").textContent = sentence;
  $(id + "-wrong").hidden = sentence === "";
  $(id).setCustomValidity(sentence);
}

function checkAll() {
  check("tools", tools);
  check("schema", () => parsed("schema", "The JSON Schema"));
}

function fill() {
  for (const id of [...kNumbers, ...kTexts]) $(id).value = settings[id] ?? "";
  for (const id of kTicks) $(id).checked = Boolean(settings[id]);
  checkAll();
}

function take(id) {
  const value = kTicks.includes(id) ? $(id).checked : $(id).value;
  if (value === "" || value === false) delete settings[id];
  else settings[id] = kNumbers.includes(id) ? Number(value) : value;
  saveSettings(settings);
  checkAll();
}

export const drawerIsOpen = () => !$("drawer").hidden;

// What the server takes where a field is empty.
export function showServed(params) {
  for (const [id, off] of Object.entries(kServed)) {
    const value = params[id];
    $(id).placeholder = typeof value !== "number" ? "as served" : value === off ? "off" : String(value);
  }
  $("max_tokens").placeholder = params.n_predict > 0 ? String(params.n_predict) : "context";
  $("seed").placeholder = params.seed > 0 ? String(params.seed) : "random";
}

export function openDrawer(open) {
  if (open === drawerIsOpen()) return;
  if (open) refreshModels(true);
  $("drawer").hidden = !open;
  $("view-chat").classList.toggle("drawer-open", open);
  $("drawer-button").setAttribute("aria-expanded", open);
  $(open ? "system" : "drawer-button").focus({ preventScroll: true });
}

export function startSettings() {
  fill();
  for (const id of kFields) $(id).addEventListener("input", () => take(id));
  $("settings").onsubmit = (event) => event.preventDefault();
  $("drawer-button").onclick = () => openDrawer(!drawerIsOpen());
  $("drawer-close").onclick = () => openDrawer(false);
  $("defaults").onclick = () => {
    settings = {};
    saveSettings(settings);
    fill();
  };
}
