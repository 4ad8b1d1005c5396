"use strict";
// The router's page: a chat, and the fleet as /fleet tells it. Whatever a model, a worker or a client named
// stays text: only textContent is written.

const byId = (id) => document.getElementById(id);
const MOST_EVENTS = 8;
const POLL_MS = 500;
const HIDDEN_POLL_MS = 5000;
const MOST_MESSAGES = 100;

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

// --- Chat -------------------------------------------------------------------------------------------

const chat = { messages: [], running: null };

async function loadModels() {
  const select = byId("model");
  try {
    const response = await fetch("/v1/models", { headers: bearer(byId("key").value) });
    if (!response.ok) {
      if (response.status === 401) document.querySelector("#ask details").open = true;
      throw new Error(await sentenceOf(response));
    }
    const names = (await response.json()).data.map((model) => model.id);
    const before = select.value;
    select.replaceChildren(...names.map((name) => element("option", "", name)));
    if (names.includes(before)) select.value = before;
    select.disabled = names.length === 0;
    if (names.length > 0) return;
    select.replaceChildren(element("option", "", "none yet"));
  } catch (error) {
    select.replaceChildren(element("option", "", "…"));
    select.disabled = true;
    select.title = error.message;
  }
  setTimeout(loadModels, 3000);
}

// Who reads the end goes on reading the end.
function keepLow(change) {
  const box = byId("messages");
  const low = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  change();
  if (low) box.scrollTop = box.scrollHeight;
}

function addMessage(role, text) {
  const box = byId("messages");
  box.querySelector(".hint")?.remove();
  const message = element("article", `message ${role}`);
  message.append(element("p", "text", text), element("p", "meta"));
  box.append(message);
  while (box.children.length > MOST_MESSAGES) box.firstChild.remove();
  box.scrollTop = box.scrollHeight;
  return message;
}

function counted(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

// Calls `take` with the data of each event of a stream.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (pending + value).split("\n");
    pending = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) take(line.slice(5).trim());
    }
  }
}

// The count comes with the last word: an answer that was stopped has none.
function paceOf(times) {
  const parts = times.tokens ? [counted(times.tokens, "token")] : [];
  if (times.first) parts.push(`first after ${Math.round(times.first - times.sent)} ms`);
  const seconds = (times.last - times.first) / 1000;
  if (times.tokens > 1 && seconds > 0) parts.push(`${((times.tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (times.cached) parts.push(`${times.cached} of ${times.prompt} prompt tokens from the cache`);
  if (times.reason && times.reason !== "stop") parts.push(`ended: ${times.reason}`);
  return parts.join(" · ");
}

// One event's part in the answer. Throws where the server says that it failed.
function takeChunk(chunk, message, times) {
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices?.[0];
  const text = choice?.delta?.content;
  if (text) {
    times.last = performance.now();
    times.first ||= times.last;
    message.querySelector(".text").textContent += text;
  }
  if (choice?.finish_reason) times.reason = choice.finish_reason;
  if (chunk.usage) {
    times.tokens = chunk.usage.completion_tokens;
    times.prompt = chunk.usage.prompt_tokens;
    times.cached = chunk.usage.prompt_tokens_details?.cached_tokens || 0;
  }
}

async function streamAnswer(message, times, signal) {
  const body = {
    model: byId("model").value,
    messages: chat.messages,
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: Math.max(1, Number(byId("tokens").value) || 256),
  };
  if (byId("temperature").value !== "") body.temperature = Number(byId("temperature").value);
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...bearer(byId("key").value) },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw new Error(await sentenceOf(response));
  let whole = false;
  await readEvents(response, (data) => {
    if (data === "[DONE]") {
      whole = true;
      return;
    }
    keepLow(() => takeChunk(JSON.parse(data), message, times));
  });
  if (!whole) throw new Error("the answer ended without its last word");
}

async function send(text) {
  chat.messages.push({ role: "user", content: text });
  addMessage("user", text);
  const message = addMessage("assistant streaming", "");
  const times = { sent: performance.now(), first: 0, last: 0, tokens: 0, cached: 0, prompt: 0, reason: "" };
  chat.running = new AbortController();
  byId("send").textContent = "Stop";
  try {
    await streamAnswer(message, times, chat.running.signal);
  } catch (error) {
    const stopped = error.name === "AbortError";
    times.reason = stopped ? "stopped" : `failed: ${error.message}`;
    const said = message.querySelector(".text").textContent;
    if (!stopped) message.classList.add("failed");
    if (!stopped && !said) message.querySelector(".text").textContent = error.message;
    if (!said) chat.messages.pop();
  }
  message.classList.remove("streaming");
  keepLow(() => { message.querySelector(".meta").textContent = paceOf(times); });
  const said = message.querySelector(".text").textContent;
  const answered = chat.messages.length > 0 && chat.messages.at(-1).role === "user";
  if (answered && said) chat.messages.push({ role: "assistant", content: said });
  chat.running = null;
  byId("send").textContent = "Send";
}

function startChat() {
  remembered(byId("key"), "quire-key");
  byId("key").addEventListener("change", loadModels);
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chat.running) {
      chat.running.abort();
      return;
    }
    const text = byId("prompt").value.trim();
    if (!text || byId("model").disabled) return;
    byId("prompt").value = "";
    send(text);
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!chat.running) byId("ask").requestSubmit();
  });
  byId("clear").addEventListener("click", () => {
    if (chat.running) chat.running.abort();
    chat.messages = [];
    byId("messages").replaceChildren();
  });
  loadModels();
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
