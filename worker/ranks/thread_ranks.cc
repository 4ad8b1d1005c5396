#include <pthread.h>

#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "common/check.h"
#include "worker/ranks/rank_host.h"

namespace quire {
namespace {

class ThreadRanks final : public RankHost {
 public:
  explicit ThreadRanks(RankBuilder build) : build_(std::move(build)) {}

  absl::Status Start(const RankStart& start) override {
    const int fd = dup(start.channel->fd());
    if (fd < 0) return absl::ResourceExhaustedError("no descriptor is free for a rank");
    QUIRE_ASSIGN_OR_RETURN(auto channel, HostChannel::Open(fd));
    const int adapters_fd = start.adapters == nullptr ? -1 : dup(start.adapters->fd());
    if (start.adapters != nullptr && adapters_fd < 0) {
      return absl::ResourceExhaustedError("no descriptor is free for a rank");
    }
    auto rank = std::make_unique<Running>();
    rank->channel = std::move(channel);
    rank->thread = std::thread([this, rank = rank.get(), start, adapters_fd] {
      pthread_setname_np(pthread_self(), ("rank-" + std::to_string(start.rank)).c_str());
      const GroupOpener open =
          [&start](const RankSetup& setup) -> absl::StatusOr<kernels::SharedGroup*> {
        QUIRE_CHECK(setup.size == start.group->size());
        return start.group;
      };
      rank->why = StatusMessage(ServeRank(*rank->channel, open, build_, adapters_fd));
      rank->ended.store(true);
    });
    QUIRE_CHECK_MSG(!running_.contains(start.rank), "the rank of before has not ended");
    running_[start.rank] = std::move(rank);
    return absl::OkStatus();
  }

  std::optional<std::string> Ended(int rank) override {
    const auto at = running_.find(rank);
    if (at == running_.end()) return "was not there";
    if (!at->second->ended.load()) return std::nullopt;
    at->second->thread.join();
    const std::string why = at->second->why;
    running_.erase(at);
    return why.empty() ? "has left" : why;
  }

  int WatchFd(int) const override { return -1; }
  bool Kill(int) override { return false; }
  void GiveUp(int) override { QUIRE_CHECK_MSG(false, "a thread cannot be given up"); }

 private:
  struct Running {
    std::unique_ptr<HostChannel> channel;  // the rank's side
    std::thread thread;
    std::string why;  // written before `ended`
    std::atomic<bool> ended{false};
  };

  const RankBuilder build_;
  std::map<int, std::unique_ptr<Running>> running_;
};

}  // namespace

std::unique_ptr<RankHost> MakeThreadRanks(RankBuilder build) {
  return std::make_unique<ThreadRanks>(std::move(build));
}

}  // namespace quire
