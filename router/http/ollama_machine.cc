#include "router/http/ollama_machine.h"

#include <optional>
#include <string>
#include <utility>

#include "common/status.h"
#include "router/http/errors.h"
#include "router/http/event_stream.h"
#include "router/http/ollama_routes.h"
#include "router/ollama/request.h"
#include "router/ollama/words.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;

constexpr std::string_view kSuccess = R"({"status":"success"})";
constexpr StreamForm kProgress{.content_type = "application/x-ndjson",
                               .keep_alive = "{\"status\":\"pulling manifest\"}\n",
                               .comments = false};

// Of a pull or a removal that failed.
ApiError ErrorOf(const serve::JobNews& news) {
  ApiError error{ApiCode::kInternal, news.error, "", 0};
  switch (static_cast<absl::StatusCode>(news.code)) {
    case absl::StatusCode::kInvalidArgument:
      error.code = ApiCode::kInvalidArgument;
      break;
    case absl::StatusCode::kNotFound:
      error.code = ApiCode::kNotFound;
      break;
    case absl::StatusCode::kAlreadyExists:
      error.code = ApiCode::kConflict;
      break;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      error.code = ApiCode::kPermissionDenied;
      break;
    case absl::StatusCode::kResourceExhausted:
      error.code = ApiCode::kTooLarge;
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      error.code = ApiCode::kUnavailable;
      break;
    default:
      break;
  }
  return error;
}

class OllamaPullCall final : public Call {
 public:
  OllamaPullCall(HttpServices& services, bool stream, Exchange& exchange)
      : exchange_(exchange), events_(services, exchange), stream_(stream) {
    events_.Use(kProgress);
  }

  // False: it is refused, and the answer says why.
  bool Begin(ModelControl& models, const std::string& name) {
    std::optional<ApiError> refused;
    task_ = models.Pull(
        name, [this](const serve::JobNews& news) { Heard(news); }, refused);
    if (refused) {
      exchange_.Reply(ErrorResponse(*refused));
      return false;
    }
    if (stream_) events_.BeginInTime();
    return true;
  }

 private:
  void Heard(const serve::JobNews& news) {
    if (news.done) return End(news);
    if (!stream_) return;
    Write("{\"status\":\"pulling\",\"total\":" + std::to_string(news.total) +
          ",\"completed\":" + std::to_string(news.completed) + '}');
  }
  void End(const serve::JobNews& news) {
    events_.Stop();
    const bool failed = !news.error.empty();
    if (stream_ && (events_.begun() || !failed)) {
      Write(failed ? ollama::ErrorJson(news.error) : std::string(kSuccess));
      return exchange_.EndStream();
    }
    HttpResponse response;
    response.body = kSuccess;
    exchange_.Reply(failed ? ErrorResponse(ErrorOf(news)) : std::move(response));
  }
  void Write(std::string line) {
    events_.Begin();
    line += '\n';
    events_.Write(line);
  }

  Exchange& exchange_;
  EventStream events_;
  const bool stream_;
  std::unique_ptr<ControlTask> task_;
};

class OllamaDeleteCall final : public Call {
 public:
  OllamaDeleteCall(ModelControl& models, std::string name, Exchange& exchange)
      : models_(models), name_(std::move(name)), exchange_(exchange) {
    task_ = models_.Unload(
        name_, [this, here = std::weak_ptr(here_)](const std::optional<ApiError>& error) {
          if (here.expired()) return;
          if (error) return exchange_.Reply(ErrorResponse(*error));
          Remove();
        });
  }

 private:
  void Remove() {
    std::optional<ApiError> refused;
    task_ = models_.Remove(
        name_, [this](const serve::JobNews& news) { Heard(news); }, refused);
    if (refused) exchange_.Reply(ErrorResponse(*refused));
  }
  void Heard(const serve::JobNews& news) {
    if (!news.done) return;
    HttpResponse response;
    response.body = kSuccess;
    exchange_.Reply(news.error.empty() ? std::move(response) : ErrorResponse(ErrorOf(news)));
  }

  ModelControl& models_;
  const std::string name_;
  Exchange& exchange_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::unique_ptr<ControlTask> task_;
};

}  // namespace

CallPtr OllamaPull(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string name;
  bool stream = true;
  std::optional<ApiError> problem = ollama::ReadModelName(request.body, name, &stream);
  if (!problem) problem = ollama::CheckPullName(name);
  if (problem) {
    exchange.Reply(ErrorResponse(*problem));
    return nullptr;
  }
  auto call = std::make_unique<OllamaPullCall>(services, stream, exchange);
  return call->Begin(*services.models, name) ? std::move(call) : nullptr;
}

CallPtr OllamaDelete(HttpServices& services, HttpRequest request, Exchange& exchange) {
  std::string name;
  if (const auto problem = ollama::ReadModelName(request.body, name)) {
    exchange.Reply(ErrorResponse(*problem));
    return nullptr;
  }
  const std::string model = services.models->MachineName(OllamaModelName(services, name));
  if (model.empty()) {
    exchange.Reply(ErrorResponse({ApiCode::kNotFound,
                                  "model \"" + name.substr(0, 256) +
                                      "\" is not on this machine; /api/tags lists those that are",
                                  "model", 0}));
    return nullptr;
  }
  return std::make_unique<OllamaDeleteCall>(*services.models, model, exchange);
}

}  // namespace quire
