#include "worker/canary.h"

#include <utility>

#include "common/status.h"
#include "common/wire/values.h"

namespace quire {
namespace {

constexpr int kMaxCanaryRounds = 1000;

}  // namespace

absl::Status RunCanary(Engine& engine, const std::string& model_id, const Clock& clock) {
  // No router has instance 0: it is random, and this one is gone before any attaches.
  const RouterInstance no_router(0);
  SubmitCommand command;
  command.router = no_router;
  command.submit.key = {RequestNumber(1), Attempt(1)};
  command.submit.submit_number = 1;
  command.submit.prompt_ids = {0};
  command.submit.choices.resize(1);
  command.submit.sampling.temperature = 0.0f;
  command.submit.sampling.max_tokens = 1;
  command.submit.model_id = model_id;
  engine.Apply(std::move(command), clock.Now());
  size_t tokens = 0;
  std::string why = "the engine did not answer";
  bool ended = false;
  for (int round = 0; round < kMaxCanaryRounds && !ended; ++round) {
    for (const RouterOutput& words : engine.RunOnce(clock.Now()).routers) {
      for (const Output& output : words.outputs) tokens += output.ids.size();
      for (const Refused& refused : words.refused) why = refused.message;
      for (const Ended& end : words.ended) why = end.message;
      ended = ended || !words.ended.empty() || !words.refused.empty();
    }
  }
  engine.Apply(RouterLostCommand{no_router}, clock.Now());
  engine.RunOnce(clock.Now());
  if (tokens == 1) return absl::OkStatus();
  return absl::InternalError(AbslView("the model produces no token: " + why));
}

}  // namespace quire
