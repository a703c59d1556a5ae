// Starts the page: theme, tabs, the model's name; then the chat and the engine's view.
import { startChat } from "./chat.js";
import { showEngine } from "./engine.js";
import { setContext } from "./fill.js";

const $ = (id) => document.getElementById(id);

// theme.js has set the theme already.
function nameTheme() { $("theme").setAttribute("aria-pressed", isDark()); }
$("theme").onclick = () => {
  const next = isDark() ? "light" : "dark";
  setTheme((next === "dark") === systemIsDark.matches ? null : next);
  nameTheme();
};
systemIsDark.addEventListener("change", nameTheme);
nameTheme();

const kTabs = ["chat", "engine"];
function show(tab) {
  for (const name of kTabs) {
    const selected = name === tab;
    $("view-" + name).hidden = !selected;
    $("tab-" + name).setAttribute("aria-selected", selected);
    $("tab-" + name).tabIndex = selected ? 0 : -1;
  }
  $("panel-button").disabled = $("drawer-button").disabled = tab !== "chat";
  history.replaceState(null, "", tab === "engine" ? "#engine" : "#");
  showEngine(tab === "engine");
}
for (const name of kTabs) {
  $("tab-" + name).onclick = () => show(name);
  $("tab-" + name).onkeydown = (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = kTabs.find((tab) => tab !== name);
    show(other);
    $("tab-" + other).focus();
  };
}
window.addEventListener("hashchange", () => show(location.hash === "#engine" ? "engine" : "chat"));

async function nameModel() {
  try {
    const response = await fetch("v1/models");
    if (response.ok) {
      const model = (await response.json()).data[0];
      $("model").textContent = `${model.id} · context ${model.max_model_len.toLocaleString("en-US")}`;
      $("model").title = $("model").textContent;
      setContext(model.max_model_len);
      document.title = model.id + " · ibid";
      return;
    }
    $("model").textContent = response.status === 401 ? "wants an API key: reload the page" : "the model is loading …";
    if (response.status === 401) return;
  } catch {
    $("model").textContent = "the server does not answer";
  }
  setTimeout(nameModel, 1000);
}

startChat();
nameModel();
show(location.hash === "#engine" ? "engine" : "chat");
