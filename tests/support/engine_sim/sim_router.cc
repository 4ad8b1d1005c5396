#include "tests/support/engine_sim/sim_router.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace quire::sim {
namespace {

constexpr Micros kRedial = 15 * kMicrosPerMilli;
constexpr size_t kMaxViolations = 20;

// What half of the clients expect: their answer, with one token of it wrong in most cases.
std::vector<TokenId> PredictionOf(const Submit& submit, std::vector<TokenId> answer) {
  const uint64_t draw = test::TagMix(submit.sampling.seed, 21);
  if (draw % 2 == 0 || answer.empty()) return {};
  if (draw % 8 != 1) answer[(draw >> 8) % answer.size()] = static_cast<TokenId>((draw >> 32) % 8);
  return answer;
}

}  // namespace

void SimWorld::Violate(const std::string& what) {
  if (violations.size() < kMaxViolations) {
    violations.push_back(std::to_string(Now()) + " us: " + what);
  }
}

void SimWorld::Trace(std::string_view bytes) {
  uint64_t hash = trace ^ static_cast<uint64_t>(Now());
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3ull;
  trace = hash;
}

SimRouter::SimRouter(SimWorld& shared, int index)
    : shared_(shared),
      index_(index),
      instance_(1000 + static_cast<uint64_t>(index)),
      follow_(shared.scenario.follows[static_cast<size_t>(index)]),
      cache_(shared, follow_.wants_events) {
  const EngineOptions& engine = shared_.scenario.engine;
  const test::TagModel model{{engine.block_size, engine.page_count, engine.cache_kinds},
                             engine.vocab_size,
                             engine.max_model_len,
                             engine.eos_token_ids};
  uint64_t number = 0;
  for (const RequestPlan& plan : shared_.scenario.requests) {
    if (plan.router != index) continue;
    Client& client = clients_[++number];
    client.plan = &plan;
    client.number = RequestNumber(number);
    client.choices.resize(plan.submit.choices.size());
    if (plan.bad) continue;
    const uint64_t salt = TagSaltOf(plan.submit);
    client.scored = test::TagPromptLogprobs(model, plan.submit, salt);
    std::vector<test::ReferenceAnswer> beams;
    if (plan.submit.sampling.beam_width > 0) {
      beams = test::TagBeamAnswers(model, plan.submit, salt);
    }
    for (uint32_t i = 0; i < client.choices.size(); ++i) {
      client.choices[i].expected =
          beams.empty() ? test::TagAnswer(model, plan.submit, i, salt) : beams[i];
      shared_.guesses.Know(plan.submit.sampling.seed, i, client.choices[i].expected.tokens);
    }
    client.prediction = PredictionOf(plan.submit, client.choices[0].expected.tokens);
  }
}

void SimRouter::Start() {
  DialNew();
  Beat();
  for (auto& [number, client] : clients_) {
    shared_.world.executor().PostAt(shared_.Now() + client.plan->starts_at,
                                    [this, at = &client] { StartClient(*at); });
  }
  for (const Micros after : follow_.asks_also) {
    shared_.world.executor().PostAt(shared_.Now() + after, [this] { AskForSnapshot(); });
  }
}

std::string SimRouter::Name(const Client& client) const {
  return "router " + std::to_string(index_) + " request " + std::to_string(client.number.value()) +
         "." + std::to_string(client.attempt);
}

// ---------------------------------------------------------------------------------------------
// Attaches

void SimRouter::Dial(uint64_t number, bool old_hello) {
  auto attachment = std::make_unique<Attachment>(*this, number);
  attachment->old_hello = old_hello;
  attachment->stream = shared_.dialer.Dial("worker");
  attachment->stream->Start(attachment.get());
  RouterHello hello;
  hello.instance = instance_;
  hello.attach_number = number;
  hello.wants_events = follow_.wants_events;
  attachment->stream->Write(EncodeHello(hello));
  if (old_hello) {
    attachments_.insert(attachments_.begin(), std::move(attachment));
  } else {
    attachments_.push_back(std::move(attachment));
  }
}

// Whatever ran on the older Attach is given up; it is submitted again when the worker has greeted.
void SimRouter::DialNew() {
  for (auto& [number, client] : clients_) {
    if (!client.started || client.over) continue;
    client.attempt_live = false;
    client.waits_for_attach = true;
  }
  next_submit_number_ = 1;
  Dial(++attach_number_, false);
}

void SimRouter::Cut() {
  if (attachments_.empty() || silent_) return;
  attachments_.back()->closed = true;
  attachments_.back()->stream.reset();
  shared_.coverage.Add("cuts");
  DialNew();
}

void SimRouter::Fence() {
  if (silent_) return;
  shared_.coverage.Add("fences");
  DialNew();
}

void SimRouter::SayOldHello() {
  if (silent_ || attachments_.empty()) return;
  if (!attachments_.back()->greeted || attachments_.back()->closed) return;
  shared_.coverage.Add("old hellos");
  Dial(attach_number_, true);
}

void SimRouter::SetSilent(bool silent) {
  if (silent_ == silent) return;
  silent_ = silent;
  if (silent) return;
  shared_.coverage.Add("silences");
  DialNew();
}

void SimRouter::OnClosed(Attachment& from) {
  from.closed = true;
  if (from.old_hello || silent_ || attachments_.back().get() != &from) return;
  shared_.world.executor().PostAt(shared_.Now() + kRedial, [this, at = &from] {
    if (!silent_ && attachments_.back().get() == at) DialNew();
  });
}

void SimRouter::Beat() {
  shared_.world.executor().PostAt(shared_.Now() + kMicrosPerSecond, [this] {
    if (!silent_) Send(EncodeHeartbeat(static_cast<uint64_t>(shared_.Now() / kMicrosPerMilli)));
    Beat();
  });
}

void SimRouter::Send(std::string frame) {
  if (silent_ || attachments_.empty()) return;
  Attachment& current = *attachments_.back();
  if (current.closed || !current.greeted) return;
  current.stream->Write(std::move(frame));
}

void SimRouter::SendSoon(Micros lag, std::function<void()> work) {
  // What a router does later belongs to the Attach on which it decided so.
  shared_.world.executor().PostAt(shared_.Now() + lag,
                                  [this, number = attach_number_, work = std::move(work)] {
                                    if (number == attach_number_ && !silent_) work();
                                  });
}

// ---------------------------------------------------------------------------------------------
// what the router does

void SimRouter::StartClient(Client& client) {
  const RequestPlan& plan = *client.plan;
  client.started = true;
  if (plan.deadline_after >= 0) client.deadline = shared_.Now() + plan.deadline_after;
  const Micros now = shared_.Now();
  Executor& executor = shared_.world.executor();
  if (plan.cancels_after >= 0) {
    executor.PostAt(now + plan.cancels_after, [this, at = &client] { CancelClient(*at); });
  }
  if (plan.retries_after >= 0) {
    executor.PostAt(now + plan.retries_after, [this, at = &client] {
      if (silent_ || !at->attempt_live || at->cancelled) return;
      shared_.coverage.Add("newer attempts");
      SendSubmit(*at);
    });
  }
  if (silent_ || attachments_.empty() || !attachments_.back()->greeted) {
    client.waits_for_attach = true;
    return;
  }
  SendSubmit(client);
}

Submit SimRouter::MakeSubmit(const Client& client) {
  Submit submit = client.plan->submit;
  submit.key = {client.number, Attempt(client.attempt)};
  submit.submit_number = next_submit_number_++;
  submit.request_id = Name(client);
  submit.prediction_ids = client.prediction;
  for (size_t i = 0; i < client.choices.size(); ++i) {
    submit.choices[i].outputs = client.choices[i].tokens;
    submit.choices[i].ended = client.choices[i].ended;
  }
  if (client.deadline >= 0) {
    const Micros remaining = std::max<Micros>(0, client.deadline - shared_.Now());
    submit.remaining_ms = static_cast<uint64_t>(remaining / kMicrosPerMilli);
  }
  return submit;
}

void SimRouter::SendSubmit(Client& client) {
  if (client.over) return;
  // Its own clock says so: nothing is sent. (0 on the wire would mean: no deadline.)
  const bool late = client.deadline >= 0 && client.deadline - shared_.Now() < kMicrosPerMilli;
  if (late || (client.cancelled && !client.attempt_live)) return Over(client);
  ++client.attempt;
  client.repeats = 0;
  client.scored_count = 0;
  client.scores = client.plan->submit.sampling.prompt_logprobs > 0 &&
                  std::all_of(client.choices.begin(), client.choices.end(),
                              [](const Choice& c) { return !c.ended && c.tokens.empty(); });
  for (Choice& choice : client.choices) {
    choice.resumed = choice.tokens.size();
    choice.granted = choice.resumed + client.plan->submit.initial_window;
    choice.ended_here = false;
    if (!choice.ended) choice.finish_count = -1;
  }
  const Submit submit = MakeSubmit(client);
  attach_of_[submit.key] = attach_number_;
  client.attempt_live = true;
  for (std::string& frame : EncodeSubmit(submit)) Send(std::move(frame));
  for (uint32_t i = 0; i < client.choices.size(); ++i) GrantAfter(client, i);
  if (!client.plan->repeats_live) return;
  shared_.coverage.Add("repeats of live");
  ++client.repeats;
  Submit again = submit;
  again.submit_number = next_submit_number_++;
  for (std::string& frame : EncodeSubmit(again)) Send(std::move(frame));
}

void SimRouter::GrantAfter(Client& client, uint32_t choice) {
  const RequestPlan& plan = *client.plan;
  if (plan.submit.initial_window == 0) return;
  const uint64_t taken = client.choices[choice].tokens.size();
  if (plan.stalls_at >= 0 && static_cast<int64_t>(taken) >= plan.stalls_at) return;
  SendSoon(plan.grant_lag, [this, at = &client, choice, taken, attempt = client.attempt] {
    if (at->attempt != attempt || !at->attempt_live || at->choices[choice].ended) return;
    const uint64_t up_to = taken + at->plan->grant_step;
    Choice& granted = at->choices[choice];
    granted.granted = std::max(granted.granted, up_to);
    Send(EncodeGrant({{at->number, Attempt(attempt)}, choice, up_to}));
  });
}

void SimRouter::CancelClient(Client& client) {
  if (client.over) return;
  const bool one = client.plan->cancels_one_choice && client.choices.size() > 1;
  (one ? client.cancelled_one : client.cancelled) = true;
  shared_.coverage.Add("cancels");
  if (!client.attempt_live) {
    if (one) return;
    return Over(client);
  }
  if (!one) client.cancelled_at = shared_.Now();
  Send(EncodeCancel({{client.number, Attempt(client.attempt)}, one, 0}));
}

void SimRouter::AskForSnapshot() {
  if (silent_ || attachments_.empty()) return;
  if (!attachments_.back()->greeted || attachments_.back()->closed || !cache_.follows()) return;
  Send(EncodeSnapshotRequest(cache_.Ask()));
}

void SimRouter::AskIfLost() {
  if (!cache_.lost() || asks_soon_) return;
  asks_soon_ = true;
  shared_.world.executor().PostAt(shared_.Now() + follow_.asks_after, [this] {
    asks_soon_ = false;
    if (cache_.lost()) AskForSnapshot();
  });
}

void SimRouter::Over(Client& client) {
  client.over = true;
  client.waits_for_attach = false;
}

bool SimRouter::AllOver() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const auto& entry) { return entry.second.over; });
}

// A worker that has drained leaves, and need not say any more.
void SimRouter::JudgeTheCache() const {
  if (!shared_.draining) cache_.JudgeTheEnd();
}

void SimRouter::JudgeTheEnd() const {
  for (const auto& [number, client] : clients_) {
    if (!client.over) shared_.Violate(Name(client) + " waits for ever");
  }
}

}  // namespace quire::sim
