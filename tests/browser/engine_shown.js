// What the engine's view shows, as numbers.
(() => {
  const number = (id) => parseFloat(document.getElementById(id).innerText.replaceAll(",", ""));
  const shown = {};
  const ids = ["running", "waiting", "steps", "generated", "prompt", "hits", "hit-tokens", "preemptions", "cancelled",
               "blocks-total", "shared", "in_use", "cached", "free", "last-prefill", "last-decode", "last-accepted",
               "last-refused", "last-forward", "last-sample", "last-plan", "last-settle"];
  for (const id of ids) shown[id] = number(id);
  shown.square = Number(document.getElementById("square").innerText.match(/\d+/)?.[0] ?? 1);
  shown.squares = {};
  for (const { className: kind } of document.querySelectorAll("#blocks i")) {
    shown.squares[kind] = (shown.squares[kind] ?? 0) + 1;
  }
  const cells = (row) => [...row.cells].map((cell) => cell.innerText.replaceAll(",", ""));
  shown.rows = [...document.querySelectorAll("#rows tr")].map(cells);
  const height = (rect) => [rect.classList[0], Number(rect.getAttribute("height"))];
  const heights = (bar) => [...bar.querySelectorAll("rect")].map(height);
  const bars = new Map();  // a step has a bar in each lane
  for (const bar of document.querySelectorAll("#batch g[data-step]")) {
    const n = Number(bar.dataset.step);
    bars.set(n, { ...bars.get(n), ...Object.fromEntries(heights(bar)) });
  }
  shown.bars = [...bars];
  return shown;
})()
