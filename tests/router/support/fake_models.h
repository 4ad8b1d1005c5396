// The models of a machine that a test plays by hand: it records what the edge asked for, and ends
// it by script.
//
// Event loop only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "router/edge/model_control.h"

namespace quire {

class FakeModels : public ModelControl {
 public:
  explicit FakeModels(Executor& executor) : executor_(executor) {}

  std::vector<MachineModel> models = {
      {"demo", serve::ModelState::kReady, 1000, 3000, 1'700'000'000, 0, 1'700'000'300}};
  std::vector<std::string> asked;   // "load demo", "keep demo 5" …
  std::optional<ApiError> failure;  // what ends a load, an unload, or a job before it begins
  bool ends = true;                 // of its own accord
  size_t left = 0;                  // clients that have left their task
  std::map<std::string, JobProgress> jobs;

  std::vector<MachineModel> MachineModels() const override { return models; }
  std::string MachineName(const std::string& name) const override {
    for (const MachineModel& model : models) {
      if (model.name == name) return name;
    }
    return "";
  }
  std::unique_ptr<ControlTask> Load(const std::string& name, ControlDone done) override {
    return Begin("load " + name, std::move(done));
  }
  std::unique_ptr<ControlTask> Unload(const std::string& name, ControlDone done) override {
    return Begin("unload " + name, std::move(done));
  }
  std::unique_ptr<ControlTask> Sleep(ControlDone done) override {
    return Begin("sleep", std::move(done));
  }
  std::unique_ptr<ControlTask> WakeUp(ControlDone done) override {
    return Begin("wake", std::move(done));
  }
  bool Asleep() const override { return false; }
  void KeepAlive(const std::string& name, Micros time) override {
    asked.push_back("keep " + name + " " + std::to_string(time));
  }
  std::unique_ptr<ControlTask> Pull(const std::string& name, JobProgress progress,
                                    std::optional<ApiError>& refused) override {
    return Job("pull " + name, std::move(progress), refused);
  }
  std::unique_ptr<ControlTask> Remove(const std::string& name, JobProgress progress,
                                      std::optional<ApiError>& refused) override {
    return Job("remove " + name, std::move(progress), refused);
  }

 private:
  class Task final : public ControlTask {
   public:
    explicit Task(FakeModels& owner) : owner_(owner) {}
    ~Task() override { ++owner_.left; }

   private:
    FakeModels& owner_;
  };

  std::unique_ptr<ControlTask> Begin(std::string what, ControlDone done) {
    asked.push_back(std::move(what));
    if (ends) executor_.Post([done = std::move(done), failure = failure] { done(failure); });
    return std::make_unique<Task>(*this);
  }
  std::unique_ptr<ControlTask> Job(const std::string& what, JobProgress progress,
                                   std::optional<ApiError>& refused) {
    asked.push_back(what);
    refused = failure;
    if (refused) return nullptr;
    jobs[what] = std::move(progress);
    return std::make_unique<Task>(*this);
  }

  Executor& executor_;
};

}  // namespace quire
