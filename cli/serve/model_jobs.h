// Pulls and removals that clients of `quire serve` asked for: each is a child process, `quire pull`
// or `quire rm`, so that one can be ended and none holds up serving.
//
// Owner: the supervisor, on its thread; nothing here blocks. At most kMaxJobs at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/serve/child_process.h"
#include "common/serve/lines.h"

namespace quire::cli {

class ModelJobs {
 public:
  using Tell = std::function<void(const serve::JobNews& news)>;
  // A job has ended well; called before its end is reported.
  using Done = std::function<void(const serve::Order& job)>;

  // `program` is quire itself.
  ModelJobs(std::string program, std::vector<std::string> environment, Tell tell, Done done);

  void Start(const serve::Order& job);
  // Reports that it has failed. `code`: an absl::StatusCode.
  void Refuse(const serve::Order& job, std::string why, int code = 0);
  void Cancel(uint64_t job);
  // The router has gone: no client waits for them any more.
  void CancelAll();

  void AddDescriptors(std::vector<int>& descriptors) const;
  void Work();
  bool empty() const { return jobs_.empty(); }

 private:
  struct Job {
    serve::Order order;
    ChildProcess process;
    std::string error;  // as the child said last
    int code = 0;
  };

  const std::string program_;
  const std::vector<std::string> environment_;
  const Tell tell_;
  const Done done_;
  std::map<uint64_t, Job> jobs_;
};

}  // namespace quire::cli
