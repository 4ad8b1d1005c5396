// A rank over the tag model, in a thread or a process, that goes wrong at one step when it is told
// to.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/tag_runner.h"
#include "worker/ranks/rank_host.h"

namespace quire::test {

inline constexpr char kTagIdentity[] = "tag";

// "skip" a collective, another "token", the "device" fails, "die", "stop", a "damaged" packet,
// "late" (a collective too few and nothing said), an answer to another "number" or "row" or with a
// sample too few ("short"); while it loads "start" (an error) and "load_stop".
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

inline CacheShape TagCacheOf(const StepLimits& limits) {
  CacheShape shape;
  shape.block_size = limits.block_size;
  shape.page_count = limits.page_count;
  shape.kinds = {{0, 1}, {9, limits.groups - 1}};
  return shape;
}

class TagRank final : public RankProgram {
 public:
  TagRank(const RankSetup& setup, kernels::Communicator& communicator, TagFault fault)
      : setup_(setup),
        communicator_(communicator),
        fault_(std::move(fault)),
        program_(TagCacheOf(setup.limits), setup.limits.vocab_size),
        runner_(program_, {.limits = setup.limits, .now_us = [] { return int64_t{0}; }}) {}

  absl::Status Run(std::span<const std::byte> packet, StepResult& result) override {
    ++step_;
    const bool now =
        fault_.rank == setup_.rank && fault_.step == step_ && unlink(fault_.token.c_str()) == 0;
    const std::string what = now ? fault_.what : "";
    if (what == "die") raise(SIGKILL);
    if (what == "stop") raise(SIGSTOP);
    if (what == "device") return absl::InternalError("the device says no");
    if (what == "damaged") packet = packet.first(packet.size() - 1);
    QUIRE_RETURN_IF_ERROR(runner_.TryLaunch(packet));
    runner_.Collect(result);
    float one = 1;
    if (what != "skip" && what != "late") communicator_.AllReduceSum({&one, 1});
    if (what != "late") communicator_.Barrier();
    if (what == "token" && !result.samples.empty()) result.samples[0].token ^= 1;
    if (what == "number") ++result.number;
    if (what == "row") ++result.samples.at(0).row;
    if (what == "short") result.samples.pop_back();
    return absl::OkStatus();
  }
  RankReady Describe() const override { return {kTagIdentity, 0}; }

 private:
  const RankSetup setup_;
  kernels::Communicator& communicator_;
  const TagFault fault_;
  TagProgram program_;
  CpuRunner runner_;
  int step_ = 0;
};

inline RankBuilder TagBuilder(TagFault fault) {
  return [fault = std::move(fault)](
             const RankSetup& setup, kernels::Communicator& communicator,
             const RankProgress& progress) -> absl::StatusOr<std::unique_ptr<RankProgram>> {
    progress();
    if (fault.what == "start" && fault.rank == setup.rank) {
      return absl::NotFoundError("the weights are gone");
    }
    if (fault.what == "load_stop" && fault.rank == setup.rank) raise(SIGSTOP);
    return std::make_unique<TagRank>(setup, communicator, fault);
  };
}

}  // namespace quire::test
