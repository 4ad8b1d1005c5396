// A device that runs step programs: the only interface between the worker and its kernels.
//
// Owned by the runner; called from the engine's thread only. A Backend owns its thread pool, a
// LoadedProgram owns the packed weights, the page pool and all workspace.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/communicator.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"
#include "kernels/step_program.h"

namespace quire::kernels {

struct StepTimes;

struct ProgramOptions {
  KvLayout kv;
  int64_t page_count = 0;  // of the pool; page ids are 0 … page_count − 1
  int max_tokens = 2048;   // per step, largest StepBatch::tokens
  int max_rows = 64;       // largest StepBatch::rows
  int max_samples =
      64;  // logits held at once; a larger StepBatch::sampled_tokens is processed in slices
  int max_loras = 0;      // slots of adapters
  int max_lora_rank = 0;  // the largest rank of their matrices
  int max_positions = 0;  // the longest context that rows will have; 0: the program's
  // Connects the ranks of a program that is cut among several; borrowed, absent for one rank. Its
  // rank and size are the program's.
  Communicator* communicator = nullptr;
  // How long a capture of a step may wait for the library that joins ranks; everything else at the
  // start waits as long as the communicator allows. 0: captures too.
  int64_t capture_wait_micros = 0;
  StepTimes* times = nullptr;  // step_times.h: CPUs add to it; borrowed, may be absent
  // Called with the progress of packing: bytes of source weights packed, of the total. May be
  // empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  // Called when source memory has been packed and will not be read again, so that its pages can be
  // dropped from memory. May be empty.
  std::function<void(const void* data, int64_t bytes)> release_source;
};

// What a device keeps of a program's quantised matrices, those that some op reads.
struct WeightForms {
  int quantised = 0;         // unchanged, except for the order of their bits
  int expanded = 0;          // as floats
  std::string expanded_why;  // one of them, and why
};

// In bytes, of the whole device: other processes may use it too. 0 where the host's memory is used.
struct DeviceMemoryUse {
  int64_t total = 0;
  int64_t free = 0;
};

class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;

  // Runs one step to its end and fills batch.sample_outputs. Requires: sizes within ProgramOptions,
  // and with several ranks the same batch on each. Once a collective has failed, steps end early
  // and their results are unspecified: check Communicator::failure after a step.
  virtual void Run(const StepBatch& batch) = 0;

  // Steps that may be launched and not yet collected. With 1 there is only Run.
  virtual int MaxInFlight() const { return 1; }
  // Queues a step behind those launched before and returns when the batch has been read;
  // sample_outputs are not written. Requires: fewer than MaxInFlight() in flight.
  virtual void Launch(const StepBatch& /*batch*/) { std::abort(); }
  // Whether the oldest step in flight has ended. Requires: there is one.
  virtual bool Done() { return true; }
  // Waits for the oldest step in flight and returns its samples: as many as it was launched with.
  virtual void Collect(std::span<SampleOutput> /*outputs*/) { std::abort(); }

  // The rows of StepProgram::features of the step that Run has computed, one for each token.
  // Requires: the program has features; a device that shows none refuses such a program.
  virtual FeatureRows Features() const { std::abort(); }
  // What the program's EmbedOp writes for these tokens, at most max_tokens of them; Features stay.
  // Requires: a table and no positions, on a device that shows features.
  virtual FeatureRows Embed(std::span<const int32_t> /*tokens*/) { std::abort(); }

  // For tests: also copies the logits of the sampled rows, [samples, ids of this rank].
  virtual void RunWithLogits(const StepBatch& batch, std::span<float> logits) = 0;

  // The device's failure, in one line; empty while it works. After a failure steps do nothing and
  // their results are unspecified.
  virtual std::string Failure() const { return {}; }

  // Fills a page with NaN: tests do so with every page that is freed.
  virtual void PoisonPage(int32_t page) = 0;

  virtual int64_t WeightBytes() const = 0;  // packed, resident
  virtual int64_t WorkspaceBytes() const = 0;
  virtual int64_t PoolBytes() const = 0;

  // An adapter as this device keeps it, for SetAdapter. Any thread. Requires: matrices as the
  // program's targets have them, of ranks from 1 to max_lora_rank.
  virtual std::shared_ptr<const AdapterWeights> PackAdapter(const Adapter& /*adapter*/) const {
    std::abort();
  }
  // From the next step on the slot holds this adapter; null: none. Called between steps, on the
  // thread that runs them, once no row names what the slot held before.
  virtual void SetAdapter(int /*slot*/, std::shared_ptr<const AdapterWeights> /*adapter*/) {
    std::abort();
  }

  // The number of pages: less than ProgramOptions::page_count where a device had no memory left for
  // them. 0: as many as were requested.
  virtual int64_t PageCount() const { return 0; }
  // For a device with its own memory; constant once a program is loaded.
  virtual DeviceMemoryUse DeviceMemory() { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Packs the weights and reserves pages and workspace. Requires: a program whose shapes agree (the
  // model builder has checked them). Throws nothing; running out of memory ends the process.
  virtual std::unique_ptr<LoadedProgram> Load(const StepProgram& program,
                                              const ProgramOptions& options) = 0;

  // Why this device cannot run the program, in one line; empty: it can. Load requires that it can.
  virtual std::string Refusal(const StepProgram& /*program*/,
                              const ProgramOptions& /*options*/) const {
    return {};
  }
  // Whether Load has the writers of weights write their rows, and reads no memory for those.
  virtual bool TakesRowWriters() const { return false; }
  // The type of pages that this device prefers for a program's keys and values.
  virtual KvShape PageShape(const StepProgram& program, int block_size) const {
    return KvShapeOf(program, block_size, KvType::kF32);
  }

  // Bytes that Load would keep resident, without loading: packed weights and workspace.
  virtual int64_t EstimateWeightBytes(const StepProgram& program) const = 0;
  virtual int64_t EstimateWorkspaceBytes(const StepProgram& program,
                                         const ProgramOptions& options) const = 0;
  // The most that one adapter of at most this rank takes.
  virtual int64_t EstimateAdapterBytes(const StepProgram& /*program*/, int /*rank*/) const {
    return 0;
  }
  // How Load would keep quantised weights; none, where the device has no choice.
  virtual WeightForms FormsOfWeights(const StepProgram& /*program*/) const { return {}; }
  // How it rounds activations because a checkpoint asks for it, for people ("int8 per token");
  // empty: it does not.
  virtual std::string RoundedActivations(const StepProgram& /*program*/) const { return {}; }
  // The part of the workspace that Load requests from Communicator::Allocate. 0 with one rank.
  virtual int64_t EstimateSharedBytes(const StepProgram& /*program*/,
                                      const ProgramOptions& /*options*/) const {
    return 0;
  }

  // Steps that its programs take at a time: LoadedProgram::MaxInFlight of such a program.
  virtual int MaxInFlight(const StepProgram& /*program*/) const { return 1; }

  // Everything that changes the bits of a program: device kind, kernel revision, numerics class.
  // Part of numerics_id.
  virtual std::string NumericsClass(const StepProgram& program) const = 0;
  // For the log: instruction set, threads.
  virtual std::string Description() const = 0;
};

struct CpuOptions {
  int threads = 0;   // 0: one per CPU in the affinity mask
  bool numa = true;  // on a host with several memory nodes, threads and weights stay on theirs
  int rank = 0;      // ranks of one worker divide the nodes: this one's number, and how many
  int ranks = 1;
  // "auto", "reference", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx": the best
  // that is allowed and present.
  std::string isa = "auto";
  // "float32", "bfloat16", "int8": the type that activations are multiplied in. "w8a8": they are
  // rounded as the checkpoint asks. "auto": int8 for programs whose quantised weights all have
  // formats that pass its gate (kernels/README.md), else float32.
  std::string activation_dtype = "float32";
};

// Returns null and an explanation in `error` when the host lacks what the options require.
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options, std::string& error);

}  // namespace quire::kernels
