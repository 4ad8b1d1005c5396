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
// gone: `exchange` is cleared then, and `cancelled` true, which stops work that has not ended.
template <class Body>
struct TextJob {
  HttpServices& services;
  Exchange* exchange;
  std::string request_id;
  std::shared_ptr<const TenantProfile> tenant;
  std::string text;
  std::shared_ptr<const MemoryHold> hold;
  MemoryHold read;  // what is made of the text
  Body body = {};
  std::optional<ApiError> problem = {};
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);

  TextAsk By() { return {std::move(body.model), tenant, cancelled}; }
};

template <class Body>
class TextCall final : public Call {
 public:
  explicit TextCall(std::shared_ptr<TextJob<Body>> job) : job_(std::move(job)) {}
  ~TextCall() override {
    job_->exchange = nullptr;
    *job_->cancelled = true;
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

void Ask(const std::shared_ptr<TextJob<TokenizeBody>>& job) {
  TokenizeBody& body = job->body;
  TokenizeAsk ask{job->By(), std::move(body.prompt), body.return_token_strings};
  job->read.Resize(0);  // from here on the pipeline counts it
  job->services.pipeline.Tokenize(std::move(ask), [job](const Result<TokenizeResult>& result) {
    if (job->exchange == nullptr) return;
    job->exchange->Reply(result.ok()
                             ? TokenizeResponse(result.value(), job->body.return_token_strings)
                             : ErrorResponse(result.error()));
  });
}

void Ask(const std::shared_ptr<TextJob<DetokenizeBody>>& job) {
  TextAsk by = job->By();
  job->read.Resize(0);
  job->services.pipeline.Detokenize(std::move(by), std::move(job->body.ids),
                                    [job](const Result<std::string>& text) {
                                      if (job->exchange == nullptr) return;
                                      if (!text.ok())
                                        return job->exchange->Reply(ErrorResponse(text.error()));
                                      HttpResponse response;
                                      response.body = "{\"prompt\":";
                                      json::AppendQuoted(text.value(), response.body);
                                      response.body += '}';
                                      job->exchange->Reply(std::move(response));
                                    });
}

template <class Body>
RequestLimits LimitsOf(TextJob<Body>& job) {
  RequestLimits limits = job.services.request_limits;
  limits.hold = &job.read;
  return limits;
}
void Parse(TextJob<TokenizeBody>& job) {
  job.problem = ParseTokenizeBody(job.text, job.body, LimitsOf(job));
}
void Parse(TextJob<DetokenizeBody>& job) {
  job.problem = ParseDetokenizeBody(job.text, job.body, LimitsOf(job));
}

template <class Body>
void Parsed(const std::shared_ptr<TextJob<Body>>& job) {
  if (job->exchange == nullptr) return;
  if (job->problem) {
    CountRefusal(job->services, *job->problem);
    return job->exchange->Reply(ErrorResponse(*job->problem));
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
  auto account = services.pipeline.MemoryOf(request.tenant.get());
  std::shared_ptr<TextJob<Body>> job(new TextJob<Body>{
      services, &exchange, std::move(request.request_id), std::move(request.tenant),
      std::move(request.body), std::move(request.hold), MemoryHold(std::move(account))});
  auto call = std::make_unique<TextCall<Body>>(job);
  if (job->text.size() <= services.limits.background_parse_bytes) {
    Parse(*job);
    Parsed(job);
    return call;
  }
  const WorkShare share{NameOf(job->tenant), job->text.size(), job->cancelled};
  if (!services.background.RunFor(
          share, [job] { Parse(*job); }, [job] { Parsed(job); })) {
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
