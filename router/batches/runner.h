// Runs the batches of a router: finds those that have not ended, those that other routers left
// behind among them, and has a bounded number under way.
//
// Owner: main; event loop only.
//
//  1. At most max_running batches run, and of one tenant its share of them; those that only have to
//     end (cancelled ones) do not wait for a place, and as many of them may be under way.
//  2. The tenant with the fewest running batches goes first, with its oldest one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/batches/run.h"

namespace quire::batches {

class Runner {
 public:
  explicit Runner(RunWorld world);
  ~Runner();

  // Looks for batches now, and from time to time. The store may have changed: a batch is new, or to
  // be cancelled.
  void Wake();
  // Lets go of all batches, for good.
  void Stop();
  size_t running() const { return runs_.size(); }

 private:
  struct Running {
    std::string folder;
    bool only_ends = false;
    std::shared_ptr<BatchRun> run;
  };

  void Looked(std::vector<OpenBatch> open);
  bool MayBegin(const OpenBatch& open) const;
  void Begin(const OpenBatch& open);
  void OnEnded(const std::string& id, bool ended_here);
  size_t RunningOf(const std::string& folder) const;

  RunWorld world_;
  std::map<std::string, Running> runs_;       // by id
  std::map<std::string, Micros> not_before_;  // batches that could not be had, by id
  bool looking_ = false;
  bool look_again_ = false;
  bool stopped_ = false;
  Timer look_timer_{world_.executor};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire::batches
