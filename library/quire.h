// libquire: a model in the caller's process, as the server answers with it, and no server.
//
// A program links libquire.so, or loads it, and calls:
//
//   uint64_t engine, request;
//   char* events;
//   if (quire_engine_create("{\"model\": \"/models/llama\"}", &engine) != QUIRE_OK) fail();
//   quire_engine_submit(engine, "{\"prompt\": \"Once upon a time\"}", 0, &request);
//   while (quire_engine_poll(engine, 1000, &events) == QUIRE_OK) {
//     read(events);  // until the one with "done" or "error"
//     quire_free(events);
//   }
//   quire_engine_destroy(engine);
//
// Texts are UTF-8 and end with a zero byte; requests, options and events are JSON.
//
// Threads. Every function may be called on any thread, and several may run at once. An engine has
// threads of its own; none of them calls back into the program. What quire_engine_destroy ends, the
// other functions report as QUIRE_GONE, also those that wait at that moment.
//
// Errors. A function that can fail returns a status. Where it is not QUIRE_OK, quire_last_error
// says what, where, why and what would work, and no result has been written. No exception leaves
// the library. It installs no signal handlers and never ends the process for bad input. Destroy
// engines before the process exits.
//
// Fork. A child of fork has none of its parent's threads: there, an engine of the parent is
// QUIRE_GONE. The child may create engines of its own.
//
// Stability. Functions, constants and the members of events stay; later versions add some.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_API __attribute__((visibility("default")))

// Raised when something is added.
#define QUIRE_ABI_VERSION 1

typedef enum quire_status {
  QUIRE_OK = 0,
  QUIRE_INVALID = 1,   // an argument, an option or a field is wrong: the same call fails again
  QUIRE_NO_MODEL = 2,  // the model cannot be loaded
  QUIRE_GONE = 3,      // there is no such engine: destroyed, or of a process before fork
  QUIRE_FULL = 4,      // as many requests are under way as may be: take events first
  QUIRE_FAILED = 5     // the machine failed: no memory, no threads
} quire_status;

// Flags of quire_engine_submit, to be joined by |.
#define QUIRE_STREAM 1u  // events as the text comes, not one at the end
#define QUIRE_RAW 2u     // the text of a chat stays whole, with its thoughts and tool calls

// Requests of one engine that are under way at once; one more is QUIRE_FULL.
#define QUIRE_MAX_REQUESTS 4096

// Bytes of all requests under way at once; past that, one more is QUIRE_FULL.
#define QUIRE_MAX_REQUESTS_BYTES (64u << 20)

// Bytes of a request, of options, or of a text to tokenise.
#define QUIRE_MAX_INPUT_BYTES (32u << 20)

// QUIRE_ABI_VERSION of the library that is loaded.
QUIRE_API int quire_abi_version(void);

// The version of Quire, such as "0.1.0". Static memory.
QUIRE_API const char* quire_version(void);

// Why the last call on this thread failed, in one line; "" where none has. Valid until the next
// call on this thread.
QUIRE_API const char* quire_last_error(void);

// Loads a model, which takes a while, and writes a handle that is never 0.
//
// `options` is an object. "model" is a folder or a .gguf file. Every other member is a flag of
// quire-worker that has a meaning without a network, by its name with - or _: "max_model_len",
// "max_num_seqs", "kv_cache_dtype", "threads", "chat_template", "log_level" and so on; a value is a
// number, a text, a boolean, or a list of them. Computes on the CPU.
QUIRE_API quire_status quire_engine_create(const char* options, uint64_t* engine);

// Ends all requests of the engine and frees all that it has, after the step that runs. 0 and a
// handle that is gone are QUIRE_GONE.
QUIRE_API quire_status quire_engine_destroy(uint64_t engine);

// What the engine serves, as an object: "model_id", "name", "max_model_len", "vocab_size",
// "eos_token_ids", "chat_problem" ("" where the model chats) and "generation", the sampling
// defaults of the model. To be freed by quire_free.
QUIRE_API quire_status quire_engine_info(uint64_t engine, char** info);

// Starts a request and writes its number, which is never 0 and never used again.
//
// `request` is the body of /v1/completions, with one "prompt", a text or a list of token ids; or
// that of /v1/chat/completions, with "messages". docs/reference/api.md lists the fields. "model"
// may be left out, "stream" is said by `flags`. A field that is not known is QUIRE_INVALID, as is
// what the server answers with 400 before it looks at the model; what is found later comes as an
// event.
QUIRE_API quire_status quire_engine_submit(uint64_t engine, const char* request, unsigned flags,
                                           uint64_t* number);

// Gives a request up: its work ends within a step. Its last event is an error with the code
// "cancelled", unless it was over before. A number that is not under way is QUIRE_OK.
QUIRE_API quire_status quire_engine_cancel(uint64_t engine, uint64_t number);

// Waits up to `timeout_ms` (negative: as long as it takes) for events, and writes all that are
// there as a list, which is empty after the timeout. Each event is given once, those of a request
// in order. To be freed by quire_free.
//
// Each has "request", its number, and "event":
//   "start"  once, first, of a stream: "prompt_token_ids", "seed" and, where the request has
//            prompt_logprobs, "prompt_logprobs": a list with null for the first token
//   "delta"  of a stream: "index" of the choice, "text", "reasoning", "tool_calls", "token_ids"
//            and, where the request has logprobs, "logprobs"; text may lag behind the ids
//   "end"    of a choice of a stream: "index", "finish_reason" ("stop", "length", "tool_calls") and
//            "stop_reason", the text or the id that ended it, or null
//   "done"   the last event of a request: "usage" with "prompt_tokens", "completion_tokens",
//            "cached_tokens". Where it is no stream also the members of "start", and "outputs": a
//            list with the members of "delta" and "end" for each choice
//   "error"  the last event of a request that failed: "error", the object that the server answers
//            with: "message", "type", "param" (the field to blame, or null) and "code"
// A logprob is {"id", "token", "logprob", "rank", "top"}: rank is 0 where it is not known, top is a
// list of {"id", "token", "logprob"}, best first.
//
// A stream whose events are not taken is paused after some hundred tokens; it loses none.
QUIRE_API quire_status quire_engine_poll(uint64_t engine, int timeout_ms, char** events);

// The token ids of a text, as a list. `request` is an object with "prompt", a text, and perhaps
// "add_special_tokens" (true), or with "messages" as /tokenize takes them. To be freed by
// quire_free.
QUIRE_API quire_status quire_engine_tokenize(uint64_t engine, const char* request, char** ids);

// The prompt that the model's template makes of a chat, as a text. `request` has "messages" and
// what else /tokenize takes with them. To be freed by quire_free.
QUIRE_API quire_status quire_engine_render(uint64_t engine, const char* request, char** text);

// The text of `count` token ids. To be freed by quire_free.
QUIRE_API quire_status quire_engine_detokenize(uint64_t engine, const int32_t* ids, uint64_t count,
                                               int skip_special_tokens, char** text);

// Frees what a function wrote for the caller. NULL is nothing.
QUIRE_API void quire_free(char* text);

#ifdef __cplusplus
}
#endif
