"use strict";
// The chat: conversations that this browser keeps, answers that stream in. Whatever a model, a worker or a client
// named stays text.

const MOST_CONVERSATIONS = 50;
const MOST_KEPT_CHARACTERS = 2_000_000;
const KEPT = "quire-conversations";
const SETTINGS = "quire-settings";

const chat = { kept: [], now: null, running: null, problems: new Map() };

// --- What is kept -----------------------------------------------------------------------------------

function stored(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function isConversation(one) {
  return one && typeof one.title === "string" && Array.isArray(one.messages) &&
    one.messages.every((m) => m && ["user", "assistant"].includes(m.role) && typeof m.content === "string");
}

// The oldest go when there is no more room.
function keep() {
  const kept = chat.kept.filter((one) => one.messages.length > 0).slice(0, MOST_CONVERSATIONS);
  for (;;) {
    const text = JSON.stringify(kept);
    if (text.length <= MOST_KEPT_CHARACTERS || kept.length === 0) {
      try {
        localStorage.setItem(KEPT, text);
        return;
      } catch {
        if (kept.length === 0) return; // this browser keeps nothing
      }
    }
    kept.pop();
  }
}

function showTitles() {
  const options = chat.kept.map((one, index) => {
    const option = element("option", "", one.title || "New chat");
    option.value = String(index);
    option.selected = one === chat.now;
    return option;
  });
  byId("conversations").replaceChildren(...options);
}

function startConversation() {
  if (!chat.now || chat.now.messages.length > 0) {
    chat.now = { title: "", messages: [] };
    chat.kept.unshift(chat.now);
  }
  showConversation();
}

function removeConversation() {
  chat.kept = chat.kept.filter((one) => one !== chat.now);
  chat.now = null;
  keep();
  startConversation();
}

// --- Settings ---------------------------------------------------------------------------------------

const KEPT_SETTINGS = ["system", "temperature", "top_p", "tokens", "seed"];

function restoreSettings() {
  const settings = stored(SETTINGS, {});
  for (const name of KEPT_SETTINGS) {
    if (typeof settings[name] === "string") byId(name).value = settings[name];
    byId(name).addEventListener("change", () =>
      localStorage.setItem(SETTINGS, JSON.stringify(Object.fromEntries(KEPT_SETTINGS.map((one) => [one, byId(one).value])))));
  }
}

function requestBody() {
  const system = byId("system").value.trim();
  const body = {
    model: byId("model").value,
    messages: chat.now.messages.map(({ role, content }) => ({ role, content })),
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: Math.max(1, Number(byId("tokens").value) || 256),
  };
  if (system) body.messages.unshift({ role: "system", content: system });
  for (const name of ["temperature", "top_p", "seed"]) {
    if (byId(name).value !== "") body[name] = Number(byId(name).value);
  }
  return body;
}

async function loadModels() {
  const select = byId("model");
  try {
    const response = await fetch("/v1/models", { headers: bearer(byId("key").value) });
    if (!response.ok) {
      if (response.status === 401) document.querySelector("#ask details").open = true;
      throw new Error(await sentenceOf(response));
    }
    const models = (await response.json()).data;
    chat.problems = new Map(models.map((model) => [model.id, model.chat_problem]));
    const names = models.map((model) => model.id);
    const before = select.value;
    select.replaceChildren(...names.map((name) => element("option", "", name)));
    if (names.includes(before)) select.value = before;
    select.disabled = names.length === 0;
    showProblem();
    if (names.length > 0) return;
    select.replaceChildren(element("option", "", "none yet"));
  } catch (error) {
    select.replaceChildren(element("option", "", "…"));
    select.disabled = true;
    select.title = error.message;
  }
  setTimeout(loadModels, 3000);
}

// A model that does not chat says so before anyone asks it.
function showProblem() {
  const problem = chat.problems.get(byId("model").value);
  byId("problem").hidden = !problem;
  byId("problem").textContent = problem ? `${byId("model").value}: ${problem}` : "";
}

// --- Messages ---------------------------------------------------------------------------------------

// Who reads the end goes on reading the end.
function keepLow(change) {
  const box = byId("messages");
  const low = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  change();
  if (low) box.scrollTop = box.scrollHeight;
}

function action(text, does) {
  const button = element("button", "quiet", text);
  button.type = "button";
  button.addEventListener("click", does);
  return button;
}

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "No clipboard here";
  }
}

function showThoughts(node, text) {
  if (!text) return;
  let box = node.querySelector("details");
  if (!box) {
    box = element("details", "thoughts");
    box.append(element("summary", "", "Thoughts"), element("p"));
    node.prepend(box);
  }
  box.lastChild.textContent = text;
}

function showText(node, message) {
  showThoughts(node, message.thoughts);
  const box = node.querySelector(".text");
  if (message.role === "assistant") showMarkdown(box, message.content);
  else box.textContent = message.content;
}

// The element of a message; its buttons act on the message's place in the conversation.
function messageElement(message) {
  const node = element("article", `message ${message.role}`);
  const below = element("p", "meta", message.meta || "");
  const actions = element("span", "actions");
  actions.append(action("Copy", (event) => copyText(message.content, event.target)));
  if (message.role === "user") actions.append(action("Edit", () => editMessage(message)));
  else actions.append(action("Again", () => askAgain(message)));
  node.append(element("div", "text"), below, actions);
  showText(node, message);
  return node;
}

function showConversation() {
  const box = byId("messages");
  box.replaceChildren(...chat.now.messages.map(messageElement));
  if (chat.now.messages.length === 0) box.append(byId("welcome").content.cloneNode(true));
  box.scrollTop = box.scrollHeight;
  showTitles();
}

// What came after the message is given up; what it said goes back into the field.
function editMessage(message) {
  if (chat.running) return;
  const place = chat.now.messages.indexOf(message);
  chat.now.messages.splice(place);
  keep();
  showConversation();
  byId("prompt").value = message.content;
  byId("prompt").focus();
}

function askAgain(message) {
  if (chat.running) return;
  chat.now.messages.splice(chat.now.messages.indexOf(message));
  showConversation();
  answer();
}

// --- Answers ----------------------------------------------------------------------------------------

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
  const text = choice?.delta?.content || "";
  const thought = choice?.delta?.reasoning_content || choice?.delta?.reasoning || "";
  if (text || thought) {
    times.last = performance.now();
    times.first ||= times.last;
    message.content += text;
    if (thought) message.thoughts = (message.thoughts || "") + thought;
  }
  if (choice?.finish_reason) times.reason = choice.finish_reason;
  if (chunk.usage) {
    times.tokens = chunk.usage.completion_tokens;
    times.prompt = chunk.usage.prompt_tokens;
    times.cached = chunk.usage.prompt_tokens_details?.cached_tokens || 0;
  }
}

// However many tokens come between two pictures of the screen, they are drawn once.
function painter(node, message) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      keepLow(() => showText(node, message));
    });
  };
}

async function streamAnswer(node, message, times, signal) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...bearer(byId("key").value) },
    body: JSON.stringify(requestBody()),
    signal,
  });
  if (!response.ok) throw new Error(await sentenceOf(response));
  let whole = false;
  const paint = painter(node, message);
  await readEvents(response, (data) => {
    if (data === "[DONE]") {
      whole = true;
      return;
    }
    takeChunk(JSON.parse(data), message, times);
    paint();
  });
  if (!whole) throw new Error("the answer ended without its last word");
}

// The answer to the conversation as it is.
async function answer() {
  const conversation = chat.now;
  const message = { role: "assistant", content: "" };
  const node = messageElement(message);
  node.classList.add("streaming");
  byId("messages").append(node);
  byId("messages").scrollTop = byId("messages").scrollHeight;
  const times = { sent: performance.now(), first: 0, last: 0, tokens: 0, cached: 0, prompt: 0, reason: "" };
  chat.running = new AbortController();
  byId("send").textContent = "Stop";
  let failure = "";
  try {
    await streamAnswer(node, message, times, chat.running.signal);
  } catch (error) {
    const stopped = error.name === "AbortError";
    times.reason = stopped ? "stopped" : `failed: ${error.message}`;
    if (!stopped) failure = error.message;
  }
  message.meta = paceOf(times);
  node.classList.remove("streaming");
  node.classList.toggle("failed", failure !== "");
  keepLow(() => {
    showText(node, message);
    if (failure && !message.content) node.querySelector(".text").textContent = failure;
    node.querySelector(".meta").textContent = message.meta;
  });
  if (message.content) conversation.messages.push(message);
  else if (conversation.messages.at(-1)?.role === "user") conversation.messages.pop();
  chat.running = null;
  byId("send").textContent = "Send";
  keep();
}

function send(text) {
  const message = { role: "user", content: text };
  chat.now.messages.push(message);
  chat.now.title ||= text.slice(0, 60);
  chat.kept = [chat.now, ...chat.kept.filter((one) => one !== chat.now)];
  byId("messages").querySelector(".welcome")?.remove();
  byId("messages").append(messageElement(message));
  showTitles();
  keep();
  answer();
}

// --- Start ------------------------------------------------------------------------------------------

function onSubmit(event) {
  event.preventDefault();
  if (chat.running) {
    chat.running.abort();
    return;
  }
  const text = byId("prompt").value.trim();
  if (!text || byId("model").disabled) return;
  byId("prompt").value = "";
  send(text);
}

function startChat() {
  remembered(byId("key"), "quire-key");
  byId("key").addEventListener("change", loadModels);
  restoreSettings();
  const kept = stored(KEPT, []);
  chat.kept = Array.isArray(kept) ? kept.filter(isConversation).slice(0, MOST_CONVERSATIONS) : [];
  chat.now = chat.kept[0] || null;
  if (chat.now) showConversation();
  else startConversation();
  byId("ask").addEventListener("submit", onSubmit);
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!chat.running) byId("ask").requestSubmit();
  });
  byId("model").addEventListener("change", showProblem);
  byId("new").addEventListener("click", () => {
    if (!chat.running) startConversation();
    byId("prompt").focus();
  });
  byId("clear").addEventListener("click", () => {
    if (chat.running) chat.running.abort();
    removeConversation();
  });
  byId("conversations").addEventListener("change", (event) => {
    if (chat.running) return showTitles();
    chat.now = chat.kept[Number(event.target.value)];
    showConversation();
  });
  byId("messages").addEventListener("click", (event) => {
    if (event.target.dataset.copies !== "code") return;
    copyText(event.target.closest(".code-block").querySelector("code").textContent, event.target);
  });
  loadModels();
}
