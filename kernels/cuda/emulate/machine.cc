#include "kernels/cuda/emulate/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::kernels::cuda::emulate {
namespace {

constexpr uint32_t kMaxResident = 4;
// Distance of two blocks' shared buffers: what lies behind a buffer belongs to nobody.
constexpr size_t kSharedStride = Emulator::kMaxSharedBytes + (29 << 10);

void FiberEntry() {
  Machine& machine = *RunningMachine();
  machine.EnterKernel();
  machine.EndThread();
}

}  // namespace

Machine*& RunningMachine() {
  thread_local Machine* machine = nullptr;
  return machine;
}

Machine::~Machine() {
  if (shared_slab_ != nullptr) munmap(shared_slab_, kMaxResident * kSharedStride);
}

void Machine::Prepare() {
  if (shared_slab_ == nullptr) {
    void* at = mmap(nullptr, kMaxResident * kSharedStride, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    shared_slab_ = static_cast<unsigned char*>(at);
  }
  const uint32_t resident = checks_ ? 1 + random_.Below(kMaxResident) : 1;
  const uint32_t threads = static_cast<uint32_t>(kernel_->threads);
  stacks_.Resize(size_t{kMaxResident} * threads);
  blocks_.clear();
  for (uint32_t i = 0; i < resident; ++i) {
    auto block = std::make_unique<Block>();
    block->shared = shared_slab_ + i * kSharedStride;
    if (checks_) block->cells.resize((shape_.shared_bytes + 3) / 4);
    block->warps.resize(threads / 32);
    block->threads.resize(threads);
    for (uint32_t t = 0; t < threads; ++t) {
      Thread& thread = block->threads[t];
      thread.fiber = size_t{i} * threads + t;
      thread.warp = &block->warps[t / 32];
    }
    blocks_.push_back(std::move(block));
  }
}

void Machine::StartBlock(Block& block) {
  const uint32_t at = random_.Below(static_cast<uint32_t>(order_.size()));
  const uint32_t number = order_[at];
  order_[at] = order_.back();
  order_.pop_back();
  block.index = {number % shape_.grid_x, number / shape_.grid_x % shape_.grid_y,
                 number / shape_.grid_x / shape_.grid_y};
  block.serial = next_serial_++;
  block.epoch = block.waiting = 0;
  block.alive = static_cast<uint32_t>(block.threads.size());
  block.running = true;
  block.acquisitions.clear();
  if (checks_) memset(block.shared, 0xff, shape_.shared_bytes);
  for (Cell& cell : block.cells) shared_shadow_.Clear(cell);
  for (uint32_t w = 0; w < block.warps.size(); ++w) {
    Warp& warp = block.warps[w];
    warp = Warp();
    warp.block = &block;
    warp.first_thread = 32 * w;
    MakeReady(warp, 0xffffffffu);
  }
  for (uint32_t t = 0; t < block.threads.size(); ++t) {
    Thread& thread = block.threads[t];
    Thread fresh;
    fresh.fiber = thread.fiber;
    fresh.warp = thread.warp;
    fresh.place.block = block.index;
    fresh.place.grid = {shape_.grid_x, shape_.grid_y, shape_.grid_z};
    fresh.place.thread = t;
    fresh.place.threads = static_cast<uint32_t>(block.threads.size());
    // Stacks begin at different places of the cache's sets.
    const size_t shift = t * 192u % 8192u;
    fresh.stack_pointer =
        NewFiber(stacks_.At(fresh.fiber), FiberStacks::kStackBytes - shift, &FiberEntry);
    thread = std::move(fresh);
  }
  ++report_.counters.blocks;
}

void Machine::FinishBlock(Block& block) {
  block.running = false;
  for (Warp& warp : block.warps) CountWarp(warp);
  for (const Thread& thread : block.threads) {
    if (!stacks_.Intact(thread.fiber)) {
      fprintf(stderr, "emulated grid: %s overflows a fiber's stack\n", kernel_->name);
      abort();
    }
  }
}

Report Machine::Run(const runtime::KernelHandle& kernel, const runtime::LaunchShape& shape,
                    uint64_t seed, uint32_t running) {
  report_ = Report();
  random_ = Random(seed);
  kernel_ = &kernel;
  shape_ = shape;
  first_serial_ = report_.first_block = next_serial_;
  running_serial_ = running == 0 ? first_serial_ : running;
  ready_.clear();
  released_.clear();
  report_.counters.launches = 1;
  params_.resize(shape.params_bytes);
  memcpy(params_.data(), shape.params, shape.params_bytes);
  order_.resize(size_t{shape.grid_x} * shape.grid_y * shape.grid_z);
  for (uint32_t i = 0; i < order_.size(); ++i) order_[i] = i;
  RunningMachine() = this;
  Prepare();
  for (bool any = true; any;) {
    any = false;
    for (auto& block : blocks_) {
      if (block->running && block->alive == 0) FinishBlock(*block);
      if (!block->running && !order_.empty()) StartBlock(*block);
      any = any || block->running;
    }
    if (!any) break;
    current_ = nullptr;
    Thread* next = Pick();
    if (next == nullptr) {
      ReportDeadlock();
      break;
    }
    current_ = next;
    quire_switch_fiber(&host_stack_pointer_, next->stack_pointer);
  }
  RunningMachine() = nullptr;
  return std::move(report_);
}

void Machine::ReportDeadlock() {
  for (auto& block : blocks_) {
    if (!block->running) continue;
    for (Warp& warp : block->warps) {
      if (warp.met != 0) {
        Violation(block->threads[warp.first_thread + __builtin_ctz(warp.met)],
                  "waits for lanes of its warp that never come");
      }
    }
    if (block->waiting != 0) {
      Violation(block->threads[0], "stands in a block with a barrier that not all threads reach");
    }
  }
}

void Machine::MakeReady(Warp& warp, uint32_t lanes) {
  if (warp.ready == 0 && lanes != 0) ready_.push_back(&warp);
  warp.ready |= lanes;
}

Thread* Machine::Pick() {
  Warp* warp = nullptr;
  if (!checks_) {
    if (current_ != nullptr && current_->warp->ready != 0) {
      warp = current_->warp;
    } else if (!ready_.empty()) {
      warp = ready_.back();
    } else {
      return nullptr;
    }
    const auto lane = static_cast<uint32_t>(__builtin_ctz(warp->ready));
    warp->ready &= warp->ready - 1;
    if (warp->ready == 0) ready_.erase(std::find(ready_.begin(), ready_.end(), warp));
    return &warp->block->threads[warp->first_thread + lane];
  }
  // Mostly the lanes of one warp follow each other, so that its meetings complete.
  if (current_ != nullptr && current_->warp->ready != 0 && random_.Below(16) != 0) {
    warp = current_->warp;
  } else if (!ready_.empty()) {
    warp = ready_[random_.Below(static_cast<uint32_t>(ready_.size()))];
  } else {
    return nullptr;
  }
  const uint32_t turn = static_cast<uint32_t>(random_.Next()) & 31u;
  const uint32_t turned = warp->ready >> turn | (turn == 0 ? 0 : warp->ready << (32 - turn));
  const uint32_t lane = (static_cast<uint32_t>(__builtin_ctz(turned)) + turn) & 31u;
  warp->ready &= ~(1u << lane);
  if (warp->ready == 0) ready_.erase(std::find(ready_.begin(), ready_.end(), warp));
  return &warp->block->threads[warp->first_thread + lane];
}

void Machine::Suspend() {
  Thread* self = current_;
  Thread* next = Pick();
  if (next == self) return;
  current_ = next;
  quire_switch_fiber(&self->stack_pointer,
                     next == nullptr ? host_stack_pointer_ : next->stack_pointer);
}

void Machine::MaybeYield() {
  if (!checks_ || random_.Below(4) != 0) return;
  MakeReady(*current_->warp, 1u << current_->Lane());
  Suspend();
}

void Machine::Meet(Meeting meeting, void* argument) {
  Thread& self = *current_;
  Warp& warp = *self.warp;
  MoveSome(self);
  if (warp.met == 0) {
    warp.meeting = meeting;
  } else if (warp.meeting != meeting) {
    Violation(self, "meets lanes of its warp that are at another warp-wide operation");
  }
  warp.argument[self.Lane()] = argument;
  warp.met |= 1u << self.Lane();
  if (warp.met != 0xffffffffu) {
    Suspend();
    return;
  }
  warp.met = 0;
  meeting(*this, warp);
  MakeReady(warp, 0xffffffffu);  // itself too: anyone may go on first
  Suspend();
}

void Machine::BlockBarrier() {
  Thread& self = *current_;
  Block& block = SelfBlock();
  MoveSome(self);
  if (++block.waiting < block.threads.size()) {
    Suspend();
    return;
  }
  block.waiting = 0;
  ++block.epoch;
  ++report_.counters.block_barriers;
  for (Warp& warp : block.warps) {
    CountWarp(warp);
    MakeReady(warp, 0xffffffffu);
  }
  Suspend();
}

void Machine::EndThread() {
  Thread& self = *current_;
  if (!self.copies.empty()) {
    Violation(self, "ends while asynchronous copies are under way that it never waited for");
    for (PendingCopy& copy : self.copies) Move(copy);
    self.copies.clear();
  }
  if (!self.waited) {
    // Its end would stand for the ends of the kernels before it, which may still run.
    Violation(self, "ends without having waited for the kernels before it");
  }
  const bool last = --SelfBlock().alive == 0;
  Thread* next = last ? nullptr : Pick();
  void* dead = nullptr;
  current_ = next;
  quire_switch_fiber(&dead, next == nullptr ? host_stack_pointer_ : next->stack_pointer);
  abort();  // an ended fiber is never resumed
}

void Machine::Violation(const Thread& thread, const std::string& what) {
  // One of each kind is enough to mend it; the text up to the first bracket is the kind.
  const std::string kind = what.substr(0, what.find(" ("));
  for (const std::string& seen : report_.violations) {
    if (seen.find(kind) != std::string::npos) return;
  }
  if (report_.violations.size() >= Emulator::kMaxViolations) return;
  char where[128];
  const emulated::Place& at = thread.place;
  snprintf(where, sizeof(where), "%s: block (%u, %u, %u) thread %u ", kernel_->name, at.block.x,
           at.block.y, at.block.z, at.thread);
  report_.violations.push_back(where + what);
}

void Machine::EnterKernel() const {
  reinterpret_cast<void (*)(const void*)>(const_cast<void*>(kernel_->entry))(params_.data());
}

void Counters::Add(const Counters& other) {
  launches += other.launches;
  blocks += other.blocks;
  global_read_bytes += other.global_read_bytes;
  global_write_bytes += other.global_write_bytes;
  tensor_tiles += other.tensor_tiles;
  matrix_loads += other.matrix_loads;
  bank_conflicts += other.bank_conflicts;
  async_copies += other.async_copies;
  block_barriers += other.block_barriers;
}

Emulator::Emulator(Checks checks)
    : memory_(std::make_unique<DeviceMemory>()),
      machine_(std::make_unique<Machine>(*memory_, checks)) {}
Emulator::~Emulator() = default;

Report Emulator::Run(const runtime::KernelHandle& kernel, const runtime::LaunchShape& shape,
                     uint64_t seed, uint32_t running) {
  const uint64_t blocks = uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  // Of a grid, x may have 2³¹ − 1 blocks, which the bound on all of them is within.
  constexpr uint32_t kMaxGridYZ = 65'535;
  const bool fits = shape.grid_y <= kMaxGridYZ && shape.grid_z <= kMaxGridYZ &&
                    kernel.threads > 0 && kernel.threads % 32 == 0 &&
                    kernel.threads <= static_cast<int>(kMaxThreads) && blocks > 0 &&
                    blocks <= (1u << 24) && shape.shared_bytes <= kMaxSharedBytes &&
                    shape.params_bytes <= runtime::kMaxParamsBytes;
  if (!fits) {
    Report report;
    report.violations.push_back(
        std::string(kernel.name) +
        ": launch refused: whole warps up to 1024 threads, at least one "
        "block, at most 65535 of y or z, at most 232448 bytes of shared memory "
        "and 4096 of params");
    return report;
  }
  return machine_->Run(kernel, shape, seed, running);
}

}  // namespace quire::kernels::cuda::emulate
