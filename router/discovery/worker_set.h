// Which workers some source names now, and which of those that no source names any more may be
// forgotten.
//
// Owner: the pipeline, on the router's executor. No I/O, no clock: time comes in as an argument.
//  1. Discovery only adds candidates: a worker that a source stops naming stays while its link is
//     up, until it has been both unnamed and idle for kForgetAfter.
//  2. A worker that any source names is never forgotten.
//  3. At most max_workers are named at once; the rest is left out, the last in order first.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/runtime/runtime.h"

namespace quire {

class WorkerSet {
 public:
  static constexpr Micros kForgetAfter = 60 * kMicrosPerSecond;

  explicit WorkerSet(size_t max_workers) : max_workers_(max_workers) {}

  // The state of a worker that the router has.
  struct Present {
    std::string_view target;
    bool attached = false;
    bool busy = false;  // has attempts of this router
  };
  struct Changes {
    std::vector<std::string> add;
    std::vector<std::string> remove;
  };

  // The whole current list of one source.
  void Named(const std::string& source, std::vector<std::string> targets);
  // What to do about the workers that exist, in order of their names. Call it after Named and every
  // second.
  Changes Decide(std::span<const Present> workers, Micros now);

  bool IsNamed(std::string_view target) const { return named_.contains(target); }
  size_t named() const { return named_.size(); }
  uint64_t left_out() const { return left_out_; }  // named now, and over the limit

 private:
  const size_t max_workers_;
  std::map<std::string, std::vector<std::string>> by_source_;
  std::set<std::string, std::less<>> named_;
  std::map<std::string, Micros, std::less<>> idle_since_;  // unnamed ones
  uint64_t left_out_ = 0;
};

}  // namespace quire
