// The unmodified packages of OpenAI and Anthropic for JavaScript, on /v1/responses and /v1/messages, against a running router
// whose workers answer by agents/rules.json. Run by agents_test.py.
//
// usage: agents_client.mjs NODE_MODULES BASE_URL MODEL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runAll } from "./checks.mjs";

const [modules, baseURL, model] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { OpenAI } = require("openai");
const { Anthropic } = require("@anthropic-ai/sdk");
const openai = new OpenAI({ baseURL: baseURL + "/v1", apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const anthropic = new Anthropic({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const question = [{ role: "user", content: "What is the weather in Paris?" }];
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "array" } }, required: ["city"] };

await runAll("agents.js", {
  async responses_accumulate_to_the_whole() {
    const tools = [{ type: "function", name: "get_weather", parameters, strict: false }];
    const whole = await openai.responses.create({ model, input: question, tools });
    const stream = openai.responses.stream({ model, input: question, tools });
    let last = -1;
    for await (const event of stream) assert.equal(event.sequence_number, ++last);
    const final = await stream.finalResponse();
    assert.equal(final.output_text, whole.output_text);
    assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message", "function_call", "function_call"]);
    assert.equal(final.output[2].arguments, whole.output[2].arguments);
    assert.deepEqual(JSON.parse(final.output[2].arguments), { city: "Paris", days: [1, 2] });
  },
  async messages_accumulate_to_the_whole() {
    const tools = [{ name: "get_weather", input_schema: parameters }];
    const asked = { model, max_tokens: 200, messages: question, tools, seed: 7 };  // the ids of calls derive from it
    const whole = await anthropic.messages.create(asked);
    const stream = anthropic.messages.stream(asked);
    const inputs = [];
    stream.on("contentBlock", (block) => block.type === "tool_use" && inputs.push(block.input));
    const final = await stream.finalMessage();
    assert.deepEqual(final.content, whole.content);
    assert.deepEqual(inputs, [{ city: "Paris", days: [1, 2] }, {}]);
    assert.equal(final.stop_reason, "tool_use");
  },
  async a_stream_can_be_left() {
    const stream = anthropic.messages.stream({ model, max_tokens: 200, messages: [{ role: "user", content: "Tell me a story" }] });
    for await (const event of stream) if (event.type === "content_block_delta") break;
    assert(stream.controller.signal.aborted);
  },
  async errors_are_their_own() {
    await assert.rejects(anthropic.messages.create({ model: "no", max_tokens: 1, messages: question }), Anthropic.NotFoundError);
    await assert.rejects(openai.responses.retrieve("resp_1"), OpenAI.NotFoundError);
  },
});
