// The form of system prompt and parameters, and what of it goes into a request. An empty field is left to the server.
import { defaults, loadSettings, saveSettings } from "./store.js";

const $ = (id) => document.getElementById(id);
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const kTexts = ["system", "stop"];
let settings = loadSettings();

function fill() {
  for (const id of [...kNumbers, ...kTexts]) $(id).value = settings[id] ?? "";
}

function take(id) {
  const value = $(id).value;
  if (value === "") delete settings[id];
  else settings[id] = kNumbers.includes(id) ? Number(value) : value;
  saveSettings(settings);
}

export function systemPrompt() { return settings.system ?? ""; }

export function parameters() {
  const body = {};
  for (const id of kNumbers) if (Number.isFinite(settings[id])) body[id] = settings[id];
  if (settings.stop) body.stop = settings.stop;
  return body;
}

export function startSettings() {
  fill();
  for (const id of [...kNumbers, ...kTexts]) $(id).addEventListener("input", () => take(id));
  $("settings").onsubmit = (event) => event.preventDefault();
  $("defaults").onclick = () => {
    settings = { ...defaults };
    saveSettings(settings);
    fill();
  };
}
