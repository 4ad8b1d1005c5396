#include "router/pipeline/request_memory.h"

#include <utility>

#include "router/pipeline/held_bytes.h"

namespace quire {

RequestMemory::RequestMemory(std::shared_ptr<MemoryAccount> process, const Limits& limits,
                             Admission& admission)
    : admission_(admission),
      tenants_(std::move(process), limits.tenant_bytes),
      waiting_(std::make_shared<MemoryAccount>(limits.waiting_prompt_bytes, nullptr,
                                               MemoryScope::kWaiting)) {}

std::optional<Refusal> RequestMemory::Hold(LiveRequest& request) {
  const GenerateRequest& ask = request.ask;
  const std::shared_ptr<MemoryAccount> account = Of(ask.tenant.get());
  auto hold = std::make_unique<MemoryHold>(account);
  if (!hold->TryResize(HeldBytes(ask))) {
    return admission_.RefuseMemory(ask.tenant, *account, HeldBytes(ask));
  }
  auto prompt = std::make_shared<PromptHold>(waiting_, account);
  const size_t bytes = PromptBytes(ask.prompt);
  const size_t predicted = ask.prediction ? ask.prediction->size() : 0;  // which `hold` has
  if (!prompt->waiting.TryResize(bytes + predicted)) return admission_.RefusePrompt(ask.tenant);
  if (!prompt->tenant.TryResize(bytes)) {
    return admission_.RefuseMemory(ask.tenant, *account, bytes);
  }
  request.hold = std::move(hold);
  request.prompt_hold = std::move(prompt);
  return std::nullopt;
}

std::optional<Refusal> RequestMemory::HoldTokens(LiveRequest& request) {
  const size_t tokens = request.prompt_ids.size();
  const size_t logprobs = tokens * static_cast<size_t>(request.sampling.prompt_logprobs);
  // The text of an echo is in front of each choice of an answer that is not streamed.
  const size_t echoes = 1 + (request.ask.streaming ? 1 : request.choices);
  const size_t bytes = HeldBytes(request.ask) +
                       kBytesPerPromptToken * (tokens + request.prediction_ids.size()) +
                       kBytesPerLogprob * logprobs + echoes * request.prompt_text.size();
  if (request.hold->TryResize(bytes)) return std::nullopt;
  return admission_.RefuseMemory(request.ask.tenant, *request.hold->account(), bytes);
}

}  // namespace quire
