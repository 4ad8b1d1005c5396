// A router as the worker meets it: attaches, submits, takes tokens, grants, cancels, loses its
// stream and carries on from its journal. It holds every word of the worker against what it must
// be: the reference answer, the windows, the deadlines, one end for each choice.
//
// sim_router.cc holds what it does, sim_router_hear.cc what it hears.
//
// One thread, that of the world.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "tests/support/engine_sim/sim_cache_model.h"
#include "tests/support/engine_sim/sim_world.h"
#include "tests/support/tag_reference.h"

namespace quire::sim {

class SimRouter {
 public:
  SimRouter(SimWorld& shared, int index);

  void Start();
  // Faults.
  void Cut();
  void Fence();
  void SayOldHello();
  void SetSilent(bool silent);

  // What the worker wrote down about one of its attempts.
  void OnRecord(const AttemptRecord& record);

  bool AllOver() const;
  // What was never told though it should have been.
  void JudgeTheEnd() const;
  // At rest, what it knows of the cache.
  void JudgeTheCache() const;
  bool KnowsTheLastEvent() const { return cache_.KnowsTheLastEvent(); }
  const std::map<AttemptKey, AttemptUsage>& told_usage() const { return told_usage_; }
  RouterInstance instance() const { return instance_; }

 private:
  struct Choice {
    std::vector<TokenId> tokens;  // the journal
    size_t resumed = 0;           // of these, before the current attempt
    uint64_t granted = 0;
    bool ended = false;         // for good
    bool ended_here = false;    // in the current attempt
    int64_t finish_count = -1;  // a Finish was sent with this count
    bool counted_by_finish = false;
    test::ReferenceAnswer expected;
  };
  struct Client {
    const RequestPlan* plan = nullptr;
    RequestNumber number;
    uint32_t attempt = 0;  // 0: not submitted yet
    bool started = false;
    bool waits_for_attach = false;
    bool over = false;
    bool cancelled = false;
    bool cancelled_one = false;
    Micros cancelled_at = -1;   // when a Cancel of the whole was sent
    bool attempt_live = false;  // submitted on the current Attach and not told to be over
    int repeats = 0;            // Submits sent again whose refusal is due
    Micros deadline = -1;
    std::vector<Choice> choices;
    SharedTokens prediction;
    PromptLogprobs scored;    // what the prompt's logprobs must be, when they are asked for
    bool scores = false;      // the current attempt tells them: it did not resume
    size_t scored_count = 0;  // of these, told by the current attempt
  };
  struct Attachment final : FrameStream::Receiver {
    Attachment(SimRouter& its_router, uint64_t its_number)
        : router(its_router), number(its_number) {}
    void OnFrame(std::string_view frame) override { router.OnFrame(*this, frame); }
    void OnClosed(const absl::Status&) override { router.OnClosed(*this); }
    SimRouter& router;
    uint64_t number;
    std::unique_ptr<FrameStream> stream;
    bool greeted = false;
    bool closed = false;
    bool old_hello = false;  // sent to be refused
    uint64_t next_frame_seq = 1;
  };

  void Dial(uint64_t number, bool old_hello);
  void DialNew();
  void OnFrame(Attachment& from, std::string_view frame);
  void OnClosed(Attachment& from);
  void Hear(Attachment& from, const WorkerHello& hello);
  void Hear(Attachment& from, const StepFrame& step);
  void Hear(Attachment& from, const AttachRefused& refused);
  void Take(const Output& output);
  void Check(const Choice& choice, const Output& output, size_t at);
  void Take(const PromptLogprobs& part);
  void CheckScored(const Client& client) const;
  void Take(const Ended& ended);
  void CheckEnd(const Client& client, Choice& choice, const Ended& ended);
  void CheckUsage(const Client& client, const AttemptUsage& usage);
  void Take(const Refused& refused);
  Client* CurrentAttempt(const AttemptKey& key);
  bool OutlivesTheDevice() const;

  void StartClient(Client& client);
  void SendSubmit(Client& client);
  Submit MakeSubmit(const Client& client);
  void SendSoon(Micros lag, std::function<void()> work);
  void Send(std::string frame);
  void GrantAfter(Client& client, uint32_t choice);
  void CancelClient(Client& client);
  void AskForSnapshot();
  void AskIfLost();
  void Beat();
  void Over(Client& client);
  std::string Name(const Client& client) const;

  SimWorld& shared_;
  const int index_;
  const RouterInstance instance_;
  uint64_t attach_number_ = 0;
  std::vector<std::unique_ptr<Attachment>> attachments_;  // the last one is the current
  Epoch greeted_epoch_;
  uint64_t greeted_number_ = 0;
  Micros greeted_at_ = 0;
  uint64_t next_submit_number_ = 1;
  bool silent_ = false;
  const FollowPlan& follow_;
  CacheModel cache_;
  bool asks_soon_ = false;
  std::map<uint64_t, Client> clients_;  // by request number
  std::map<AttemptKey, AttemptUsage> told_usage_;
  std::map<AttemptKey, uint64_t> attach_of_;  // on which it was submitted
};

}  // namespace quire::sim
