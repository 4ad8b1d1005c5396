// A rank over the tag model, in a thread or a process, that goes wrong at one step when it is told
// to. Where tests/support/tag_cuda is linked its device is an emulated GPU, whose steps hold
// collectives of their own.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/tag_runner.h"
#include "worker/ranks/rank_host.h"

namespace quire::test {

inline constexpr char kTagIdentity[] = "tag";

// "skip" a collective, another "token", the "device" fails, "die", "stop", a "damaged" packet,
// "late" (a collective too few and nothing said), an answer to another "number" or "row" or with a
// sample too few ("short"); while it loads "start" (an error) and "load_stop"; "few_pages": its
// device has memory for three pages fewer, of which nothing comes.
struct TagFault {
  std::string what;
  int rank = 0;
  int step = 0;       // from 1, of the first generation that comes so far
  std::string token;  // a file: whoever removes it goes wrong, so that it happens once

  std::vector<std::string> Arguments() const {
    return {what, std::to_string(rank), std::to_string(step), token};
  }
  static TagFault FromArguments(char** arguments) {
    return {arguments[0], std::atoi(arguments[1]), std::atoi(arguments[2]), arguments[3]};
  }
};

inline TagRunnerOptions TagOptionsOf(const StepLimits& limits,
                                     kernels::Communicator& communicator) {
  TagRunnerOptions options;
  options.cache.block_size = limits.block_size;
  options.cache.page_count = limits.page_count;
  options.cache.kinds = {{0, 1}, {9, limits.groups - 1}};
  options.vocab_size = limits.vocab_size;
  options.max_num_seqs = limits.max_rows;
  options.max_step_tokens = limits.max_tokens;
  options.max_model_len = limits.max_model_len;
  options.communicator = &communicator;
  return options;
}

class TagRank final : public RankProgram {
 public:
  TagRank(const RankParts& parts, TagFault fault)
      : setup_(parts.setup),
        communicator_(parts.communicator),
        fault_(std::move(fault)),
        max_in_flight_(setup_.rank % 2 == 0 ? 2 : 1),
        program_(MakeTagProgram(TagOptionsOf(setup_.limits, communicator_))),
        runner_(*program_, {.limits = setup_.limits,
                            .max_in_flight = max_in_flight_,
                            .masks = &parts.masks,
                            .now_us = [] { return int64_t{0}; }}) {}

  absl::Status Run(std::span<const std::byte> packet, StepResult& result) override {
    QUIRE_RETURN_IF_ERROR(Launch(packet));
    return Collect(result);
  }
  // Ranks of even numbers take packets ahead, and are asked a few times before a step has ended.
  int MaxInFlight() const override { return max_in_flight_; }
  absl::Status Launch(std::span<const std::byte> packet) override {
    ++step_;
    looks_ = 0;
    const bool now =
        fault_.rank == setup_.rank && fault_.step == step_ && unlink(fault_.token.c_str()) == 0;
    const std::string& what = whats_.emplace_back(now ? fault_.what : "");
    if (what == "die") raise(SIGKILL);
    if (what == "stop") raise(SIGSTOP);
    if (what == "device") program_->BreakDevice();
    if (what == "damaged") packet = packet.first(packet.size() - 1);
    QUIRE_RETURN_IF_ERROR(runner_.TryLaunch(packet));
    return DeviceStatus();
  }
  bool Ready() override { return ++looks_ % 3 == 0 && runner_.Ready(); }
  absl::Status Collect(StepResult& result) override {
    const std::string what = std::move(whats_.front());
    whats_.pop_front();
    runner_.Collect(result);
    QUIRE_RETURN_IF_ERROR(DeviceStatus());
    float one = 1;
    if (what != "skip" && what != "late") communicator_.AllReduceSum({&one, 1});
    if (what != "late") communicator_.Barrier();
    if (what == "token" && !result.samples.empty()) result.samples[0].token ^= 1;
    if (what == "number") ++result.number;
    if (what == "row") ++result.samples.at(0).row;
    if (what == "short") result.samples.pop_back();
    return absl::OkStatus();
  }
  RankReady Describe() override {
    const bool few = fault_.what == "few_pages" && fault_.rank == setup_.rank;
    return {kTagIdentity, 0, setup_.limits.page_count - (few ? 3 : 0), 1000, 400};
  }
  int64_t DeviceFreeBytes() override { return 400; }

 private:
  absl::Status DeviceStatus() const {
    const std::string failure = program_->Failure();
    return failure.empty() ? absl::OkStatus() : absl::UnavailableError(AbslView(failure));
  }

  const RankSetup setup_;
  kernels::Communicator& communicator_;
  const TagFault fault_;
  const int max_in_flight_;
  const std::unique_ptr<TagLoaded> program_;
  CpuRunner runner_;
  int step_ = 0;
  int looks_ = 0;
  std::deque<std::string> whats_;  // what goes wrong in each step in flight
};

inline RankBuilder TagBuilder(TagFault fault) {
  return [fault = std::move(fault)](
             const RankParts& parts,
             const RankProgress& progress) -> absl::StatusOr<std::unique_ptr<RankProgram>> {
    progress();
    const RankSetup& setup = parts.setup;
    if (fault.what == "start" && fault.rank == setup.rank) {
      return absl::NotFoundError("the weights are gone");
    }
    if (fault.what == "load_stop" && fault.rank == setup.rank) raise(SIGSTOP);
    return std::make_unique<TagRank>(parts, fault);
  };
}

}  // namespace quire::test
