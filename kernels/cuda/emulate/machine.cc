#include "kernels/cuda/emulate/machine.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::kernels::cuda::emulate {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
// One in so many switches leaves the warp: its lanes' stacks are in the processor's cache, the next
// warp's mostly are not.
constexpr uint32_t kStayInWarp = 512;
static_assert(Machine::kSharedStride > Emulator::kMaxSharedBytes);

void FiberEntry() {
  Machine& machine = *running_machine;
  machine.EnterKernel();
  machine.EndThread();
}

}  // namespace

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
  resident_ = checks_ ? 1 + random_.Below(kMaxResident) : 1;
  const auto threads = static_cast<uint32_t>(kernel_->threads);
  stacks_.Resize(size_t{kMaxResident} * threads, size_t{resident_} * threads);
  for (uint32_t i = 0; i < resident_; ++i) ShapeBlock(i, threads);
}

// What a resident block keeps from launch to launch, where they have as many threads.
void Machine::ShapeBlock(uint32_t number, uint32_t threads) {
  Block& block = blocks_[number];
  block.running = false;
  block.shared = shared_slab_ + number * kSharedStride;
  const size_t words = checks_ ? (size_t{shape_.shared_bytes} + 3) / 4 : 0;
  if (block.cells.size() != words) {
    for (Cell& cell : block.cells) shared_shadow_.Clear(cell);
    block.cells.resize(words);
  }
  if (block.threads.size() != threads) {
    block.warps = std::vector<Warp>(threads / 32);
    block.threads = std::vector<Thread>(threads);
    for (uint32_t w = 0; w < block.warps.size(); ++w) {
      block.warps[w].block = &block;
      block.warps[w].threads = &block.threads[size_t{32} * w];
    }
  }
  for (Warp& warp : block.warps) {  // each kernel has sites of its own
    warp.banks.Clear();
    warp.reads.Clear();
    warp.writes.Clear();
  }
  for (uint32_t t = 0; t < threads; ++t) {
    Thread& thread = block.threads[t];
    thread.fiber = number * threads + t;
    thread.warp = &block.warps[t / 32];
    thread.shared = block.shared;
    thread.place.grid = {shape_.grid_x, shape_.grid_y, shape_.grid_z};
    thread.place.thread = t;
    thread.place.threads = threads;
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
  for (Warp& warp : block.warps) {
    warp.ready = warp.met = warp.epoch = 0;
    warp.product.minus_zero = false;
    MakeReady(warp, kAllLanes);
  }
  for (Thread& thread : block.threads) StartThread(thread, block);
  ++report_.counters.blocks;
}

void Machine::StartThread(Thread& thread, const Block& block) const {
  thread.place.block = block.index;
  thread.fences = 0;
  thread.waited = false;
  thread.commits = 0;
  if (checks_) {
    thread.last_fence = Stamp();
    thread.carried.clear();
    thread.seen.clear();
    thread.copies.clear();
  }
  // Stacks begin at different places of the cache's sets.
  const size_t shift = thread.place.thread * 192u % 8192u;
  thread.stack_pointer =
      NewFiber(stacks_.At(thread.fiber), FiberStacks::kStackBytes - shift, &FiberEntry);
}

void Machine::FinishBlock(Block& block) {
  block.running = false;
  for (Warp& warp : block.warps) CountWarp(warp);
}

void Machine::MakeReady(Warp& warp, uint32_t lanes) {
  if (warp.ready == 0 && lanes != 0) ready_.push_back(&warp);
  warp.ready |= lanes;
}

// What happens at every switch is compiled as one piece.
[[gnu::always_inline]] inline Thread* Machine::Take(Warp& warp, uint32_t lane) {
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_.erase(std::find(ready_.begin(), ready_.end(), &warp));
  return warp.threads + lane;
}

[[gnu::always_inline]] inline Thread* Machine::PickInOrder() {
  Warp* warp = current_ != nullptr && current_->warp->ready != 0 ? current_->warp : nullptr;
  if (warp == nullptr) {
    if (ready_.empty()) return nullptr;
    warp = ready_.back();
  }
  return Take(*warp, static_cast<uint32_t>(__builtin_ctz(warp->ready)));
}

Thread* Machine::PickAtRandom() {
  Warp* warp = nullptr;
  const uint64_t drawn = random_.Next();
  // Mostly the lanes of one warp follow each other, so that its meetings complete.
  if (current_ != nullptr && current_->warp->ready != 0 && (drawn >> 32) % kStayInWarp != 0) {
    warp = current_->warp;
  } else if (!ready_.empty()) {
    warp = ready_[random_.Below(static_cast<uint32_t>(ready_.size()))];
  } else {
    return nullptr;
  }
  const auto turn = static_cast<uint32_t>(drawn & 31u);
  const int next = std::countr_zero(std::rotr(warp->ready, static_cast<int>(turn)));
  return Take(*warp, (static_cast<uint32_t>(next) + turn) & 31u);
}

[[gnu::always_inline]] inline Thread* Machine::Pick() {
  return checks_ ? PickAtRandom() : PickInOrder();
}

[[gnu::always_inline]] inline void Machine::Suspend() {
  Thread* self = current_;
  Thread* next = Pick();
  if (next == self) return;
  current_ = next;
  quire_switch_fiber(&self->stack_pointer,
                     next == nullptr ? host_stack_pointer_ : next->stack_pointer);
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
  running_machine = this;
  Prepare();
  for (bool any = true; any;) {
    any = false;
    for (uint32_t i = 0; i < resident_; ++i) {
      Block& block = blocks_[i];
      if (block.running && block.alive == 0) FinishBlock(block);
      if (!block.running && !order_.empty()) StartBlock(block);
      any = any || block.running;
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
  running_machine = nullptr;
  if (!stacks_.Intact(size_t{resident_} * static_cast<uint32_t>(kernel.threads))) {
    fprintf(stderr, "emulated grid: %s overflows a fiber's stack\n", kernel.name);
    abort();
  }
  return std::move(report_);
}

void Machine::ReportDeadlock() {
  for (uint32_t i = 0; i < resident_; ++i) {
    Block& block = blocks_[i];
    if (!block.running) continue;
    for (Warp& warp : block.warps) {
      if (warp.met != 0) {
        Violation(warp.threads[__builtin_ctz(warp.met)],
                  "waits for lanes of its warp that never come");
      }
    }
    if (block.waiting != 0) {
      Violation(block.threads[0], "stands in a block with a barrier that not all threads reach");
    }
  }
}

void Machine::MaybeYield() {
  if (!checks_ || random_.Below(4) != 0) return;
  MakeReady(*current_->warp, 1u << current_->Lane());
  Suspend();
}

void Machine::Meet(Meeting meeting) {
  Thread& self = *current_;
  Warp& warp = *self.warp;
  const uint32_t mine = 1u << self.Lane();
  if (checks_) MoveSome(self);
  if (warp.met == 0) {
    warp.meeting = meeting;
  } else if (warp.meeting != meeting) {
    Violation(self, "meets lanes of its warp that are at another warp-wide operation");
  }
  warp.met |= mine;
  if (warp.met == kAllLanes) {
    warp.met = 0;
    meeting(*this, warp);
    // Where nothing is checked the lane that came last continues, otherwise any lane may.
    MakeReady(warp, checks_ ? kAllLanes : kAllLanes & ~mine);
    if (!checks_) return;
  }
  Suspend();
}

void Machine::BlockBarrier() {
  Thread& self = *current_;
  Block& block = SelfBlock();
  if (checks_) MoveSome(self);
  if (++block.waiting < block.threads.size()) {
    Suspend();
    return;
  }
  block.waiting = 0;
  ++block.epoch;
  ++report_.counters.block_barriers;
  for (Warp& warp : block.warps) {
    CountWarp(warp);
    MakeReady(warp, kAllLanes);
  }
  Suspend();
}

void Machine::EndThread() {
  Thread& self = *current_;
  if (checks_ && !self.copies.empty()) {
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
