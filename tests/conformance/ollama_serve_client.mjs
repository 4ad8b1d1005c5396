// Ollama's own package for JavaScript, unmodified, against `quire serve`: it pulls, uses and deletes a model. Run by
// agents_test.py.
//
// usage: ollama_serve_client.mjs NODE_MODULES BASE_URL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { runAll } from "./checks.mjs";

const [modules, host] = process.argv.slice(2);
const { Ollama } = createRequire(modules + "/")("ollama");
const ollama = new Ollama({ host });

async function names() {
  return (await ollama.list()).models.map((one) => one.name);
}

await runAll("ollama_serve.js", {
  async a_model_is_pulled_used_and_deleted() {
    const model = "hf.co/org/demo";
    let last;
    for await (const part of await ollama.pull({ model, stream: true })) last = part;
    assert.equal(last.status, "success");
    assert.equal((await ollama.generate({ model, prompt: "Tell me a story", options: { num_predict: 4 } })).eval_count, 4);
    assert((await names()).includes("org/demo"));
    await ollama.delete({ model });
    assert(!(await names()).includes("org/demo"));
  },
  async a_pull_that_fails_is_an_error() {
    await assert.rejects(ollama.pull({ model: "hf:org/absent" }), (error) => error.status_code === 404);
    await assert.rejects(ollama.pull({ model: "https://127.0.0.1/m.gguf", stream: true }), (error) => error.status_code === 400);
  },
});
