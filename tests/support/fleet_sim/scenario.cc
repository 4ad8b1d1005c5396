// What a seed stands for: workers, routers, clients, faults.
#include <algorithm>
#include <memory>

#include "common/runtime/virtual_runtime.h"
#include "tests/sim/sim_worker.h"
#include "tests/support/fleet_sim/fleet_sim.h"
#include "tests/support/fleet_sim/poison_stream.h"

namespace quire::sim {
namespace {

constexpr Micros kMilli = kMicrosPerMilli;

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed ^ 0xF1EE7ull) {}
  uint64_t Below(uint64_t n) { return rng_.Next() % n; }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  uint64_t Next() { return rng_.Next(); }
  Micros Millis(uint64_t from, uint64_t to) {
    return static_cast<Micros>(from + Below(to - from)) * kMilli;
  }

 private:
  VirtualRng rng_;
};

GenerateRequest DrawAsk(Draw& draw) {
  GenerateRequest ask;
  std::vector<TokenId> prompt(1 + draw.Below(draw.OneIn(3) ? 200 : 40));
  // Few different openings, so that prefixes are shared.
  const uint64_t opening = draw.Below(3);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<TokenId>(i < 32 ? (opening * 31 + i) % 256 : draw.Below(256));
  }
  ask.prompt = TokenPrompt{std::move(prompt)};
  ask.sampling.max_tokens = static_cast<int32_t>(1 + draw.Below(draw.OneIn(2) ? 300 : 60));
  ask.sampling.seed = draw.Next();
  if (draw.OneIn(3)) ask.sampling.temperature = 0.0f;
  if (draw.OneIn(3)) ask.sampling.top_k = 5;
  if (draw.OneIn(4)) ask.sampling.stop = {std::string(1, static_cast<char>('a' + draw.Below(26)))};
  if (draw.OneIn(4)) {
    ask.sampling.repetition_penalty = 1.3f;
    ask.sampling.presence_penalty = 0.5f;
  }
  if (draw.OneIn(4)) ask.sampling.logit_bias = {{'e', 4.0f}, {kFakeEos, 6.0f}};
  if (draw.OneIn(4)) ask.sampling.logprobs = static_cast<int32_t>(draw.Below(3));
  if (draw.OneIn(4)) ask.sampling.n = static_cast<int32_t>(2 + draw.Below(kSimChoices - 1));
  if (draw.OneIn(8)) ask.sampling.prompt_logprobs = static_cast<int32_t>(draw.Below(3));
  ask.streaming = !draw.OneIn(3);
  if (draw.OneIn(10)) ask.timeout_ms = 200 + draw.Below(3000);
  return ask;
}

}  // namespace

FleetScenario DrawFleet(uint64_t seed) {
  Draw draw(seed);
  FleetScenario scenario;
  scenario.seed = seed;
  scenario.workers = 2 + draw.Below(3);
  scenario.routers = 1 + draw.Below(3);
  scenario.page_count = draw.OneIn(4) ? 150 : 600;
  scenario.window_tokens = draw.OneIn(2) ? 256 : 4 + static_cast<uint32_t>(draw.Below(40));
  scenario.retry_burst = draw.OneIn(2) ? 10 : 0;
  scenario.max_waiting = draw.OneIn(3) ? 1 + static_cast<int64_t>(draw.Below(2)) : 16;
  scenario.max_carry_on_tokens = draw.OneIn(3) ? 60 : 8192;
  if (draw.OneIn(4)) scenario.policy = draw.OneIn(2) ? "least-loaded" : "power-of-two";
  const size_t clients = 5 + draw.Below(10);
  for (size_t i = 0; i < clients; ++i) {
    FleetClient client;
    client.starts_at = draw.Millis(100, 2500);
    client.router = draw.Below(scenario.routers);
    client.tenant = draw.OneIn(2) ? "a" : "b";
    client.ask = DrawAsk(draw);
    client.ask.request_id = "client-" + std::to_string(i);
    client.takes_after = draw.Millis(0, 20);
    if (draw.OneIn(8)) client.cancels_after = draw.Millis(0, 1500);
    scenario.clients.push_back(client);
  }
  if (draw.OneIn(4)) {
    FleetClient poison = scenario.clients.front();
    poison.poison = true;
    poison.ask.request_id = kPoisonId;
    poison.ask.prompt = TokenPrompt{{6, 6, 6, static_cast<TokenId>(draw.Below(256))}};
    poison.ask.sampling = {};
    poison.ask.sampling.max_tokens = 40;
    poison.ask.sampling.seed = draw.Next();
    poison.ask.streaming = true;
    poison.ask.timeout_ms = 0;
    poison.cancels_after = -1;
    scenario.clients.push_back(poison);
  }
  const size_t faults = 1 + draw.Below(6);
  for (size_t i = 0; i < faults; ++i) {
    FleetFault fault;
    fault.kind = static_cast<FleetFault::Kind>(draw.Below(FleetFault::kKinds));
    fault.worker = draw.Below(scenario.workers);
    fault.router = draw.Below(scenario.routers);
    fault.to_worker = draw.OneIn(2);
    fault.at = draw.Millis(200, 3500);
    fault.lasts = draw.OneIn(3) ? draw.Millis(4000, 12000) : draw.Millis(10, 4000);
    scenario.faults.push_back(fault);
  }
  return scenario;
}

}  // namespace quire::sim
