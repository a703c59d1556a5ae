// The models that are served: which one the open chat asks, how long its context is, and how it samples where a request
// does not say.
import { setContext } from "./fill.js";
import { rememberModel, rememberedModel } from "./store.js";

const $ = (id) => document.getElementById(id);
const kRetry = 1000, kRetryMost = 10_000;  // ms
let models = [];      // as /v1/models lists them, each model once
let wished = "";      // the open chat's
let served = null;    // { model, params } of /props
let asked = "";       // the model that /props is being asked for
let onServed = () => {};
let wait = kRetry;

const isForChats = ({ capabilities }) => !capabilities || capabilities.includes("completion");

// One of several names of a model is enough.
function once(list) {
  const known = new Set();
  const all = list.filter(({ id, aliases = [] }) => !known.has(id) && (known.add(id), aliases.forEach((name) => known.add(name)), true));
  return all.some(isForChats) ? all.filter(isForChats) : all;
}

export const modelNow = () => [wished, rememberedModel()].map((id) => models.find((model) => model.id === id)).find(Boolean) ?? models[0];
export const isUnloaded = () => modelNow()?.loaded === false;
// A model that is not loaded may read them.
export const readsPictures = () => modelNow()?.capabilities?.includes("vision") ?? isUnloaded();
export const contextNow = () => modelNow()?.max_model_len ?? 0;
// What a request names: nothing where there is nothing to choose.
export const modelToAsk = () => models.length > 1 ? modelNow().id : undefined;
// How many tokens an answer has at most that asks for no number: undefined where the context alone bounds it.
export function servedMaxTokens() {
  const n = served?.model === modelNow()?.id ? served?.params.n_predict : undefined;
  return n > 0 ? n : undefined;
}

function say(name, context = "") {
  $("model-name").textContent = name;
  $("model-context").textContent = context;
  $("model").title = name + (context && ` · ${context}`);
}

// There is nothing to choose from.
function sayAlone(sentence) {
  offerChoice(false);
  say(sentence);
}

function offerChoice(is) {
  $("model-choice").hidden = !is;
  document.querySelector("header").classList.toggle("several", is);
}

function show() {
  const model = modelNow();
  if (!model) return;
  const context = model.max_model_len ? `context ${model.max_model_len.toLocaleString("en-US")}` : "";
  say(model.id, context);
  setContext(model.max_model_len ?? 0);
  document.title = model.id + " · ibid";
  const choice = $("model-choice");
  offerChoice(models.length > 1);
  if (choice.hidden) return;
  const options = models.map(({ id, loaded }) => {
    const option = new Option(loaded === false ? `${id} (not loaded)` : id, id);
    option.selected = id === model.id;
    return option;
  });
  // Left alone where nothing has changed: it may be open.
  const same = choice.options.length === options.length && options.every((option, i) => option.isEqualNode(choice.options[i]));
  if (!same) choice.replaceChildren(...options);
  choice.value = model.id;
  choice.title = $("model").title;
}

async function askServed() {
  const model = modelNow();
  if (!model || model.loaded === false || asked === model.id) return;
  asked = model.id;
  try {
    const response = await fetch(`props?model=${encodeURIComponent(model.id)}`);
    if (!response.ok) return;
    const { default_generation_settings: settings } = await response.json();
    if (modelNow()?.id !== model.id) return;
    served = { model: model.id, params: settings?.params ?? {} };
    onServed(served.params);
  } catch {
    // The fields say "as served".
  } finally {
    if (asked === model.id) asked = "";
  }
}

async function ask(all) {
  try {
    const response = await fetch("v1/models");
    if (response.ok) {
      const { data } = await response.json();
      models = once(data);
      wait = kRetry;
      show();
      if (all || served?.model !== modelNow()?.id) await askServed();
      return;
    }
    if (response.status === 401) return sayAlone("needs an API key: reload the page");
    sayAlone("the model is loading …");
    wait = kRetry;
  } catch {
    sayAlone("the server does not answer");
  }
  setTimeout(refreshModels, wait, true);
  wait = Math.min(2 * wait, kRetryMost);
}

let asking = null;
// all: how the model samples too, which a server that was started again may do in another way.
export function refreshModels(all = false) {
  asking ??= ask(all).finally(() => { asking = null; });
  return asking;
}

// The open chat's model, by its name.
export function wishModel(id = "") {
  wished = id;
  show();
  if (models.length > 0 && served?.model !== modelNow()?.id) askServed();
}

// choose(id): the reader has taken another. show(params): how the model samples.
export function startModels(choose, show) {
  onServed = show;
  $("model-choice").onchange = () => {
    rememberModel($("model-choice").value);
    choose($("model-choice").value);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refreshModels(true); });
  refreshModels(true);
}
