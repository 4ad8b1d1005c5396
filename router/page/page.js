"use strict";
// The router's page: the fleet as /fleet tells it, and what it shares with the chat. Whatever a model, a worker or
// a client named stays text: only textContent is written.

const byId = (id) => document.getElementById(id);
const MOST_EVENTS = 8;
const POLL_MS = 500;
const HIDDEN_POLL_MS = 5000;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// What was typed stays with this tab.
function remembered(input, name) {
  input.value = sessionStorage.getItem(name) || "";
  input.addEventListener("change", () => sessionStorage.setItem(name, input.value));
}

function bearer(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function sentenceOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered with status ${response.status}`;
  }
}

function counted(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

// --- Fleet ------------------------------------------------------------------------------------------

const fleet = { workers: new Map(), streams: new Map(), at: 0, pace: 0 };

function tell(text) {
  const line = element("li");
  line.append(element("time", "", new Date().toLocaleTimeString([], { hour12: false })), text);
  byId("events").prepend(line);
  while (byId("events").children.length > MOST_EVENTS) byId("events").lastChild.remove();
}

function share(part, whole) {
  return whole > 0 ? Math.round((100 * part) / whole) : 0;
}

function makeWorker(id) {
  const card = element("div", "worker");
  const top = element("div", "row");
  const name = element("span", "name", id);
  name.append(element("small"));
  top.append(name, element("span", "badge"));
  const bar = element("div", "bar");
  bar.append(element("span", "held"), element("span", "cached"));
  const numbers = element("div", "numbers");
  numbers.append(element("span", "cache"), element("span", "batch"));
  card.append(top, bar, numbers, element("div", "streams"));
  byId("workers").append(card);
  return { card, phase: "" };
}

function showWorker(worker) {
  let known = fleet.workers.get(worker.id);
  if (!known) {
    known = makeWorker(worker.id);
    fleet.workers.set(worker.id, known);
  }
  if (known.phase && known.phase !== worker.phase) tell(`${worker.id} is ${worker.phase}`);
  known.phase = worker.phase;
  known.seen = true;
  const find = (selector) => known.card.querySelector(selector);
  const ready = worker.phase === "ready";
  known.card.classList.toggle("gone", !ready);
  find(".badge").textContent = worker.phase;
  find(".badge").className = `badge ${ready ? "good" : worker.phase === "stuck" ? "bad" : "warn"}`;
  const below = find(".name small");
  below.textContent = (!ready && worker.problem) || worker.models.join(", ");
  below.title = below.textContent;
  const total = worker.total_blocks;
  // What a worker reported before it was lost is of no use.
  const held = ready ? Math.max(0, total - worker.free_blocks) : 0;
  const cached = ready ? Math.min(worker.cached_blocks, total) : 0;
  find(".held").style.width = `${share(held, total)}%`;
  find(".cached").style.width = `${share(Math.max(0, cached - held), total)}%`;
  find(".cache").textContent = ready ? `cache ${share(cached, total)} % full, ${worker.index}` : "";
  find(".cache").title = `${cached} of ${total} blocks are known to hold something that can be reused`;
  find(".batch").textContent = ready ? `${counted(worker.running, "row")}, ${worker.waiting} waiting` : "";
}

// Moves a stream's dot to its worker so that the eye can follow it.
function place(dot, home) {
  if (dot.parentNode === home) return;
  const from = dot.isConnected ? dot.getBoundingClientRect() : null;
  home.append(dot);
  if (!from || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const to = dot.getBoundingClientRect();
  dot.animate(
    [
      { transform: `translate(${from.left - to.left}px, ${from.top - to.top}px) scale(1.8)` },
      { transform: "none" },
    ],
    { duration: 900, easing: "ease-in-out" },
  );
}

function showStream(stream) {
  let known = fleet.streams.get(stream.number);
  if (!known) {
    known = { dot: element("div", "stream"), worker: stream.worker, tokens: stream.tokens };
    fleet.streams.set(stream.number, known);
  }
  if (stream.worker && known.worker && stream.worker !== known.worker) {
    tell(`a stream of ${stream.model} went on at ${stream.worker} after ${stream.tokens} tokens`);
  }
  const made = Math.max(0, stream.tokens - known.tokens);
  known.worker = stream.worker || known.worker;
  known.tokens = stream.tokens;
  known.seen = true;
  known.dot.classList.toggle("moved", stream.moved > 0);
  known.dot.classList.toggle("early", stream.state !== "generating");
  known.dot.title = `${stream.id}: ${stream.state}, ${stream.tokens} tokens`;
  const home = stream.worker && fleet.workers.get(stream.worker);
  place(known.dot, (home ? home.card : byId("waiting")).querySelector(".streams"));
  return made;
}

function forgetUnseen(map, forget) {
  for (const [key, known] of map) {
    if (!known.seen) {
      forget(key, known);
      map.delete(key);
    }
    known.seen = false;
  }
}

function showFleet(view) {
  const now = performance.now();
  for (const worker of view.workers) showWorker(worker);
  forgetUnseen(fleet.workers, (id, known) => {
    known.card.remove();
    tell(`${id} is gone`);
  });
  let made = 0;
  for (const stream of view.streams) made += showStream(stream);
  forgetUnseen(fleet.streams, (_, known) => known.dot.remove());
  if (fleet.at) fleet.pace = 0.6 * fleet.pace + (0.4 * made * 1000) / (now - fleet.at);
  fleet.at = now;
  const ready = view.workers.filter((worker) => worker.phase === "ready").length;
  byId("totals").textContent =
    `${ready} of ${view.workers.length} ready · ${counted(view.live_requests, "stream")} · ${Math.round(fleet.pace)} tokens/s`;
  byId("waiting").hidden = byId("waiting").querySelector(".streams").children.length === 0;
  byId("legend").hidden = view.workers.length === 0;
}

function badge(text, kind) {
  byId("health").textContent = text;
  byId("health").className = `badge ${kind}`;
}

async function poll() {
  try {
    const health = await fetch("/health");
    badge(health.ok ? "healthy" : "no worker ready", health.ok ? "good" : "warn");
    const response = await fetch("/fleet", { headers: bearer(byId("token").value) });
    const refused = response.status === 401 || response.status === 403;
    if (refused) byId("why").textContent = await sentenceOf(response);
    byId("operator").hidden = !refused;
    byId("unpublished").hidden = response.status !== 404;
    if (response.ok) showFleet(await response.json());
    if (refused) return; // asked again when a token is given
  } catch {
    badge("the router cannot be reached", "bad");
  }
  setTimeout(poll, document.hidden ? HIDDEN_POLL_MS : POLL_MS);
}

function startFleet() {
  remembered(byId("token"), "quire-admin-token");
  byId("operator").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("quire-admin-token", byId("token").value);
    poll();
  });
  poll();
}

startChat();
startFleet();
