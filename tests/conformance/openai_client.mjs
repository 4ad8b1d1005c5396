// The unmodified OpenAI package for JavaScript against a running router. Run by conformance_test.py with the pinned package.
//
// usage: openai_client.mjs NODE_MODULES BASE_URL MODEL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runAll } from "./checks.mjs";

const [modules, baseURL, model] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { OpenAI, BadRequestError, NotFoundError } = require("openai");
const client = new OpenAI({ baseURL: baseURL + "/v1", apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const prompt = "Once upon a time";

await runAll("openai.js", {
  async models_are_listed() {
    const ids = [];
    for await (const one of client.models.list()) ids.push(one.id);
    assert(ids.includes(model));
    assert.equal((await client.models.retrieve(model)).id, model);
    await assert.rejects(client.models.retrieve("no-such-model"), NotFoundError);
  },
  async completions_stream_what_they_answer() {
    const asked = { model, prompt, max_tokens: 8, temperature: 0 };
    const whole = await client.completions.create(asked);
    assert.equal(whole.usage.completion_tokens, 8);
    let text = "", reason = null;
    for await (const chunk of await client.completions.create({ ...asked, stream: true })) {
      text += chunk.choices[0].text;
      reason = chunk.choices[0].finish_reason ?? reason;
    }
    assert.equal(text, whole.choices[0].text);
    assert.equal(reason, "length");
  },
  async chats_stream_with_their_usage() {
    const messages = [{ role: "user", content: "Tell me a story." }];
    const asked = { model, messages, max_completion_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 2 };
    const whole = await client.chat.completions.create(asked);
    assert.equal(whole.choices[0].logprobs.content.length, whole.usage.completion_tokens);
    let text = "", usage = null;
    const stream = await client.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  },
  async a_stream_can_be_left() {
    const stream = await client.completions.create({ model, prompt, max_tokens: 1500, ignore_eos: true, stream: true });
    for await (const chunk of stream) {
      assert(chunk.choices);
      break;
    }
    assert(stream.controller.signal.aborted);
  },
  async bad_requests_name_their_field() {
    const refused = client.completions.create({ model, prompt, temperature: -1 });
    await assert.rejects(refused, (error) => error instanceof BadRequestError && error.param === "temperature");
  },
});
