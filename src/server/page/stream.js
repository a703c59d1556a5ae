// One request to the server: its events as they come, and its refusals as a sentence with the remedy.

export class Refusal extends Error {
  // again: asking the same once more may help.
  constructor(sentence, { again = true, startNew = false } = {}) {
    super(sentence);
    this.again = again;
    this.startNew = startNew;
  }
}

const kGone = "The server does not answer. Is it still running?";
const kCut = "The connection ended before the answer did.";

function seconds(response) {
  const n = Number(response.headers.get("Retry-After"));
  return n > 0 ? `in ${n} s` : "in a moment";
}

async function refusal(response, { messages }) {
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* not ours: a proxy's page */ }
  const said = error.message ?? `The server answered with status ${response.status}.`;
  if (response.status === 401)
    return new Refusal("The server needs an API key. Reload this page and give the key as the password.");
  if (response.status === 429)
    return new Refusal(`The server is busy: as many requests wait as it takes. Try again ${seconds(response)}.`);
  if (response.status === 503) return new Refusal(`${said} Try again ${seconds(response)}.`);
  if (error.code === "context_length_exceeded") {
    // A new chat gives room only where there is more than the question.
    const startNew = messages.filter(({ role }) => role !== "system").length > 1;
    const sentence = startNew ? `The context is full. ${said} Start a new chat, or ask for less.` : `The question is too long. ${said}`;
    return new Refusal(sentence, { again: false, startNew });
  }
  return new Refusal(said);
}

// Server-sent events: "data: …" lines between blank ones; comments only keep the connection alive.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

// Yields the server's chunks as objects. Throws a Refusal, or an AbortError where the caller gave up.
export async function* complete(body, signal) {
  let began = false, ended = false;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
    });
    if (!response.ok) throw await refusal(response, body);
    began = true;
    for await (const event of events(response)) {
      if (event === "[DONE]") { ended = true; continue; }
      const chunk = JSON.parse(event);
      if (chunk.error) throw new Refusal(chunk.error.message);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Refusal || error.name === "AbortError") throw error;
    if (error instanceof TypeError) throw new Refusal(began ? kCut : kGone);
    throw new Refusal(`The answer of the server could not be read: ${error.message}`);
  }
  if (!ended) throw new Refusal(kCut);
}
