// Steps over time, as bars in lanes of their own scales, so that a step that decodes is seen beside one that reads a prompt.
// Pointer and arrow keys choose a step, and a line below describes it.

const kMost = 3000;     // steps that are kept
const kThin = 1.5;      // pixels of the thinnest bar
const kAxis = 18;       // pixels below the lanes
const kHead = 20;       // pixels above a lane's highest bar, for its name
const kEdge = 4;
const kTicks = new Map([[5, 1], [20, 5], [60, 10], [300, 60]]);  // seconds shown: between two ticks

export function shape(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const shown = (value) => value >= 100 ? String(Math.round(value)) : String(+value.toFixed(2));

// lanes: [{ name, unit, keys: [[member of a step, class]], least }]; with `least` the scale is of powers of ten from there on.
export class Chart {
  #svg;
  #said;
  #lanes;
  #describe;
  #steps = [];       // { step, end, took, bars: [[rect …] per lane], totals }
  #span = 20;
  #at = -1;          // the step looked at: its number
  #cursor = shape("line", { class: "cursor" });
  #axis = shape("g", { class: "axis" });

  constructor(id, lanes, describe) {
    this.#svg = document.getElementById(id);
    this.#said = document.getElementById(id + "-said");
    this.#describe = describe;
    this.#lanes = lanes.map((lane) => ({ ...lane, group: shape("g", {}), grid: shape("g", { class: "axis" }) }));
    this.#svg.append(this.#axis, ...this.#lanes.flatMap(({ grid, group }) => [group, grid]), this.#cursor);
    this.#svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.#svg.addEventListener("pointerleave", () => this.#choose(-1));
    this.#svg.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.place()).observe(this.#svg);
  }

  // end: when the step ended, in seconds; took: its time in seconds.
  add(step, end, took) {
    const totals = [];
    const bars = this.#lanes.map(({ keys, least, group }, i) => {
      const bar = shape("g", { "data-step": step.n });
      let low = 0;
      for (const [key, name] of keys) {
        const height = least ? Math.max(0, Math.log10(Math.max(step[key], least) / least)) : step[key];
        if (height > 0) bar.append(shape("rect", { class: name, x: end - took, y: low, height }));
        low += height;
      }
      totals[i] = low;
      if (low > 0) group.append(bar);
      return bar;
    });
    const entry = { step, end, took, bars, totals };
    this.#steps.push(entry);
    this.#widen(entry);
    while (this.#steps.length > kMost) this.#steps.shift().bars.forEach((bar) => bar.remove());
  }

  show(seconds) {
    this.#span = seconds;
    this.place();
  }

  // Pixels a second.
  #scale() { return Math.max(1, this.#svg.clientWidth - 2 * kEdge) / this.#span; }
  #widen({ took, bars }) {
    const width = Math.max(took, kThin / this.#scale());
    for (const bar of bars) for (const rect of bar.children) rect.setAttribute("width", width);
  }

  #seen() {
    const newest = this.#steps.at(-1)?.end ?? 0;
    return this.#steps.filter(({ end }) => end > newest - this.#span);
  }

  place() {
    const { clientWidth: width, clientHeight: height } = this.#svg;
    if (this.#steps.length === 0 || height === 0) return;
    if (this.#widths !== this.#scale()) this.#steps.forEach((entry) => this.#widen(entry));
    this.#widths = this.#scale();
    const newest = this.#steps.at(-1).end, seen = this.#seen();
    const laneHeight = (height - kAxis) / this.#lanes.length;
    this.#lanes.forEach((lane, i) => {
      const most = Math.max(1e-9, ...seen.map(({ totals }) => totals[i]));
      const floor = laneHeight * (i + 1), scale = (laneHeight - kHead) / most;
      const x = width - kEdge - newest * this.#scale();
      lane.group.setAttribute("transform", `translate(${x} ${floor}) scale(${this.#scale()} ${-scale})`);
      const peak = lane.least ? lane.least * 10 ** most : most;
      const lines = [shape("text", { x: kEdge + 4, y: floor - laneHeight + 14 }, `${lane.name}, highest ${shown(most > 1e-9 ? peak : 0)} ${lane.unit}`),
                     shape("line", { x1: 0, x2: width, y1: floor, y2: floor })];
      for (let power = 1; lane.least && power <= most; ++power) {
        const y = floor - power * scale;
        lines.push(shape("line", { x1: 0, x2: width, y1: y, y2: y, class: "faint" }),
                   shape("text", { x: width - kEdge, y: y - 2, "text-anchor": "end" }, `${shown(lane.least * 10 ** power)} ${lane.unit}`));
      }
      lane.grid.replaceChildren(...lines);
    });
    this.#placeAxis(width, height);
    this.#placeCursor();
  }
  #widths = 0;

  #placeAxis(width, height) {
    const ticks = [];
    for (let back = 0; back < this.#span; back += kTicks.get(this.#span)) {
      const x = width - kEdge - back * this.#scale();
      const label = back === 0 ? "newest step" : back % 60 === 0 ? `−${back / 60} min` : `−${back} s`;
      ticks.push(shape("line", { x1: x, x2: x, y1: height - kAxis, y2: height - kAxis + 4 }),
                 shape("text", { x, y: height - 4, "text-anchor": back === 0 ? "end" : "middle" }, label));
    }
    this.#axis.replaceChildren(...ticks);
  }

  // ---- looking at one step
  #point(x) {
    const newest = this.#steps.at(-1)?.end ?? 0;
    const time = newest - (this.#svg.clientWidth - kEdge - x) / this.#scale();
    let best = null;
    const away = ({ end, took }) => Math.max(0, end - took - time, time - end);
    for (const entry of this.#seen()) if (!best || away(entry) <= away(best)) best = entry;
    this.#choose(best ? best.step.n : -1);
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.#choose(-1);
    if (by === undefined || this.#steps.length === 0) return;
    event.preventDefault();
    const seen = this.#seen(), last = seen.length - 1;
    const now = seen.findIndex(({ step }) => step.n === this.#at);
    this.#choose(seen[Math.max(0, Math.min(last, (now < 0 ? last + 1 : now) + by))].step.n);
  }

  #choose(n) {
    this.#at = n;
    this.#placeCursor();
  }

  #placeCursor() {
    const entry = this.#steps.find(({ step }) => step.n === this.#at);
    this.#cursor.setAttribute("visibility", entry ? "visible" : "hidden");
    const words = entry ? this.#describe(entry.step, this.#steps.at(-1).end - entry.end) : "Point at a step, or go from one to the next with the arrow keys.";
    if (this.#said.textContent !== words) this.#said.textContent = words;
    if (!entry) return;
    const x = this.#svg.clientWidth - kEdge - (this.#steps.at(-1).end - entry.end + entry.took / 2) * this.#scale();
    for (const [key, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: this.#svg.clientHeight - kAxis })) this.#cursor.setAttribute(key, value);
  }

  name(words) { this.#svg.setAttribute("aria-label", words); }

  clear() {
    for (const { group } of this.#lanes) group.replaceChildren();
    this.#steps = [];
    this.#choose(-1);
  }
}
