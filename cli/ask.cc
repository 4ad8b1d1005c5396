#include "cli/ask.h"

#include <cstdio>

#include "cli/format.h"

namespace quire::cli {

// The server's own sentence about the error.
std::string ErrorOf(const std::string& body, int status) {
  const auto value = json::Parse(body);
  if (value.ok() && value->is_object()) {
    const json::Value* error = json::Find(value->get_object(), "error");
    if (error != nullptr && error->is_object()) {
      const json::Value* message = json::Find(error->get_object(), "message");
      if (message != nullptr && message->is_string()) {
        const std::string hint =
            status == 401 ? "; give it with --api-key, QUIRE_API_KEY or OPENAI_API_KEY" : "";
        return std::string(json::View(message->get_string())) + hint;
      }
    }
  }
  return "the server answered with status " + std::to_string(status);
}

void TakeKey(const config::Environment& environment, AskOptions& options) {
  const auto found = environment.find("OPENAI_API_KEY");
  if (options.api_key.empty() && found != environment.end()) options.api_key = found->second;
}

void AddServerFlags(AskOptions& options, config::Schema& schema, const char* default_url) {
  schema.Add({.name = "url",
              .help = "The server, as https://HOST:PORT where it speaks TLS.",
              .target = &options.url,
              .default_text = default_url});
  schema.Add({.name = "api-key",
              .help = "Sent as a bearer token. Better in the environment, where other users do not "
                      "see it: QUIRE_API_KEY or OPENAI_API_KEY.",
              .target = &options.api_key,
              .default_text = "none",
              .secret = true});
  schema.Add({.name = "cacert",
              .help = "PEM file with the authority of the server's certificate.",
              .target = &options.authorities,
              .value_name = "FILE",
              .default_text = "those that the system trusts"});
}

absl::StatusOr<client::Url> ServerOf(const AskOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(client::Url url, client::ParseUrl(options.url));
  url.authorities = options.authorities;
  return url;
}

absl::StatusOr<std::vector<ServedName>> ServedNames(const AskOptions& options,
                                                    const std::atomic<bool>& cancelled) {
  QUIRE_ASSIGN_OR_RETURN(const client::Url url, ServerOf(options));
  client::HttpRequest request;
  request.path = "/v1/models";
  request.api_key = options.api_key;
  QUIRE_ASSIGN_OR_RETURN(
      const client::HttpAnswer answer,
      client::Exchange(url, request, cancelled, [](std::string_view) { return true; }));
  if (answer.status != 200) {
    return absl::UnavailableError(AbslView(ErrorOf(answer.body, answer.status)));
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(answer.body));
  std::vector<ServedName> names;
  const json::Object* object = value.if_object();
  const json::Value* data = object == nullptr ? nullptr : json::Find(*object, "data");
  if (data == nullptr || !data->is_array()) return names;
  for (const json::Value& entry : data->get_array()) {
    const json::Object* model = entry.if_object();
    const json::Value* id = model == nullptr ? nullptr : json::Find(*model, "id");
    if (id == nullptr || !id->is_string()) continue;
    names.push_back({std::string(json::View(id->get_string())), ""});
    const json::Value* problem = json::Find(*model, "chat_problem");
    if (problem != nullptr && problem->is_string()) {
      names.back().chat_problem = json::View(problem->get_string());
    }
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> ServedModels(const AskOptions& options,
                                                      const std::atomic<bool>& cancelled) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ServedName> served, ServedNames(options, cancelled));
  std::vector<std::string> names;
  for (const ServedName& one : served) names.push_back(one.name);
  return names;
}

absl::StatusOr<std::string> FirstModel(const AskOptions& options,
                                       const std::atomic<bool>& cancelled) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ServedModels(options, cancelled));
  if (!names.empty()) return names.front();
  return absl::UnavailableError("the server lists no model; is a worker ready?");
}

void SetSampling(const AskOptions& options, json::Object& body) {
  if (options.temperature >= 0) body["temperature"] = options.temperature;
  if (options.top_p >= 0) body["top_p"] = options.top_p;
  if (options.max_tokens > 0) body["max_tokens"] = options.max_tokens;
  if (options.seed >= 0) body["seed"] = options.seed;
}

absl::Status Ask(const AskOptions& options, const std::string& path, const json::Object& body,
                 const std::atomic<bool>& cancelled, AnswerText& answer) {
  QUIRE_ASSIGN_OR_RETURN(const client::Url url, ServerOf(options));
  client::HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.body = json::Serialize(body);
  request.api_key = options.api_key;
  bool done = false;
  absl::Status failed;
  const auto on_event = [&](std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return false;
    }
    const auto value = json::Parse(data);
    if (!value.ok() || !value->is_object()) return true;
    if (json::Find(value->get_object(), "error") != nullptr) {
      failed = absl::InternalError(AbslView(ErrorOf(std::string(data), 200)));
      return false;
    }
    answer.Add(value->get_object());
    return true;
  };
  const absl::StatusOr<client::HttpAnswer> reply =
      client::Exchange(url, request, cancelled, on_event);
  answer.Finish();
  QUIRE_RETURN_IF_ERROR(reply.status());
  QUIRE_RETURN_IF_ERROR(failed);
  if (reply->status != 200 && !done) return InvalidArgument(ErrorOf(reply->body, reply->status));
  if (!done) return absl::UnavailableError("the answer ended without its last word");
  return absl::OkStatus();
}

}  // namespace quire::cli
