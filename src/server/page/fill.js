// How full the context is.

const $ = (id) => document.getElementById(id);
const whole = (n) => Math.round(n).toLocaleString("en-US");
let context = 0, used = 0;

export function setContext(n) {
  context = n;
  showFill(used);
}

export function showFill(n) {
  used = n;
  $("fill").hidden = context === 0 || used === 0;
  $("fill-bar").max = context || 1;
  $("fill-bar").value = Math.min(used, context);
  $("fill-words").textContent = `${whole(used)} of ${whole(context)}`;
  $("fill").title = `The context holds ${whole(context)} tokens; this chat has ${whole(used)}.`;
  $("fill").classList.toggle("nearly", used > 0.9 * context);
}
