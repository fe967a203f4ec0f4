// Asks for the state every second and hands it to the parts of the page.
import { setText } from "./format.js";
import { Failures } from "./failures.js";
import { Graph } from "./graph.js";
import { Ladders } from "./ladder.js";
import { History, Plots } from "./plots.js";
import { Tables } from "./tables.js";

const PERIOD = 1000, PATIENCE = 10000;  // Milliseconds.
const THEMES = ["system", "light", "dark"];

const at = (id) => document.getElementById(id);
const past = new History();
let state = null;      // The newest.
let seen = 0;          // When.
let scope = "all";     // Or "pid NUMBER", "device NAME".
let isPaused = false;

const plots = new Plots(at("plots"));
const graph = new Graph(at("graph"), at("graph-more"), choose);
const failures = new Failures(at("failure-list"), at("failure-count"));
const tables = new Tables({ tabs: at("tabs"), panel: at("table"), more: at("table-more"),
                            filter: at("filter") }, choose);

function choose(name) {
  scope = scope === name ? "all" : name;
  show();
}

function titleOfScope() {
  const process = state.processes.find((p) => `pid ${p.pid}` === scope);
  return process ? `${process.comm} (${process.pid})` : scope.replace(/^device /, "");
}

function exists(name) {
  return name === "all" || state.processes.some((p) => `pid ${p.pid}` === name) ||
    state.devices.some((d) => `device ${d.ifname}` === name);
}

function show() {
  if (!state) return;
  if (!exists(scope)) scope = "all";
  at("scope").hidden = scope === "all";
  setText(at("scope"), `${titleOfScope()} ✕`);
  plots.show(past.of(scope), seen);
  graph.show(state.graph, scope);
  failures.show(state, scope);
  tables.show(state, scope);
  setText(at("place"), `${state.user} on ${state.machine}, version ${state.version}`);
  at("unknown").hidden = !state.unknown;
  setText(at("unknown"), `Not everything can be known: ${state.unknown}.`);
  document.title = `feroce on ${state.machine}`;
}

function pulse(name, sentence) {
  at("pulse").dataset.state = name;
  setText(at("pulse"), sentence);
  document.body.classList.toggle("stale", name === "lost");
}

async function ask() {
  const answer = await fetch("state.json", { signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// Packets do not change: they are asked for once.
async function showCapture() {
  const answer = await fetch("capture.json");
  if (answer.ok) tables.addCapture(new Ladders(await answer.json()));
  show();
}

async function look() {
  const begun = performance.now();
  if (!isPaused && !document.hidden) {
    try {
      const isFirst = state === null;
      state = await ask();
      if (isFirst && state.capture) showCapture();
      seen = Date.now();
      past.add(seen, state);
      show();
      pulse("live", "live");
    } catch (error) {
      const isGone = error instanceof TypeError || error.name === "TimeoutError";
      pulse("lost", isGone ? "feroce web does not answer" : error.message);
    }
  }
  setTimeout(look, Math.max(100, PERIOD - (performance.now() - begun)));
}

function pause() {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", isPaused);
  setText(at("pause"), isPaused ? "Go on" : "Pause");
  pulse("wait", isPaused ? "paused" : "waiting");
}

// What the browser keeps may be switched off.
function kept() {
  try {
    return localStorage.getItem("theme") ?? "system";
  } catch {
    return "system";
  }
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  setText(at("theme"), `Theme: ${name}`);
  try {
    localStorage.setItem("theme", name);
  } catch {
    // Until the page is loaded again.
  }
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(kept()) + 1) % THEMES.length]);
}

const KEYS = {
  p: pause,
  t: nextTheme,
  "?": () => at("keys").showModal(),
  "/": () => at("filter").focus(),
  Escape: () => choose(scope),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || at("keys").open) return;
  if (event.target === at("filter")) {
    if (event.key === "Escape") at("filter").blur();
    return;
  }
  const number = Number.parseInt(event.key, 10);
  if (number >= 1 && event.key.length === 1) tables.openNumber(number - 1);
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
});
at("pause").addEventListener("click", pause);
at("theme").addEventListener("click", nextTheme);
at("help").addEventListener("click", KEYS["?"]);
at("scope").addEventListener("click", KEYS.Escape);
window.addEventListener("resize", show);
document.addEventListener("visibilitychange", show);
setTheme(THEMES.includes(kept()) ? kept() : "system");
look();
