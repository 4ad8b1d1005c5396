// What a seed stands for: workers, routers, clients, faults.
#include <algorithm>
#include <memory>

#include "common/runtime/virtual_runtime.h"
#include "tests/router/support/fake_text.h"
#include "tests/support/fleet_sim/fleet_sim.h"
#include "tests/support/fleet_sim/poison_stream.h"
#include "tests/support/fleet_sim/sim_worker.h"
#include "tests/support/tag_adapters.h"

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

using Tenants = std::vector<std::shared_ptr<const TenantProfile>>;

Tenants DrawTenants(Draw& draw) {
  const bool quotas = draw.OneIn(3);
  Tenants tenants;
  for (const char* name : {"a", "b", "c"}) {
    TenantProfile tenant;
    tenant.name = name;
    tenant.weight = static_cast<uint32_t>(1 + draw.Below(4));
    if (draw.OneIn(3)) tenant.highest_priority = 0;
    if (quotas && draw.OneIn(2)) {
      tenant.requests_per_minute = static_cast<uint32_t>(20 + draw.Below(40));
    }
    if (quotas && draw.OneIn(2)) tenant.tokens_per_minute = 4000 + draw.Below(12000);
    if (quotas && draw.OneIn(2)) tenant.max_concurrent = static_cast<uint32_t>(1 + draw.Below(3));
    tenants.push_back(std::make_shared<TenantProfile>(tenant));
  }
  return tenants;
}

FleetClient DrawClient(Draw& draw, const FleetScenario& scenario, const Tenants& tenants) {
  FleetClient client;
  client.starts_at = draw.Millis(100, 2500);
  client.router = draw.Below(scenario.policies.size());
  client.ask = DrawAsk(draw);
  client.ask.tenant = tenants[draw.Below(tenants.size())];
  client.ask.priority = static_cast<int32_t>(draw.Below(3)) - 1;
  client.ask.request_id = "client-" + std::to_string(scenario.clients.size());
  client.takes_after = draw.Millis(0, 20);
  if (draw.OneIn(6)) {  // who reads slowly does not ask for much
    client.takes_after = draw.Millis(200, 1500);
    client.ask.sampling.max_tokens = static_cast<int32_t>(1 + draw.Below(60));
  }
  if (draw.OneIn(8)) client.cancels_after = draw.Millis(0, 1500);
  return client;
}

FleetClient PoisonLike(Draw& draw, FleetClient client) {
  client.poison = true;
  client.ask.request_id = kPoisonId;
  client.ask.prompt = TokenPrompt{{6, 6, 6, static_cast<TokenId>(draw.Below(256))}};
  client.ask.sampling = {};
  client.ask.sampling.max_tokens = 40;
  client.ask.sampling.seed = draw.Next();
  client.ask.streaming = true;
  client.ask.timeout_ms = 0;
  client.cancels_after = -1;
  return client;
}

void DrawFaults(Draw& draw, FleetScenario& scenario) {
  const size_t faults = 1 + draw.Below(6);
  for (size_t i = 0; i < faults; ++i) {
    FleetFault fault;
    fault.kind = static_cast<FleetFault::Kind>(draw.Below(FleetFault::kKinds));
    fault.worker = draw.Below(scenario.workers);
    fault.router = draw.Below(scenario.policies.size());
    fault.other_way = draw.OneIn(2);
    fault.at = draw.Millis(200, 3500);
    fault.lasts = draw.OneIn(3) ? draw.Millis(4000, 12000) : draw.Millis(10, 4000);
    scenario.faults.push_back(fault);
  }
}

// One worker after the other comes back as another one, while requests go on.
void RollOver(Draw& draw, FleetFault::Kind kind, FleetScenario& scenario) {
  const Micros pace = draw.Millis(400, 2000);
  for (size_t i = 0; i < scenario.workers; ++i) {
    FleetFault fault;
    fault.kind = kind;
    fault.worker = i;
    fault.at = draw.Millis(200, 600) + static_cast<Micros>(i) * pace;
    fault.lasts = draw.Millis(300, 1500);
    scenario.faults.push_back(fault);
  }
}

// Caches that give blocks up all the time, of which little can be told at once: routers ask for
// them again and again while streams go on, and some come late.
void Tighten(Draw& draw, const Tenants& tenants, FleetScenario& scenario) {
  scenario.page_count = 80;
  scenario.snapshot_slice = 1;
  scenario.max_unsent_hashes = 4 + draw.Below(6);
  for (size_t i = 1; i < scenario.router_starts.size(); ++i) {
    if (draw.OneIn(2)) scenario.router_starts[i] = draw.Millis(1300, 4500);
  }
  for (int more = 0; more < 8; ++more) {
    scenario.clients.push_back(DrawClient(draw, scenario, tenants));
  }
  const bool rush = draw.OneIn(2);
  for (FleetClient& client : scenario.clients) {
    SamplingOptions& sampling = client.ask.sampling;
    sampling.n = std::min(sampling.n, 2);
    sampling.max_tokens = std::min(sampling.max_tokens.value_or(0), 120);
    if (rush) client.starts_at = draw.Millis(100, 600);
  }
  // Few rows: who is preempted comes back when others have written what it begins with.
  if (draw.OneIn(2)) scenario.max_rows = kSimChoices;
}

// Every worker holds all adapters, each in slots of its own. The oldest binaries know of none.
void DrawAdapters(Draw& draw, FleetScenario& scenario) {
  if (scenario.plain.front() || scenario.Has(FleetFault::Kind::kUpdateBinary)) return;
  if (draw.OneIn(2)) return;
  for (FleetClient& client : scenario.clients) {
    if (client.poison || draw.OneIn(3)) continue;
    const int index = static_cast<int>(draw.Below(test::kTagAdapters));
    client.adapter = test::TagAdapterDigest(index);
    client.ask.model = (draw.OneIn(2) ? "tag:" : "") + test::TagAdapterName(index);
  }
}

}  // namespace

FleetScenario DrawFleet(uint64_t seed) {
  Draw draw(seed);
  FleetScenario scenario;
  scenario.seed = seed;
  scenario.workers = 2 + draw.Below(3);
  const bool old_workers = draw.OneIn(8);
  scenario.plain.assign(scenario.workers, old_workers);
  scenario.policies.resize(1 + draw.Below(3));
  scenario.router_starts.resize(scenario.policies.size());
  for (std::string& policy : scenario.policies) {
    policy = !draw.OneIn(5) ? "prefix-aware" : draw.OneIn(2) ? "least-loaded" : "power-of-two";
  }
  scenario.page_count = draw.OneIn(4) ? 150 : 600;
  scenario.window_tokens = draw.OneIn(2) ? 256 : 4 + static_cast<uint32_t>(draw.Below(40));
  scenario.retry_burst = draw.OneIn(2) ? 10 : 0;
  scenario.max_waiting = draw.OneIn(3) ? 1 + static_cast<int32_t>(draw.Below(2)) : 16;
  scenario.snapshot_slice = draw.OneIn(3) ? 4000 : 1 + static_cast<int32_t>(draw.Below(4));
  scenario.max_carry_on_tokens = draw.OneIn(3) ? 60 : 8192;
  if (draw.OneIn(4)) scenario.max_delay = draw.Millis(20, 150);
  if (draw.OneIn(2)) scenario.max_close_delay = draw.Millis(10, 3000);
  const Tenants tenants = DrawTenants(draw);
  const size_t clients = 5 + draw.Below(10);
  for (size_t i = 0; i < clients; ++i) {
    scenario.clients.push_back(DrawClient(draw, scenario, tenants));
  }
  if (draw.OneIn(4)) scenario.clients.push_back(PoisonLike(draw, scenario.clients.front()));
  DrawFaults(draw, scenario);
  if (draw.OneIn(10)) RollOver(draw, FleetFault::Kind::kUpdateModel, scenario);
  if (old_workers || draw.OneIn(12)) RollOver(draw, FleetFault::Kind::kUpdateBinary, scenario);
  // Drawn apart, so that the other fleets are as they would be without these.
  Draw apart(seed ^ 0x7164700000ull);
  if (apart.OneIn(3)) Tighten(apart, tenants, scenario);
  Draw adapters(seed ^ 0xADA97E4ull);
  DrawAdapters(adapters, scenario);
  return scenario;
}

}  // namespace quire::sim
