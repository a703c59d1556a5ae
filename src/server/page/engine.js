// The engine, live: the contents of /engine, fetched again and again while this view is seen.
import { Chart } from "./chart.js";
import { forgetMetrics, lookAtMetrics, metric, recent } from "./metrics.js";
import { modelToAsk } from "./models.js";

const $ = (id) => document.getElementById(id);
const kEvery = 400;      // ms between two looks
const kRate = 3000;      // ms that a rate is taken over
const kSquares = 480;    // of the cache's picture
const kRows = 30;
const kParts = ["forward", "sample", "plan", "settle"];
const kKinds = ["shared", "in_use", "cached", "free"];
const kLeast = 0.1;     // ms; what takes less is not drawn in powers of ten

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
const whole = (n) => n.toLocaleString("en-US");

const took = (step) => kParts.reduce((sum, part) => sum + step[part + "_ms"], 0);
function describe(step, back) {
  const tokens = [["prefill", "of prompts"], ["decode", "of answers"], ["accepted", "of drafts accepted"], ["refused", "of drafts refused"]];
  const words = tokens.filter(([key]) => step[key] > 0).map(([key, what]) => `${whole(step[key])} tokens ${what}`);
  const parts = kParts.map((part) => `${part} ${step[part + "_ms"].toFixed(2)}`);
  const when = back > 0 ? `${back.toFixed(2)} s before the newest` : "the newest";
  return `Step ${whole(step.n)}, ${when}: ${words.join(", ") || "no tokens"}; ${parts.join(" + ")} ms; ${step.running} running, ${step.waiting} waiting.`;
}

const batch = new Chart("batch", [
  { name: "tokens of prompts", unit: "tokens", keys: [["prefill", "prefill"]] },
  { name: "tokens of answers", unit: "tokens", keys: [["decode", "decode"], ["accepted", "accepted"], ["refused", "refused"]] },
], describe);
const times = new Chart("times", [
  { name: "forward (powers of ten)", unit: "ms", keys: [["forward_ms", "forward"]], least: kLeast },
  { name: "around it", unit: "ms", keys: [["sample_ms", "sample"], ["plan_ms", "plan"], ["settle_ms", "settle"]] },
], describe);
let lastStep = -1;
let shown;  // the model, where there are several

function forget() {
  lastStep = -1;
  batch.clear();
  times.clear();
  forgetMetrics();
}

function showSteps({ steps, steps_total }) {
  if (steps_total < lastStep) forget();  // the server has begun again
  const now = performance.now() / 1000;
  for (const step of steps) {
    for (const chart of [batch, times]) chart.add(step, now - step.age, took(step) / 1000);
  }
  const last = steps.at(-1);
  if (!last) return;
  lastStep = last.n;
  batch.place();
  times.place();
  text("last-prefill", whole(last.prefill));
  text("last-decode", whole(last.decode));
  text("last-accepted", whole(last.accepted));
  text("last-refused", whole(last.refused));
  for (const part of kParts) text("last-" + part, last[part + "_ms"].toFixed(2));
  batch.name(`Batch of each step; the newest has ${last.prefill} prompt tokens and ${last.decode} of answers`);
  times.name(`Time of each step; the newest took ${took(last).toFixed(1)} ms`);
}

// ---- cards
let counts = [];  // { at, generated } of the last seconds
function showRate(generated) {
  const at = performance.now();
  if (counts.length > 0 && generated < counts.at(-1).generated) counts = [];
  counts.push({ at, generated });
  while (counts.length > 2 && counts[1].at < at - kRate) counts.shift();
  const [first] = counts;
  text("rate", at > first.at ? ((generated - first.generated) * 1000 / (at - first.at)).toFixed(1) : "–");
}

const time = (s) => s < 0.9995 ? `${(s * 1000).toPrecision(3)} ms` : `${s.toFixed(2)} s`;
function showLatency(id, name) {
  const found = recent(name);
  text(id, found ? time(found.mean) : "–");
  const bound = found && Number.isFinite(found.tail) ? `95 % within ${time(found.tail)}` : "";
  text(id + "-tail", bound + (found && !found.isRecent ? ", since the start" : ""));
}

function showMemory(blocks) {
  const held = blocks.total > 0 ? 100 * (blocks.total - blocks.free) / blocks.total : 0;
  text("memory", blocks.total > 0 ? `${held.toFixed(0)} %` : "–");
  const resident = metric("process_resident_memory_bytes");
  text("memory-held", resident ? `process ${(resident / 2 ** 30).toFixed(2)} GiB` : `${whole(blocks.in_use)} in use`);
}

// As many squares of each kind as it has blocks, in proportion; a kind that exists has one at least.
function showBlocks(blocks) {
  text("blocks-total", whole(blocks.total));
  for (const kind of kKinds) text(kind, whole(blocks[kind]));
  const each = Math.max(1, Math.ceil(blocks.total / kSquares));
  text("square", each === 1 ? "one" : `about ${whole(each)}`);
  const squares = (n) => n > 0 ? Math.max(1, Math.round(n / each)) : 0;
  const counts = [blocks.shared, blocks.in_use - blocks.shared, blocks.cached].map(squares);
  const kinds = counts.flatMap((n, k) => Array(n).fill(kKinds[k]));
  const n = Math.max(kinds.length, Math.ceil(blocks.total / each));
  const box = $("blocks");
  while (box.childElementCount < n) box.append(document.createElement("i"));
  while (box.childElementCount > n) box.lastChild.remove();
  for (let i = 0; i < n; ++i) {
    const kind = kinds[i] ?? "free";
    if (box.children[i].className !== kind) box.children[i].className = kind;
  }
  const words = kKinds.map((kind) => `${blocks[kind]} ${kind.replace("_", " ")}`);
  box.setAttribute("aria-label", `${blocks.total} blocks: ${words.join(", ")}`);
}

function showRequests({ requests, requests_total }) {
  $("requests").hidden = requests_total === 0;
  $("rows").replaceChildren(...requests.slice(0, kRows).map((request) => {
    const row = document.createElement("tr");
    const { route, age, prompt_tokens, generated, choices } = request;
    const shown = [route, age.toFixed(1) + " s", whole(prompt_tokens), whole(generated), whole(choices)];
    for (const cell of shown) row.insertCell().textContent = cell;
    return row;
  }));
  text("row-words", requests_total === 0 ? "Nothing. Ask something in the other view, or send a request to the API." :
    requests_total > kRows ? `and ${whole(requests_total - kRows)} more` : "");
}

// One alone has all there is: nothing to tell apart.
function showTenants(tenants) {
  $("tenants").hidden = tenants.length < 2;
  $("tenant-rows").replaceChildren(...tenants.map(({ tenant, sequences, tokens, refused }) => {
    const row = document.createElement("tr");
    for (const cell of [tenant, whole(sequences), whole(tokens), whole(refused)]) row.insertCell().textContent = cell;
    return row;
  }));
}

function showAll(engine) {
  const { tokens } = engine;
  showRate(tokens.generated);
  showMemory(engine.blocks);
  text("running", whole(engine.running));
  text("waiting", whole(engine.waiting));
  text("steps", whole(engine.steps_total));
  text("generated", whole(tokens.generated));
  text("prompt", whole(tokens.prompt));
  text("hits", tokens.prompt > 0 ? Math.round(100 * tokens.cached / tokens.prompt) + " %" : "–");
  text("hit-tokens", tokens.prompt > 0 ? `${whole(tokens.cached)}` : "");
  text("preemptions", whole(engine.preemptions));
  text("cancelled", whole(engine.cancelled));
  showSteps(engine);
  showBlocks(engine.blocks);
  showRequests(engine);
}

let answered = 0;
function gone(status) {
  const when = answered > 0 ? ` What is shown is ${Math.round((performance.now() - answered) / 1000)} s old.` : "";
  const what = {
    401: "The server needs an API key: reload this page and give the key as the password.",
    503: shown ? `The model ${shown} is not loaded.` : "The model is still loading.",
  }[status] ?? "The server does not answer; it is asked again until it does.";
  $("engine-gone").hidden = false;
  text("engine-gone", what + when);
}

async function look() {
  try {
    const model = modelToAsk();
    if (model !== shown) forget();
    shown = model;
    const response = await fetch(`engine?since=${lastStep}${model ? `&model=${encodeURIComponent(model)}` : ""}`);
    if (!response.ok) return gone(response.status);
    showAll(await response.json());
    answered = performance.now();
    $("engine-gone").hidden = true;
    if (await lookAtMetrics()) {
      showLatency("ttft", "ibid_time_to_first_token_seconds");
      showLatency("itl", "ibid_inter_token_latency_seconds");
    }
  } catch {
    gone(0);
  }
}

$("span").onchange = () => {
  for (const chart of [batch, times]) chart.show(Number($("span").value));
};

let looking = false;
export async function showEngine(seen) {
  if (!seen || looking) return;
  looking = true;
  while (!$("view-engine").hidden) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, kEvery));
  }
  looking = false;
}
