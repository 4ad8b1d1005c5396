#include "router/http/tokenize_call.h"

#include "common/json/json.h"
#include "router/http/api_request.h"
#include "router/http/errors.h"
#include "router/http/routes.h"

namespace quire {
namespace {

// The pipeline's answer may come after the client has gone: `exchange` is cleared then.
struct Waiting {
  Exchange* exchange;
};

class TextCall final : public Call {
 public:
  explicit TextCall(std::shared_ptr<Waiting> waiting) : waiting_(std::move(waiting)) {}
  ~TextCall() override { waiting_->exchange = nullptr; }

 private:
  std::shared_ptr<Waiting> waiting_;
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

}  // namespace

std::unique_ptr<Call> BeginTokenize(HttpServices& services, HttpRequest request,
                                    Exchange& exchange) {
  TokenizeBody body;
  if (auto problem = ParseTokenizeBody(request.body, body)) {
    exchange.Reply(ErrorResponse(*problem));
    return nullptr;
  }
  CountUnknownFields(services, request.request_id, body.unknown_fields);
  auto waiting = std::make_shared<Waiting>(&exchange);
  services.pipeline.Tokenize(
      body.model, std::move(body.prompt),
      [waiting, strings = body.return_token_strings](absl::StatusOr<TokenizeResult> result) {
        if (!waiting->exchange) return;
        waiting->exchange->Reply(result.ok() ? TokenizeResponse(*result, strings)
                                             : ErrorResponse(ErrorFromStatus(result.status())));
      });
  return std::make_unique<TextCall>(std::move(waiting));
}

std::unique_ptr<Call> BeginDetokenize(HttpServices& services, HttpRequest request,
                                      Exchange& exchange) {
  DetokenizeBody body;
  if (auto problem = ParseDetokenizeBody(request.body, body)) {
    exchange.Reply(ErrorResponse(*problem));
    return nullptr;
  }
  CountUnknownFields(services, request.request_id, body.unknown_fields);
  auto waiting = std::make_shared<Waiting>(&exchange);
  services.pipeline.Detokenize(
      body.model, std::move(body.ids), [waiting](absl::StatusOr<std::string> text) {
        if (!waiting->exchange) return;
        if (!text.ok()) {
          waiting->exchange->Reply(ErrorResponse(ErrorFromStatus(text.status())));
          return;
        }
        HttpResponse response;
        response.body = "{\"prompt\":";
        json::AppendQuoted(*text, response.body);
        response.body += '}';
        waiting->exchange->Reply(std::move(response));
      });
  return std::make_unique<TextCall>(std::move(waiting));
}

}  // namespace quire
