// Fuzzes the bodies of the HTTP API: what is accepted must be within the promised bounds, what is
// refused must say why in one line. The first byte picks the reader.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/json/json.h"
#include "router/core/sampling_checks.h"
#include "router/http/api_request.h"
#include "router/http/routes.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckProblem(const std::optional<quire::ApiError>& problem) {
  Require(!problem->message.empty());
  Require(problem->code == quire::ApiCode::kInvalidArgument);
}

void CheckPrompt(const quire::Prompt& prompt) {
  if (const auto* ids = std::get_if<quire::TokenPrompt>(&prompt)) {
    for (const quire::TokenId id : ids->ids) Require(id >= 0);
  }
  if (const auto* chat = std::get_if<quire::ChatPrompt>(&prompt)) {
    Require(quire::json::Parse(chat->messages_json).ok());
  }
}

void CheckApi(quire::ApiKind kind, std::string_view body) {
  quire::ApiRequest out;
  quire::RequestLimits limits;
  limits.max_prompts = 8;
  if (const auto problem = quire::ParseApiRequest(kind, body, limits, out)) {
    CheckProblem(problem);
    return;
  }
  Require(!out.requests.empty() && out.requests.size() <= 8);
  for (const quire::GenerateRequest& request : out.requests) {
    Require(!quire::CheckSampling(request.sampling).has_value());
    CheckPrompt(request.prompt);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
      CheckApi(quire::ApiKind::kCompletion, body);
      break;
    case 1:
      CheckApi(quire::ApiKind::kChat, body);
      break;
    case 2: {
      quire::TokenizeBody out;
      if (const auto problem = quire::ParseTokenizeBody(body, out)) {
        CheckProblem(problem);
      } else {
        CheckPrompt(out.prompt);
      }
      break;
    }
    case 3: {
      quire::DetokenizeBody out;
      if (const auto problem = quire::ParseDetokenizeBody(body, out)) CheckProblem(problem);
      break;
    }
    case 4: {
      std::string path;
      if (quire::PathOfTarget(body, path)) Require(path.size() <= body.size() + 1);
      break;
    }
    default: {
      const auto ms = quire::ParseTimeoutMs(body, 1000);
      if (ms) Require(*ms >= 1 && *ms <= 86'400'000);
    }
  }
  return 0;
}
