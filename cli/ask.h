// One question to a server, its answer written as it comes: what `quire chat` and `quire complete`
// share.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/answer_text.h"
#include "common/client/http_client_asio.h"
#include "common/config/schema.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

struct AskOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string model;  // empty: the first that the server lists
  std::string api_key;
  std::string authorities;  // PEM file for https; empty: the system's
  double temperature = -1;  // negative: the model's default
  double top_p = -1;
  int64_t max_tokens = 0;  // 0: the server's default
  int64_t seed = -1;       // negative: drawn by the server
};

// The flags for the server's address and the client's key.
void AddServerFlags(AskOptions& options, config::Schema& schema, const char* default_url);
// OPENAI_API_KEY is used where no other key was given.
void TakeKey(const config::Environment& environment, AskOptions& options);

// The server's address. INVALID_ARGUMENT for an invalid URL.
absl::StatusOr<client::Url> ServerOf(const AskOptions& options);
// The sentence of an error's body, or the text of its status.
std::string ErrorOf(const std::string& body, int status);

struct ServedName {
  std::string name;
  std::string chat_problem;  // why it does not chat, and what to do; empty: it does
};
// The models that the server lists.
absl::StatusOr<std::vector<ServedName>> ServedNames(const AskOptions& options,
                                                    const std::atomic<bool>& cancelled);
// Their names.
absl::StatusOr<std::vector<std::string>> ServedModels(const AskOptions& options,
                                                      const std::atomic<bool>& cancelled);
// The first of them. UNAVAILABLE when there is none.
absl::StatusOr<std::string> FirstModel(const AskOptions& options,
                                       const std::atomic<bool>& cancelled);

// Puts the options into a request body.
void SetSampling(const AskOptions& options, json::Object& body);

// Posts `body` as a stream to `path`; `answer` shows each piece as it comes. CANCELLED when
// interrupted: `answer` then holds what came before.
absl::Status Ask(const AskOptions& options, const std::string& path, const json::Object& body,
                 const std::atomic<bool>& cancelled, AnswerText& answer);

}  // namespace quire::cli
