// Starts the page: theme and tabs; then the chat and the engine's view.
import { startChat } from "./chat.js";
import { showEngine } from "./engine.js";

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
$("skip").onclick = (event) => {
  event.preventDefault();  // the address selects the view
  if (location.hash === "#engine") return $("view-engine").focus();
  // On a phone the list of chats or the settings may stand in its place.
  for (const id of ["panel-button", "drawer-button"]) if ($(id).getAttribute("aria-expanded") === "true" && !$("scroll").checkVisibility()) $(id).click();
  $("scroll").focus();
};
window.addEventListener("hashchange", () => show(location.hash === "#engine" ? "engine" : "chat"));

startChat();
show(location.hash === "#engine" ? "engine" : "chat");
