// The unmodified @grpc/grpc-js, with the protos of this tree, against a running router. Run by conformance_test.py.
//
// usage: grpc_client.mjs NODE_MODULES HOST:PORT MODEL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { runAll } from "./checks.mjs";

const [modules, target, model] = process.argv.slice(2);
const require = createRequire(modules + "/");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const protos = fileURLToPath(new URL("../../proto", import.meta.url));
const load = (file) =>
  grpc.loadPackageDefinition(
    loader.loadSync(file, { includeDirs: [protos], keepCase: true, longs: Number, defaults: true, oneofs: true }));
const credentials = grpc.credentials.createInsecure();
const open = new (load("inference/open_inference.proto").inference.GRPCInferenceService)(target, credentials);
const own = new (load("quire/v1/inference.proto").quire.v1.Inference)(target, credentials);
const unary = (method, request) =>
  new Promise((done, fail) => open[method](request, (error, answer) => (error ? fail(error) : done(answer))));

function request(id, maxTokens, extra = {}) {
  return {
    model_name: model,
    id,
    inputs: [{ name: "text_input", datatype: "BYTES", shape: [1],
               contents: { bytes_contents: [Buffer.from("Once upon a time")] } }],
    parameters: { max_tokens: { int64_param: maxTokens }, temperature: { double_param: 0 },
                  ignore_eos: { bool_param: true }, binary_data_output: { bool_param: false }, ...extra },
  };
}

const output = (answer, name) => answer.outputs.find((one) => one.name === name)?.contents;

await runAll("grpc-js", {
  async health_and_metadata() {
    assert((await unary("ServerReady", {})).ready);
    assert((await unary("ModelReady", { name: model })).ready);
    const config = (await unary("ModelConfig", { name: model })).config;
    assert(config.model_transaction_policy.decoupled);
  },
  async streams_of_the_open_protocol() {
    const whole = await unary("ModelInfer", request("w", 6));
    const call = open.ModelStreamInfer();
    const ids = {}, errors = {};
    for (const [id, count] of [["a", 6], ["b", 9]]) call.write(request(id, count));
    call.write(request("c", -1));
    call.end();
    for await (const { error_message, infer_response } of call) {
      if (error_message) errors[infer_response.id] = error_message;
      else (ids[infer_response.id] ??= []).push(...output(infer_response, "output_ids").int_contents);
    }
    assert.deepEqual(ids.a, output(whole, "output_ids").int_contents);
    assert.equal(ids.b.length, 9);
    assert.match(errors.c, /max_tokens/);
  },
  async streams_of_our_own() {
    const call = own.Generate({ model, text: "Once upon a time", sampling: { max_tokens: 6, temperature: 0 } });
    let text = "", done = null;
    for await (const message of call) {
      text += message.delta?.text ?? "";
      done = message.done ?? done;
    }
    assert(text.length > 0);
    assert.equal(done.finish_reason, "length");
  },
  async a_cancelled_call_ends() {
    const call = open.ModelStreamInfer();
    call.write(request("long", 1500));
    const code = await new Promise((done) => {
      call.once("data", () => call.cancel());
      call.on("error", (error) => done(error.code));
    });
    assert.equal(code, grpc.status.CANCELLED);
  },
});
