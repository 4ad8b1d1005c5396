// Ollama's own package for JavaScript, unmodified, against a running router whose workers answer by agents/rules.json. Run by
// agents_test.py.
//
// usage: ollama_client.mjs NODE_MODULES BASE_URL MODEL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runAll } from "./checks.mjs";

const [modules, host, model] = process.argv.slice(2);
const { Ollama } = createRequire(modules + "/")("ollama");
const ollama = new Ollama({ host });
const question = [{ role: "user", content: "What is the weather in Paris?" }];
const story = [{ role: "user", content: "Tell me a story" }];
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "array" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "", parameters } }];

async function partsOf(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return parts;
}

await runAll("ollama.js", {
  async a_chat_streams_what_the_whole_says() {
    const whole = await ollama.chat({ model, messages: story, options: { seed: 7 } });
    const parts = await partsOf(await ollama.chat({ model, messages: story, stream: true, options: { seed: 7 } }));
    assert(parts.length > 5);
    assert.equal(parts.map((part) => part.message.content).join(""), whole.message.content);
    assert.equal(parts.at(-1).done_reason, "stop");
    assert(whole.eval_count > 5 && whole.eval_duration >= 0 && whole.total_duration > 0);
  },
  async a_generation_streams_what_the_whole_says() {
    const whole = await ollama.generate({ model, prompt: "Tell me a story" });
    const parts = await partsOf(await ollama.generate({ model, prompt: "Tell me a story", stream: true }));
    assert.equal(parts.map((part) => part.response).join(""), whole.response);
  },
  async tools_are_called_with_objects_and_their_results_come_back() {
    const { message } = await ollama.chat({ model, messages: question, tools, think: true });
    assert.equal(message.thinking, "I need the weather.");
    assert.deepEqual(message.tool_calls.map((call) => call.function.arguments), [{ city: "Paris", days: [1, 2] }, {}]);
    const results = [{ role: "tool", tool_name: "get_weather", content: "12 degrees" }];
    const after = await ollama.chat({ model, messages: [...question, message, ...results], tools });
    assert.equal(after.message.content, "It is 12 degrees in Paris.");
  },
  async models_are_listed_shown_and_seen_running() {
    assert.deepEqual((await ollama.list()).models.map((one) => one.name), [model]);
    assert.deepEqual((await ollama.show({ model })).capabilities, ["completion", "tools", "thinking"]);
    assert.equal((await ollama.ps()).models[0].context_length, 131072);
    assert.match((await ollama.version()).version, /^\d/);
  },
  async a_stream_can_be_left() {
    const stream = await ollama.chat({ model, messages: story, stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream) stream.abort();
    }, { name: "AbortError" });
  },
  async errors_are_the_packages_own() {
    const is = (status, words) => (error) => error.name === "ResponseError" && error.status_code === status && error.message.includes(words);
    await assert.rejects(ollama.chat({ model: "no-such-model", messages: story }), is(404, "no-such-model"));
    await assert.rejects(ollama.generate({ model, prompt: "x", options: { top_p: 2 } }), is(400, "options.top_p: must be in (0, 1]"));
    await assert.rejects(ollama.chat({ model, messages: story, options: { nonsense: 1 }, stream: true }), is(400, "options.nonsense"));
    await assert.rejects(ollama.generate({ model, prompt: "x", images: [new Uint8Array([1])] }), is(400, "images: "));
    await assert.rejects(ollama.create({ model: "new", from: model }), is(501, "/api/create"));
    await assert.rejects(ollama.embed({ model, input: "x" }), is(501, "embeddings"));
  },
});
