#include "router/http/tokenize_call.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "common/json/json.h"
#include "router/http/api_request.h"
#include "router/http/errors.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

// Of an answer, about: an id with its comma, and the same with its text in quotes.
constexpr size_t kBytesPerId = 6, kBytesPerString = 14;

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

std::string JsonOf(const TokenizeResult& result, bool with_strings) {
  std::string out = "{\"count\":" + std::to_string(result.ids.size()) +
                    ",\"max_model_len\":" + std::to_string(result.max_model_len) + ",\"tokens\":[";
  for (size_t i = 0; i < result.ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(result.ids[i]);
  }
  out += "],\"token_strs\":";
  if (!with_strings) return out + "null}";
  out += '[';
  for (size_t i = 0; i < result.pieces.size(); ++i) {
    if (i > 0) out += ',';
    json::AppendQuoted(result.pieces[i], out);
  }
  return out + "]}";
}

std::string JsonOf(const std::string& text) {
  std::string out = "{\"prompt\":";
  json::AppendQuoted(text, out);
  return out + '}';
}

// Writes an answer of about so many bytes, off the loop where it is large: no turn of the loop
// writes megabytes for one client. `write` holds what is written, and is gone with it.
template <class Body>
void ReplyWritten(const std::shared_ptr<TextJob<Body>>& job, size_t bytes,
                  std::function<std::string()> write) {
  HttpServices& services = job->services;
  if (bytes <= services.limits.background_write_bytes) {
    HttpResponse response;
    response.body = write();
    return job->exchange->Reply(std::move(response));
  }
  auto response = std::make_shared<HttpResponse>();
  auto work = [response, write = std::move(write)]() mutable {
    response->body = write();
    write = nullptr;
  };
  const auto done = [job, response] {
    if (job->exchange != nullptr) job->exchange->Reply(std::move(*response));
  };
  const WorkShare share{NameOf(job->tenant), bytes, job->cancelled};
  if (services.background.RunFor(share, std::move(work), done)) return;
  job->exchange->Reply(ErrorResponse(TooManyLargeRequests()));
}

void Ask(const std::shared_ptr<TextJob<TokenizeBody>>& job) {
  TokenizeBody& body = job->body;
  TokenizeAsk ask{job->By(), std::move(body.prompt), body.return_token_strings};
  job->read.Resize(0);  // from here on the pipeline counts it
  job->services.pipeline.Tokenize(std::move(ask), [job](Result<TokenizeResult> result) {
    if (job->exchange == nullptr) return;
    if (!result.ok()) return job->exchange->Reply(ErrorResponse(result.error()));
    const bool strings = job->body.return_token_strings;
    const size_t bytes = result.value().ids.size() * (strings ? kBytesPerString : kBytesPerId);
    auto held = std::make_shared<TokenizeResult>(std::move(result.value()));
    ReplyWritten(job, bytes, [held, strings] { return JsonOf(*held, strings); });
  });
}

void Ask(const std::shared_ptr<TextJob<DetokenizeBody>>& job) {
  TextAsk by = job->By();
  job->read.Resize(0);
  const auto done = [job](Result<std::string> text) {
    if (job->exchange == nullptr) return;
    if (!text.ok()) return job->exchange->Reply(ErrorResponse(text.error()));
    auto held = std::make_shared<std::string>(std::move(text.value()));
    ReplyWritten(job, held->size(), [held] { return JsonOf(*held); });
  };
  job->services.pipeline.Detokenize(std::move(by), std::move(job->body.ids), done);
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
  if (job->problem) return job->exchange->Reply(ErrorResponse(*job->problem));
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
