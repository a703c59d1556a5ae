// The line of facts about an answer: while it is waited for, while it grows, and below it once it has ended.
import { contextNow, isUnloaded, modelNow, servedMaxTokens } from "./models.js";

const whole = (n) => n.toLocaleString("en-US");
const seconds = (ms) => (ms / 1000).toFixed(2) + " s";
export const rate = ({ usage, first }, until) => (usage.completion_tokens - 1) * 1000 / (until - first);

// Before the first token: how much of the prompt is read, and for how long it has been waited.
export function waitingWords({ began, reading }, now) {
  const { total = 0, processed = 0 } = reading ?? {};
  const what = processed < total ? `Reading ${whole(processed)} of ${whole(total)} tokens …`
    : !reading && isUnloaded() ? `Loading ${modelNow().id} …` : "Waiting for the first token …";
  const s = Math.floor((now - began) / 1000);
  return s > 0 ? `${what} ${whole(s)} s` : what;
}

// Which bound an answer met that has ended at a length: "full", the context; "asked", the request's max_tokens; "served",
// the server's. Of several answers only the sum of their lengths is known, but where a bound lies beyond the context the
// context is what cut them.
export function boundOf({ usage, n, asked }) {
  const context = contextNow();
  const most = asked ?? servedMaxTokens();
  if (n === 1 && usage && asked !== undefined && usage.completion_tokens >= asked) return "asked";
  if (context > 0 && usage) {
    const isFull = n === 1 ? usage.prompt_tokens + usage.completion_tokens >= context
      : most === undefined || usage.prompt_tokens + most > context;
    if (isFull) return "full";
  }
  return asked !== undefined ? "asked" : "served";
}

const kBounds = { full: "ended because the context is full", asked: "ended at max tokens", served: "ended at the server's max tokens" };

export function figures(facts) {
  const { began, first, ended, usage, seed, n, finish, model } = facts;
  const parts = [];
  if (model) parts.push(model);
  if (first) parts.push(`first token ${seconds(first - began)}`);
  if (usage) {
    if (usage.completion_tokens > 1 && ended > first) parts.push(`${rate(facts, ended).toFixed(1)} tokens/s`);
    parts.push(`${usage.completion_tokens} tokens` + (n > 1 ? ` in ${n} answers` : ""));
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${usage.prompt_tokens} prompt tokens` + (cached > 0 ? `, ${cached} of them cached` : ""));
  }
  if (seed !== undefined) parts.push(`seed ${seed}`);
  if (finish === "length" || finish === "full") parts.push(kBounds[finish === "full" ? "full" : boundOf(facts)]);
  else if (finish && finish !== "stop") parts.push(finish === "tool_calls" ? "asks for tools" : finish);
  return parts.join(" · ");
}
