// The backend of quire-worker-hanging: the CPU's, whose steps go wrong when a signal says so. From
// SIGUSR1 on no step ends; the one that follows a SIGUSR2 takes kSlowMillis longer.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace quire::kernels {

// What worker/rank_programs.cc calls in the place of MakeCpuBackend (cmake/tests.cmake).
std::unique_ptr<Backend> MakeHangingBackend(const CpuOptions& options, std::string& error);

namespace {

constexpr int kSlowMillis = 700;  // a step may always take 2,000

// A handler has nothing but globals to speak to.
std::atomic<bool> hang{false};
std::atomic<bool> slow{false};

void HangFromNowOn(int /*signal*/) { hang = true; }
void BeSlowOnce(int /*signal*/) { slow = true; }

class HangingProgram final : public LoadedProgram {
 public:
  explicit HangingProgram(std::unique_ptr<LoadedProgram> works) : works_(std::move(works)) {}

  void Run(const StepBatch& batch) override {
    GoWrong();
    works_->Run(batch);
  }
  void RunWithLogits(const StepBatch& batch, std::span<float> logits) override {
    GoWrong();
    works_->RunWithLogits(batch, logits);
  }
  std::string Failure() const override { return works_->Failure(); }
  void PoisonPage(int32_t page) override { works_->PoisonPage(page); }
  int64_t WeightBytes() const override { return works_->WeightBytes(); }
  int64_t WorkspaceBytes() const override { return works_->WorkspaceBytes(); }
  int64_t PoolBytes() const override { return works_->PoolBytes(); }

 private:
  static void GoWrong() {
    while (hang) pause();
    if (!slow.exchange(false)) return;
    timespec left{kSlowMillis / 1000, kSlowMillis % 1000 * 1'000'000};
    while (nanosleep(&left, &left) != 0) continue;
  }

  std::unique_ptr<LoadedProgram> works_;
};

class HangingBackend final : public Backend {
 public:
  explicit HangingBackend(std::unique_ptr<Backend> works) : works_(std::move(works)) {}

  std::unique_ptr<LoadedProgram> Load(const StepProgram& program,
                                      const ProgramOptions& options) override {
    return std::make_unique<HangingProgram>(works_->Load(program, options));
  }
  std::string Refusal(const StepProgram& program, const ProgramOptions& options) const override {
    return works_->Refusal(program, options);
  }
  KvShape PageShape(const StepProgram& program, int block_size) const override {
    return works_->PageShape(program, block_size);
  }
  int64_t EstimateWeightBytes(const StepProgram& program) const override {
    return works_->EstimateWeightBytes(program);
  }
  int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                 const ProgramOptions& options) const override {
    return works_->EstimateWorkspaceBytes(program, options);
  }
  int64_t EstimateSharedBytes(const StepProgram& program,
                              const ProgramOptions& options) const override {
    return works_->EstimateSharedBytes(program, options);
  }
  std::string NumericsClass(const StepProgram& program) const override {
    return works_->NumericsClass(program);
  }
  std::string Description() const override { return works_->Description(); }

 private:
  std::unique_ptr<Backend> works_;
};

}  // namespace

std::unique_ptr<Backend> MakeHangingBackend(const CpuOptions& options, std::string& error) {
  signal(SIGUSR1, HangFromNowOn);
  signal(SIGUSR2, BeSlowOnce);
  std::unique_ptr<Backend> works = MakeCpuBackend(options, error);
  if (works == nullptr) return nullptr;
  return std::make_unique<HangingBackend>(std::move(works));
}

}  // namespace quire::kernels
