#include "router/http/tokenize_call.h"

#include <atomic>
#include <memory>
#include <optional>

#include "common/json/json.h"
#include "router/http/api_request.h"
#include "router/http/errors.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

// One request; what it waits for (a parse off the loop, the pipeline) may end after the client has
// gone: `exchange` is cleared then, and `wanted` false, which stops a parse that has not begun.
template <class Body>
struct TextJob {
  HttpServices& services;
  Exchange* exchange;
  std::string request_id;
  std::shared_ptr<const TenantProfile> tenant;
  std::string text;
  std::shared_ptr<const MemoryHold> hold;
  Body body = {};
  std::optional<ApiError> problem = {};
  std::shared_ptr<std::atomic<bool>> wanted = std::make_shared<std::atomic<bool>>(true);
};

template <class Body>
class TextCall final : public Call {
 public:
  explicit TextCall(std::shared_ptr<TextJob<Body>> job) : job_(std::move(job)) {}
  ~TextCall() override {
    job_->exchange = nullptr;
    *job_->wanted = false;
  }

 private:
  std::shared_ptr<TextJob<Body>> job_;
};

HttpResponse TokenizeResponse(const TokenizeResult& result, bool with_strings) {
  HttpResponse response;
  std::string& out = response.body;
  out = "{\"count\":" + std::to_string(result.ids.size()) +
        ",\"max_model_len\":" + std::to_string(result.max_model_len) + ",\"tokens\":[";
  for (size_t i = 0; i < result.ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(result.ids[i]);
  }
  out += "],\"token_strs\":";
  if (with_strings) {
    out += '[';
    for (size_t i = 0; i < result.pieces.size(); ++i) {
      if (i > 0) out += ',';
      json::AppendQuoted(result.pieces[i], out);
    }
    out += "]}";
  } else {
    out += "null}";
  }
  return response;
}

void Reply(Exchange* exchange, const absl::StatusOr<TokenizeResult>& result, bool with_strings) {
  if (exchange == nullptr) return;
  exchange->Reply(result.ok() ? TokenizeResponse(*result, with_strings)
                              : ErrorResponse(ErrorFromStatus(result.status())));
}

void Ask(const std::shared_ptr<TextJob<TokenizeBody>>& job) {
  TokenizeBody& body = job->body;
  job->services.pipeline.Tokenize(body.model, std::move(body.prompt),
                                  [job](const absl::StatusOr<TokenizeResult>& result) {
                                    Reply(job->exchange, result, job->body.return_token_strings);
                                  });
}

void Ask(const std::shared_ptr<TextJob<DetokenizeBody>>& job) {
  DetokenizeBody& body = job->body;
  job->services.pipeline.Detokenize(
      body.model, std::move(body.ids), [job](const absl::StatusOr<std::string>& text) {
        if (job->exchange == nullptr) return;
        if (!text.ok()) {
          job->exchange->Reply(ErrorResponse(ErrorFromStatus(text.status())));
          return;
        }
        HttpResponse response;
        response.body = "{\"prompt\":";
        json::AppendQuoted(*text, response.body);
        response.body += '}';
        job->exchange->Reply(std::move(response));
      });
}

void Parse(TextJob<TokenizeBody>& job) {
  job.problem = ParseTokenizeBody(job.text, job.body, job.services.request_limits);
}
void Parse(TextJob<DetokenizeBody>& job) {
  job.problem = ParseDetokenizeBody(job.text, job.body, job.services.request_limits);
}

template <class Body>
void Parsed(const std::shared_ptr<TextJob<Body>>& job) {
  if (job->exchange == nullptr) return;
  if (job->problem) {
    job->exchange->Reply(ErrorResponse(*job->problem));
    return;
  }
  job->text.clear();
  job->text.shrink_to_fit();
  job->hold.reset();
  if (NarrowsModels(job->tenant)) {
    const auto forbidden =
        CheckModelAccess(job->services.pipeline.Models(), job->tenant.get(), job->body.model);
    if (forbidden) return job->exchange->Reply(ErrorResponse(*forbidden));
  }
  CountUnknownFields(job->services, job->request_id, {}, job->body.unknown_fields);
  Ask(job);
}

template <class Body>
std::unique_ptr<Call> Begin(HttpServices& services, HttpRequest request, Exchange& exchange) {
  auto job = std::make_shared<TextJob<Body>>(
      TextJob<Body>{services, &exchange, std::move(request.request_id), std::move(request.tenant),
                    std::move(request.body), std::move(request.hold)});
  auto call = std::make_unique<TextCall<Body>>(job);
  if (job->text.size() <= services.limits.background_parse_bytes) {
    Parse(*job);
    Parsed(job);
  } else if (!services.background.Run(
                 [job] {
                   if (*job->wanted) Parse(*job);
                 },
                 [job] { Parsed(job); })) {
    exchange.Reply(ErrorResponse(TooManyLargeRequests()));
  }
  return call;
}

}  // namespace

std::unique_ptr<Call> BeginTokenize(HttpServices& services, HttpRequest request,
                                    Exchange& exchange) {
  return Begin<TokenizeBody>(services, std::move(request), exchange);
}

std::unique_ptr<Call> BeginDetokenize(HttpServices& services, HttpRequest request,
                                      Exchange& exchange) {
  return Begin<DetokenizeBody>(services, std::move(request), exchange);
}

}  // namespace quire
