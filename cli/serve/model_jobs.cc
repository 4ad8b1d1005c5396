#include "cli/serve/model_jobs.h"

#include <signal.h>

#include <utility>

namespace quire::cli {

using serve::OrderKind;

ModelJobs::ModelJobs(std::string program, std::vector<std::string> environment, Tell tell,
                     Done done)
    : program_(std::move(program)),
      environment_(std::move(environment)),
      tell_(std::move(tell)),
      done_(std::move(done)) {}

void ModelJobs::Refuse(const serve::Order& job, std::string why, int code) {
  serve::JobNews news;
  news.job = job.job;
  news.done = true;
  news.error = std::move(why);
  news.code = code;
  tell_(news);
}

void ModelJobs::Start(const serve::Order& job) {
  if (jobs_.size() >= serve::kMaxJobs || jobs_.contains(job.job)) {
    return Refuse(job, "too many pulls and removals are under way");
  }
  if (job.model.starts_with('-')) {  // the child would read a flag
    return Refuse(job, "model: '" + job.model + "' is no name",
                  static_cast<int>(absl::StatusCode::kInvalidArgument));
  }
  std::vector<std::string> args = {"rm", job.model};
  if (job.kind == OrderKind::kPull) {
    args = {"pull", job.model, "--for-client", "--max-bytes=" + std::to_string(job.most_bytes)};
  }
  auto process = ChildProcess::Start(program_, std::move(args), environment_);
  if (!process.ok()) return Refuse(job, StatusMessage(process.status()));
  jobs_.emplace(job.job, Job{job, *std::move(process), ""});
}

void ModelJobs::Cancel(uint64_t job) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) found->second.process.Signal(SIGINT);
}

void ModelJobs::CancelAll() {
  for (auto& [id, job] : jobs_) job.process.Signal(SIGINT);
}

void ModelJobs::AddDescriptors(std::vector<int>& descriptors) const {
  for (const auto& [id, job] : jobs_) {
    if (job.process.ready_fd() >= 0) descriptors.push_back(job.process.ready_fd());
  }
}

void ModelJobs::Work() {
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job& job = it->second;
    const std::optional<int> code = job.process.TryReap();  // before its last lines are read
    for (const std::string& line : job.process.ReadLines()) {
      const absl::StatusOr<serve::News> news = serve::ReadNews(line);
      if (!news.ok() || !std::holds_alternative<serve::JobNews>(*news)) continue;
      serve::JobNews said = std::get<serve::JobNews>(*news);
      said.job = job.order.job;
      job.error = said.error;
      job.code = said.code;
      if (!std::exchange(said.done, false)) tell_(said);
    }
    if (!code) {
      ++it;
      continue;
    }
    const Job over = std::move(job);
    it = jobs_.erase(it);
    if (*code != 0) {
      Refuse(over.order,
             over.error.empty() ? "it ended with code " + std::to_string(*code) : over.error,
             over.code);
      continue;
    }
    done_(over.order);
    serve::JobNews news;
    news.job = over.order.job;
    news.done = true;
    news.status = "success";
    tell_(news);
  }
}

}  // namespace quire::cli
