// The last minute of /metrics: means and tails of its histograms. It is asked while the engine's view is seen.

const kEvery = 2000;    // ms between two looks
const kWindow = 60_000;
const kLine = /^([a-z_]+)(?:\{([^}]*)\})? (\S+)$/;

// Prometheus text: { name: sum over labels }, and of histograms { name: { count, sum, buckets: Map(bound, count) } }.
function parse(text) {
  const plain = {}, histograms = {};
  for (const line of text.split("\n")) {
    const found = kLine.exec(line);
    if (!found) continue;
    const [, name, labels, value] = found;
    const part = /^(.*)_(bucket|sum|count)$/.exec(name);
    if (!part) {
      plain[name] = (plain[name] ?? 0) + Number(value);
      continue;
    }
    const histogram = histograms[part[1]] ??= { count: 0, sum: 0, buckets: new Map() };
    if (part[2] !== "bucket") histogram[part[2]] += Number(value);
    else {
      const bound = Number(/le="([^"]*)"/.exec(labels ?? "")?.[1].replace("+Inf", "Infinity"));
      histogram.buckets.set(bound, (histogram.buckets.get(bound) ?? 0) + Number(value));
    }
  }
  return { plain, histograms };
}

// Below this lie 95 % of what has come between two looks: the bound of a bucket.
function tail(now, before) {
  const count = now.count - (before?.count ?? 0);
  for (const [bound, n] of now.buckets) if (n - (before?.buckets.get(bound) ?? 0) >= 0.95 * count) return bound;
  return Infinity;
}

let looks = [];  // of the last minute, and one that is older
let asked = 0;

export function forgetMetrics() { looks = []; }

// Asks again where the last look is old; null where there is none.
export async function lookAtMetrics() {
  const now = performance.now();
  if (now - asked < kEvery) return looks.length > 0;
  asked = now;
  const response = await fetch("metrics");
  if (!response.ok) return false;
  looks.push({ at: now, ...parse(await response.text()) });
  while (looks.length > 2 && looks[1].at < now - kWindow) looks.shift();
  return true;
}

// { mean, tail, isRecent } in the histogram's unit; null where nothing has come yet.
export function recent(name) {
  const now = looks.at(-1)?.histograms[name], before = looks[0]?.histograms[name];
  if (!now || now.count === 0) return null;
  const isRecent = looks.length > 1 && now.count > before.count;
  const since = isRecent ? before : undefined;
  const count = now.count - (since?.count ?? 0);
  return { mean: (now.sum - (since?.sum ?? 0)) / count, tail: tail(now, since), isRecent };
}

export const metric = (name) => looks.at(-1)?.plain[name];
