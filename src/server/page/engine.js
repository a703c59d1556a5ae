// The engine, live: what /engine says, asked again and again while this view is seen.

const $ = (id) => document.getElementById(id);
const kEvery = 400;      // ms between two looks
const kSteps = 240;      // that are kept
const kBar = 5;          // pixels a step
const kEdge = 4;         // pixels below the bars and right of them
const kHead = 26;        // pixels above the highest bar, for its figure
const kSquares = 480;    // of the cache's picture
const kRows = 30;
const kParts = ["forward", "sample", "plan", "settle"];
const kKinds = ["shared", "in_use", "cached", "free"];

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };
const whole = (n) => n.toLocaleString("en-US");

function shape(name, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// Stacked bars, one a step. A bar's parts are as high as their figures; the group around them scales and moves them.
class Chart {
  #svg;
  #peak;
  #keys;
  #unit;
  #group = shape("g", {});
  #totals = [];  // of the bars shown
  #n = 0;        // bars ever added

  constructor(id, keys, unit) {
    this.#svg = $(id);
    this.#peak = $(id + "-peak");
    this.#keys = keys;
    this.#unit = unit;
    this.#svg.append(this.#group);
    new ResizeObserver(() => this.place()).observe(this.#svg);
  }

  add(step) {
    const bar = shape("g", { "data-step": step.n, transform: `translate(${this.#n++ * kBar} 0)` });
    let low = 0;
    for (const [key, name] of this.#keys) {
      if (step[key] > 0) bar.append(shape("rect", { class: name, y: low, width: kBar - 1, height: step[key] }));
      low += step[key];
    }
    bar.append(shape("title", {}));
    bar.lastChild.textContent = `step ${step.n}: ` + this.#keys.map(([key, name]) => `${name} ${step[key]}`).join(", ");
    this.#group.append(bar);
    this.#totals.push(low);
    if (this.#totals.length > kSteps) {
      this.#totals.shift();
      this.#group.firstChild.remove();
    }
  }

  place() {
    const { clientWidth: width, clientHeight: height } = this.#svg;
    if (this.#totals.length === 0 || height === 0) return;
    const most = Math.max(1e-9, ...this.#totals.slice(-Math.ceil(width / kBar)));
    const place = `translate(${width - kEdge - this.#n * kBar} ${height - kEdge})`;
    this.#group.setAttribute("transform", `${place} scale(1 ${-(height - kEdge - kHead) / most})`);
    this.#peak.textContent = `highest ${most >= 100 ? Math.round(most) : +most.toFixed(2)} ${this.#unit}`;
  }

  describe(words) { this.#svg.setAttribute("aria-label", words); }

  clear() {
    this.#group.replaceChildren();
    this.#totals = [];
    this.#n = 0;
    this.#peak.textContent = "no step yet";
  }
}

const batch = new Chart("batch", [["decode", "decode"], ["accepted", "accepted"], ["refused", "refused"], ["prefill", "prefill"]], "tokens");
const times = new Chart("times", kParts.map((part) => [part + "_ms", part]), "ms");
let lastStep = -1;

function showSteps({ steps, steps_total }) {
  if (steps_total < lastStep) {  // the server has begun anew
    lastStep = -1;
    batch.clear();
    times.clear();
  }
  for (const step of steps) {
    batch.add(step);
    times.add(step);
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
  batch.describe(`Batch of each step; the newest has ${last.prefill} prompt tokens and ${last.decode} of answers`);
  const took = kParts.reduce((sum, part) => sum + last[part + "_ms"], 0);
  times.describe(`Time of each step; the newest took ${took.toFixed(1)} ms`);
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
    401: "The server wants an API key: reload this page and give the key as the password.",
    503: "The model is still loading.",
  }[status] ?? "The server does not answer; it is asked again until it does.";
  $("engine-gone").hidden = false;
  text("engine-gone", what + when);
}

async function look() {
  try {
    const response = await fetch("engine?since=" + lastStep);
    if (!response.ok) return gone(response.status);
    showAll(await response.json());
    answered = performance.now();
    $("engine-gone").hidden = true;
  } catch {
    gone(0);
  }
}

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
