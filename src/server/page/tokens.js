// An answer token by token: how likely each was, and what might have stood there instead. By pointer and by arrow keys.

const make = (name, className, text = "") => Object.assign(document.createElement(name), { className, textContent: text });
const percent = (logprob) => {
  const p = 100 * Math.exp(logprob);
  return p >= 99.95 ? "100 %" : p >= 0.1 ? `${p.toFixed(1)} %` : "< 0.1 %";
};
const visible = (text) => text === "" ? "(nothing)" : text.replaceAll(" ", "␣").replaceAll("\n", "⏎");
const kBands = [[-0.1, "sure"], [-0.7, "likely"], [-2.3, "open"], [-Infinity, "rare"]];

// Of a stream's choice: [text, logprob, [[text, logprob], …]].
export function growTokens(tokens, logprobs) {
  for (const { token, logprob, top_logprobs: top = [] } of logprobs?.content ?? [])
    tokens.push([token, logprob, top.map((other) => [other.token, other.logprob])]);
}

function table([text, logprob, top]) {
  const rows = top.some(([other]) => other === text) ? top : [[text, logprob], ...top];
  const grid = make("table", "");
  for (const [other, value] of rows) {
    const row = grid.insertRow();
    if (other === text) row.className = "chosen";
    for (const cell of [visible(other), percent(value), value.toFixed(3)]) row.insertCell().textContent = cell;
  }
  return grid;
}

export function tokensNode(tokens) {
  const node = make("div", "tokens");
  const line = make("div", "token-line");
  const card = make("div", "token-card");
  line.tabIndex = 0;
  line.setAttribute("role", "group");
  line.setAttribute("aria-label", "Tokens of the answer: arrow keys go from one to the next");
  card.setAttribute("aria-live", "polite");
  const spans = tokens.map((token) => make("span", kBands.find(([least]) => !(token[1] < least))?.[1] ?? "rare", token[0]));
  let at = -1;
  const look = (i) => {
    spans[at]?.classList.remove("at");
    at = Math.max(0, Math.min(spans.length - 1, i));
    spans[at]?.classList.add("at");
    if (spans[at]) card.replaceChildren(table(tokens[at]));
  };
  line.append(...spans);
  line.addEventListener("pointerover", ({ target }) => {
    const i = spans.indexOf(target);
    if (i >= 0) look(i);
  });
  line.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[event.key];
    if (!step) return;
    event.preventDefault();
    look(at + step);
  };
  look(0);
  node.append(line, card);
  return node;
}
