#include "router/http/tokenize_call.h"

#include <functional>
#include <memory>
#include <utility>

#include "common/json/json.h"
#include "common/release.h"
#include "router/http/api_request.h"
#include "router/http/body_job.h"
#include "router/http/errors.h"
#include "router/http/routes.h"

namespace quire {
namespace {

// Estimates for an answer: an id with its comma, and the same with its text in quotes.
constexpr size_t kBytesPerId = 6, kBytesPerString = 14;

// One request; the work that it waits for (a parse off the loop, the pipeline) may end after the
// client has gone, and with it `exchange`: it is cancelled then.
template <class Body>
struct TextJob : BodyJob, std::enable_shared_from_this<TextJob<Body>> {
  TextJob(HttpServices& from, HttpRequest& request, Exchange& to)
      : BodyJob(from, request),
        services(from),
        exchange(to),
        request_id(std::move(request.request_id)),
        tenant(std::move(request.tenant)) {}
  void Parse();
  void Done();
  void Refuse(const ApiError& error) { exchange.Reply(ErrorResponse(error)); }
  std::shared_ptr<const std::atomic<bool>> Cancelled() {
    return {this->shared_from_this(), &cancelled};
  }
  TextAsk By() { return {std::move(parsed.model), tenant, Cancelled()}; }

  HttpServices& services;
  Exchange& exchange;
  const std::string request_id;
  const std::shared_ptr<const TenantProfile> tenant;
  Body parsed = {};
};

template <class Body>
class TextCall final : public Call {
 public:
  explicit TextCall(std::shared_ptr<TextJob<Body>> job) : job_(std::move(job)) {}
  ~TextCall() override { job_->cancelled = true; }

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

// Writes an answer of about this many bytes, off the loop where it is large: no turn of the loop
// writes megabytes for one client. `write` holds the data, and is destroyed with it.
template <class Body>
void ReplyWritten(const std::shared_ptr<TextJob<Body>>& job, size_t bytes,
                  std::function<std::string()> write) {
  HttpServices& services = job->services;
  if (bytes <= services.limits.background_write_bytes) {
    HttpResponse response;
    response.body = write();
    return job->exchange.Reply(std::move(response));
  }
  auto response = std::make_shared<HttpResponse>();
  auto work = [response, write = std::move(write)]() mutable {
    response->body = write();
    write = nullptr;
  };
  const auto done = [job, response] {
    if (!job->cancelled) job->exchange.Reply(std::move(*response));
  };
  const WorkShare share{NameOf(job->tenant), bytes, job->Cancelled()};
  if (services.background.RunFor(share, std::move(work), done)) return;
  job->Refuse(TooManyLargeRequests());
}

void Ask(const std::shared_ptr<TextJob<TokenizeBody>>& job) {
  TokenizeBody& body = job->parsed;
  TokenizeAsk ask{job->By(), std::move(body.prompt), body.return_token_strings};
  job->read.Resize(0);  // from here on the pipeline counts it
  job->services.pipeline.Tokenize(std::move(ask), [job](Result<TokenizeResult> result) {
    if (job->cancelled) return;
    if (!result.ok()) return job->Refuse(result.error());
    const bool strings = job->parsed.return_token_strings;
    const size_t bytes = result.value().ids.size() * (strings ? kBytesPerString : kBytesPerId);
    auto held = std::make_shared<TokenizeResult>(std::move(result.value()));
    ReplyWritten(job, bytes, [held, strings] { return JsonOf(*held, strings); });
  });
}

void Ask(const std::shared_ptr<TextJob<DetokenizeBody>>& job) {
  TextAsk by = job->By();
  job->read.Resize(0);
  const auto done = [job](Result<std::string> text) {
    if (job->cancelled) return;
    if (!text.ok()) return job->Refuse(text.error());
    auto held = std::make_shared<std::string>(std::move(text.value()));
    ReplyWritten(job, held->size(), [held] { return JsonOf(*held); });
  };
  job->services.pipeline.Detokenize(std::move(by), std::move(job->parsed.ids), done);
}

template <>
void TextJob<TokenizeBody>::Parse() {
  problem = ParseTokenizeBody(body, parsed, limits);
}
template <>
void TextJob<DetokenizeBody>::Parse() {
  problem = ParseDetokenizeBody(body, parsed, limits);
}

template <class Body>
void TextJob<Body>::Done() {
  if (!problem) problem = CheckModelAccess(services, tenant, parsed.model);
  if (problem) return Refuse(*problem);
  Release(body);
  hold.reset();
  CountUnknownFields(services, request_id, {}, parsed.unknown_fields);
  Ask(this->shared_from_this());
}

template <class Body>
std::unique_ptr<Call> Begin(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const auto job = std::make_shared<TextJob<Body>>(services, request, exchange);
  auto call = std::make_unique<TextCall<Body>>(job);
  if (!ParseBody(services, job->tenant, job)) job->Refuse(TooManyLargeRequests());
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

std::unique_ptr<Call> TokenizerInfo(HttpServices& services, HttpRequest request,
                                    Exchange& exchange) {
  constexpr std::string_view kBelow = "/tokenizer_info/";
  const std::string name =
      request.path.starts_with(kBelow) ? request.path.substr(kBelow.size()) : std::string();
  std::optional<ApiError> problem = CheckModelAccess(services, request.tenant, name);
  HttpResponse response;
  if (!problem) {
    const Result<std::shared_ptr<const ModelText>> found = services.pipeline.TextOf(name);
    if (found.ok()) {
      const std::shared_ptr<const ModelText>& text = found.value();
      response.shared_body = std::shared_ptr<const std::string>(text, &text->facts().info);
    } else {
      problem = found.error();
    }
  }
  if (problem && problem->code == ApiCode::kInvalidArgument) {
    problem->message += "; GET " + std::string(kBelow) + "NAME reads one of them";
  }
  exchange.Reply(problem ? ErrorResponse(*problem) : std::move(response));
  return nullptr;
}

}  // namespace quire
