// OpenAI's package for JavaScript and Vercel's, and tools of chats: what they accumulate and parse of a model of random
// weights that is held to calls. Run by agents_test.py with the pinned packages.
//
// usage: tools_client.mjs NODE_MODULES BASE_URL MODEL AI_MODULES
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { runAll } from "./checks.mjs";

const [modules, baseURL, model, aiModules] = process.argv.slice(2);
const { OpenAI } = createRequire(modules + "/")("openai");
const resolve = createRequire(aiModules + "/").resolve;
const { generateText, streamText, tool, stepCountIs } = await import(pathToFileURL(resolve("ai")));
const { createOpenAICompatible } = await import(pathToFileURL(resolve("@ai-sdk/openai-compatible")));
const { z } = await import(pathToFileURL(resolve("zod")));

const client = new OpenAI({ baseURL: baseURL + "/v1", apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const parameters = { type: "object", additionalProperties: false, required: ["city", "days"],
  properties: { city: { enum: ["Paris", "Ulm"] }, days: { type: "integer", minimum: 1, maximum: 9 } } };
const tools = [{ type: "function", function: { name: "get_weather", parameters, strict: true } }];
// Random weights never end a thought by themselves.
const asked = { model, tools, tool_choice: "required", seed: 7, max_tokens: 300, thinking_token_budget: 4,
  messages: [{ role: "user", content: "What is the weather?" }] };
const fits = (input) => ["Paris", "Ulm"].includes(input.city) && input.days >= 1 && input.days <= 9;

const provider = createOpenAICompatible({ name: "quire", baseURL: baseURL + "/v1",
  fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), thinking_token_budget: 4 }) }) });
const weather = () => ({ get_weather: tool({ description: "The weather.", execute: async () => "12 degrees",
  inputSchema: z.object({ city: z.enum(["Paris", "Ulm"]), days: z.number().int().min(1).max(9) }) }) });
const vercel = { model: provider(model), prompt: "What is the weather?", toolChoice: "required", seed: 7, maxOutputTokens: 300, maxRetries: 0 };

await runAll("tools.js", {
  async openai_parses_the_calls() {
    const { choices: [choice] } = await client.chat.completions.parse(asked);
    assert.equal(choice.finish_reason, "tool_calls");
    assert(choice.message.tool_calls.length > 0);
    for (const call of choice.message.tool_calls) assert(fits(call.function.parsed_arguments), call.function.arguments);
  },
  async openai_accumulates_to_the_whole() {
    const whole = await client.chat.completions.create(asked);
    const stream = client.chat.completions.stream(asked);
    const done = [];
    stream.on("tool_calls.function.arguments.done", (event) => done.push(event.arguments));
    const final = await stream.finalChatCompletion();
    const calls = (answer) => answer.choices[0].message.tool_calls.map((call) => [call.id, call.function.name, call.function.arguments]);
    assert.deepEqual(calls(final), calls(whole));
    assert.deepEqual(done, calls(whole).map(([, , text]) => text));
    assert.equal(final.choices[0].finish_reason, "tool_calls");
  },
  async vercel_calls_tools_and_sends_results_back() {
    const { steps } = await generateText({ ...vercel, tools: weather(), stopWhen: stepCountIs(2) });
    assert.equal(steps.length, 2);
    for (const step of steps) {
      assert.equal(step.finishReason, "tool-calls");
      assert(step.toolCalls.length > 0 && step.toolCalls.every((call) => !call.invalid && fits(call.input)), JSON.stringify(step.toolCalls));
      assert.equal(step.toolResults.length, step.toolCalls.length);
    }
  },
  async vercel_streams_what_it_generates() {
    const whole = await generateText({ ...vercel, tools: weather() });
    const stream = streamText({ ...vercel, tools: weather() });
    const inputs = {};
    for await (const part of stream.fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      if (part.type === "tool-input-delta") inputs[part.id] = (inputs[part.id] ?? "") + part.delta;
    }
    const calls = await stream.toolCalls;
    assert.deepEqual(calls.map((call) => call.input), whole.toolCalls.map((call) => call.input));
    assert.deepEqual(Object.values(inputs).map((text) => JSON.parse(text)), calls.map((call) => call.input));
  },
});
