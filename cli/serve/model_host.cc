#include "cli/serve/model_host.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "cli/serve/ready_line.h"
#include "common/memory_limits.h"

namespace quire::cli {

using serve::ModelState;

namespace {

constexpr int64_t kLeastKvBytes = int64_t{256} << 20;  // cache and workspace of a small model
constexpr int64_t kUnknownMemory = int64_t{1} << 50;   // no file of the system has a number

int64_t UsableHere() {
  const int64_t bytes = UsableMemory(ReadMemoryFiles("/")).usable_bytes;
  return bytes > 0 ? bytes : kUnknownMemory;
}

std::string ReasonOf(int code) {
  switch (code) {
    case 2:
      return "its worker refused a setting";
    case 3:
      return "its files are unusable, or do not fit into memory";
    case 4:
      return "its device is unusable";
    default:
      return "its worker ended with code " + std::to_string(code);
  }
}

}  // namespace

int64_t LeastMemory(int64_t file_bytes) { return file_bytes + file_bytes / 5 + kLeastKvBytes; }

int64_t MemoryShare(int64_t file_bytes, int64_t left) {
  return std::min(left, std::max(2 * LeastMemory(file_bytes), left / 2));
}

struct ModelHost::Worker {
  int number = 0;  // the label of its metrics
  std::string name;
  std::optional<ChildProcess> process;
  RestartPolicy policy;
  int64_t start_at_ms = 0;  // when to start it; −1: not now
  bool ready_once = false;
  bool given_up = false;
  std::string listen;  // of the first start, kept for the next ones
  std::string http;
  std::string ready_line;
};

struct ModelHost::Model {
  HostedModel what;
  ModelState state = ModelState::kAbsent;
  std::string error;
  bool no_room = false;
  bool was_unloaded = false;  // by somebody who asked: it is like any other from then on
  int64_t memory_bytes = 0;
  serve::ModelMakeup makeup;
  std::vector<std::unique_ptr<Worker>> workers;
};

ModelHost::ModelHost(HostOptions options, Tell tell)
    : options_(std::move(options)),
      tell_(std::move(tell)),
      memory_bytes_(options_.memory_bytes > 0 ? options_.memory_bytes : UsableHere()) {}

ModelHost::~ModelHost() = default;

ModelHost::Model* ModelHost::Get(const std::string& name) {
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : found->second.get();
}

const HostedModel* ModelHost::Find(const std::string& name) const {
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : &found->second->what;
}

void ModelHost::Add(const HostedModel& what) {
  if (models_.size() >= serve::kMaxModels && !models_.contains(what.name)) return;
  std::unique_ptr<Model>& model = models_[what.name];
  if (model == nullptr) {
    model = std::make_unique<Model>();
    model->what = what;
  } else if (model->state == ModelState::kAbsent) {
    model->what = what;  // pulled again
  }
  Say(*model);
}

void ModelHost::Forget(const std::string& name) {
  const Model* model = Get(name);
  if (model == nullptr || model->state != ModelState::kAbsent) return;
  serve::ModelNews news;
  news.name = name;
  news.gone = true;
  tell_(news);
  models_.erase(name);
}

void ModelHost::TellAll() const {
  for (const auto& [name, model] : models_) Say(*model);
}

void ModelHost::Say(const Model& model) const {
  serve::ModelNews news;
  news.name = model.what.name;
  news.state = model.state;
  news.kept = model.what.required;
  news.no_room = model.no_room;
  news.file_bytes = model.what.file_bytes;
  news.memory_bytes = model.memory_bytes;
  news.modified = model.what.modified;
  news.makeup = model.makeup;
  news.error = model.error;
  for (const auto& worker : model.workers) {
    if (worker->listen.empty()) continue;
    news.workers.push_back({worker->listen, worker->http, std::to_string(worker->number)});
  }
  tell_(news);
}

int64_t ModelHost::MemoryLeft() const {
  int64_t taken = 0;
  for (const auto& [name, model] : models_) {
    if (model->state != ModelState::kAbsent) taken += model->memory_bytes;
  }
  return std::min(memory_bytes_ - taken, UsableHere());
}

int ModelHost::FreeNumber() const {
  std::set<int> taken;
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) taken.insert(worker->number);
  }
  int number = 0;
  while (taken.contains(number)) ++number;
  return number;
}

void ModelHost::Load(const std::string& name) {
  Model* model = Get(name);
  if (model == nullptr || stopping_) return;
  if (model->state != ModelState::kAbsent) return Say(*model);
  model->error.clear();
  const bool alone = std::all_of(models_.begin(), models_.end(), [](const auto& one) {
    return one.second->state == ModelState::kAbsent;
  });
  const int64_t left = MemoryLeft();
  model->no_room = !alone && LeastMemory(model->what.file_bytes) > left;
  if (model->no_room) return Say(*model);
  model->memory_bytes = model->what.required ? 0 : MemoryShare(model->what.file_bytes, left);
  model->state = ModelState::kLoading;
  const int count = model->what.required ? options_.workers : 1;
  for (int i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->number = FreeNumber();
    worker->name = model->what.required ? (count == 1 ? "worker" : "worker " + std::to_string(i))
                                        : "worker of " + name;
    model->workers.push_back(std::move(worker));
  }
  Say(*model);
  Work(NowMs());
}

void ModelHost::Unload(const std::string& name) {
  Model* model = Get(name);
  if (model == nullptr) return;
  if (model->state == ModelState::kAbsent || model->state == ModelState::kStopping) {
    return Say(*model);
  }
  model->state = ModelState::kStopping;
  model->was_unloaded = true;
  for (const auto& worker : model->workers) {
    worker->start_at_ms = -1;
    if (worker->process) worker->process->Signal(SIGTERM);
  }
  Settle(*model);
}

// Once no worker of a model that stops is left, it is absent.
void ModelHost::Settle(Model& model) {
  if (model.state == ModelState::kStopping) {
    std::erase_if(model.workers, [](const auto& worker) { return !worker->process.has_value(); });
    if (model.workers.empty()) {
      model.state = ModelState::kAbsent;
      model.memory_bytes = 0;
    }
  }
  Say(model);
}

void ModelHost::StartWorker(Model& model, Worker& worker) {
  worker.start_at_ms = -1;
  std::vector<std::string> args = {"--model=" + model.what.path};
  args.insert(args.end(), options_.worker_args.begin(), options_.worker_args.end());
  if (!model.what.named_by_flag) {  // the flag names another model
    std::erase_if(args, [](const auto& arg) { return arg.starts_with("--served-model-name="); });
    args.push_back("--served-model-name=" + model.what.name);
  }
  if (!model.what.required) args.push_back("--max-memory=" + std::to_string(model.memory_bytes));
  const std::string& listen = model.what.required ? options_.worker_listen : "127.0.0.1:0";
  args.push_back("--listen=" + (worker.listen.empty() ? listen : worker.listen));
  args.push_back("--http-port=" + (worker.http.empty() ? "0" : PortOf(worker.http)));
  if (model.what.required && options_.workers > 1) {
    args.push_back("--workers-on-host=" + std::to_string(options_.workers));
  }
  std::vector<std::string> environment = options_.environment;
  environment.insert(environment.end(), options_.secrets.begin(), options_.secrets.end());
  auto process = ChildProcess::Start(options_.worker_program, args, environment);
  if (!process.ok()) {
    std::fprintf(stderr, "quire serve: %s\n", StatusMessage(process.status()).c_str());
    return OnDeath(model, worker, 1);
  }
  worker.process.emplace(*std::move(process));
}

void ModelHost::OnReady(Model& model, Worker& worker, const std::string& line) {
  if (line.empty()) return;  // the child is ending; OnDeath follows
  worker.ready_once = true;
  worker.ready_line = line;
  worker.listen = Member(line, "listen");
  worker.http = Member(line, "http");
  model.makeup = {Member(line, "format"), Member(line, "family"), Member(line, "quantisation"),
                  NumberMember(line, "parameters")};
  if (model.state == ModelState::kStopping) return;
  int64_t planned = 0;
  bool ready = false;  // as soon as one is: the router finds the others as they come
  for (const auto& one : model.workers) {
    planned += NumberMember(one->ready_line, "planned_bytes");
    ready = ready || one->ready_once;
  }
  if (planned > 0) model.memory_bytes = planned;
  if (ready) model.state = ModelState::kReady;
  Say(model);
}

void ModelHost::OnDeath(Model& model, Worker& worker, int code) {
  worker.process.reset();
  if (stopping_ || model.state == ModelState::kStopping) return Settle(model);
  if (model.what.required && !model.was_unloaded) return OnDeathOfRequired(model, worker, code);
  if (worker.ready_once) {
    const int64_t wait_ms = worker.policy.OnDeath(NowMs());
    std::fprintf(
        stderr, "quire serve: the %s ended with code %d; %s\n", worker.name.c_str(), code,
        wait_ms < 0 ? "it is not started again until the model is asked for" : "it starts again");
    if (wait_ms >= 0) {
      worker.start_at_ms = NowMs() + wait_ms;
      return;  // the router copes meanwhile: its streams wait for a worker
    }
  }
  model.error = ReasonOf(code) + "; what quire serve prints says more";
  model.workers.clear();
  model.state = ModelState::kAbsent;
  model.memory_bytes = 0;
  Say(model);
}

void ModelHost::OnDeathOfRequired(Model& model, Worker& worker, int code) {
  if (!worker.ready_once && IsConfigurationCode(code)) {
    failure_ = code;  // the child has reported the reason
    return;
  }
  const int64_t wait_ms = worker.policy.OnDeath(NowMs());
  if (wait_ms >= 0) {
    std::fprintf(stderr, "quire serve: the %s ended with code %d; it starts again in %.1f s\n",
                 worker.name.c_str(), code, static_cast<double>(wait_ms) / 1000.0);
    worker.start_at_ms = NowMs() + wait_ms;
    return;
  }
  worker.given_up = true;
  std::fprintf(stderr,
               "quire serve: the %s ended with code %d and is given up: %d failures in %d s\n",
               worker.name.c_str(), code, kMaxFailures, static_cast<int>(kFailureWindowMs / 1000));
  const bool all_gone = std::all_of(model.workers.begin(), model.workers.end(),
                                    [](const auto& one) { return one->given_up; });
  if (all_gone) failure_ = 1;
}

void ModelHost::Work(int64_t now_ms) {
  for (const auto& [name, model] : models_) {
    // A worker's end may take the others away.
    for (size_t i = 0; i < model->workers.size(); ++i) {
      Worker& worker = *model->workers[i];
      if (!stopping_ && !worker.process && worker.start_at_ms >= 0 &&
          worker.start_at_ms <= now_ms) {
        StartWorker(*model, worker);
        continue;
      }
      if (!worker.process) continue;
      if (worker.process->ready_fd() >= 0) {
        if (const auto line = worker.process->ReadReadyLine()) OnReady(*model, worker, *line);
      }
      if (const auto code = worker.process->TryReap()) OnDeath(*model, worker, *code);
    }
  }
}

void ModelHost::AddDescriptors(std::vector<int>& descriptors) const {
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) {
      if (worker->process && worker->process->ready_fd() >= 0) {
        descriptors.push_back(worker->process->ready_fd());
      }
    }
  }
}

int64_t ModelHost::NextStartMs() const {
  int64_t next = -1;
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) {
      if (worker->process || worker->start_at_ms < 0) continue;
      next = next < 0 ? worker->start_at_ms : std::min(next, worker->start_at_ms);
    }
  }
  return next;
}

void ModelHost::Stop() {
  stopping_ = true;
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) worker->start_at_ms = -1;
  }
  SignalAll(SIGTERM);
}

void ModelHost::SignalAll(int signal) {
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) {
      if (worker->process) worker->process->Signal(signal);
    }
  }
}

void ModelHost::KillAll() {
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) worker->process.reset();
  }
}

bool ModelHost::any_running() const {
  for (const auto& [name, model] : models_) {
    for (const auto& worker : model->workers) {
      if (worker->process) return true;
    }
  }
  return false;
}

bool ModelHost::settled() const {
  for (const auto& [name, model] : models_) {
    if (!model->what.required || model->was_unloaded) continue;
    for (const auto& worker : model->workers) {
      if (!worker->ready_once && !worker->given_up) return false;
    }
  }
  return true;
}

std::string ModelHost::memory_line() const {
  for (const auto& [name, model] : models_) {
    if (!model->what.required) continue;
    for (const auto& worker : model->workers) {
      std::string line = Member(worker->ready_line, "memory");
      if (!line.empty()) return line;
    }
  }
  return "";
}

}  // namespace quire::cli
