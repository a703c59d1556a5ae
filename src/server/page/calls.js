// Calls of tools, as cards. Nothing runs them: the reader answers each by hand, or refuses.

const make = (name, className, text = "") => Object.assign(document.createElement(name), { className, textContent: text });
export const kRefused = "The user refused this call.";

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // not whole yet
  }
}

// Adds up the pieces of a stream's tool_calls.
export function growCalls(calls, pieces) {
  for (const { index, id, function: piece } of pieces) {
    const call = calls[index] ??= { id: "", name: "", arguments: "" };
    call.id ||= id ?? "";
    call.name ||= piece?.name ?? "";
    call.arguments += piece?.arguments ?? "";
  }
}

export function callCards(calls) {
  return calls.filter(Boolean).map((call) => {
    const node = make("section", "call");
    node.setAttribute("aria-label", `Call of ${call.name}`);
    const pre = make("pre", "", pretty(call.arguments));
    pre.tabIndex = 0;
    node.append(make("h3", "", call.name), pre);
    return node;
  });
}

// Below the cards: what each call gives. onAnswer gets a text for each.
export function callForm(calls, onAnswer) {
  const form = make("form", "call-form");
  const fields = calls.map((call, i) => {
    const label = make("label", "tall", calls.length > 1 ? `What ${call.name} gives (call ${i + 1})` : `What ${call.name} gives`);
    const field = make("textarea", "");
    field.rows = 2;
    field.placeholder = "text or JSON";
    label.append(field);
    form.append(label);
    return field;
  });
  const send = make("button", "", calls.length > 1 ? "Send the results" : "Send the result");
  const refuse = make("button", "", "Refuse");
  refuse.type = "button";
  refuse.onclick = () => onAnswer(calls.map(() => kRefused));
  form.onsubmit = (event) => {
    event.preventDefault();
    onAnswer(fields.map((field) => field.value));
  };
  const row = make("div", "foot");
  row.append(send, refuse);
  form.append(row);
  return form;
}
