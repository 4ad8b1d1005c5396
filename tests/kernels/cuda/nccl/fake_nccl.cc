// A library that stands in for NCCL: its ranks are threads or processes of one machine that meet in
// shared memory, its streams those of the emulated runtime. Compiled into libnccl.so.2 as it should
// be, and into others that lack something.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/cuda/nccl/nccl_abi.h"
#include "tests/kernels/cuda/nccl/fake_nccl.h"

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION 22809
#endif

namespace {

namespace nccl = quire::kernels::cuda::nccl;
using quire::kernels::cuda::emulate::NativeStream;
using quire::kernels::cuda::test::FakeNcclCounts;
using quire::kernels::cuda::test::FakeNcclOrders;

// What the ranks of a group share; zeros at first. A rank comes to an op when all have taken what
// the one before it brought: so one place for each rank's part is enough, and counts that only grow
// say how far all are.
struct Group {
  static constexpr size_t kMostRanks = 8;
  static constexpr size_t kPartBytes = size_t{64} << 20;  // untouched pages cost nothing

  std::atomic<uint64_t> joined;
  std::atomic<uint64_t> came;
  std::atomic<uint64_t> took;
  std::atomic<bool> broken;  // a rank has aborted: nobody meets it any more

  static constexpr size_t Bytes() { return 4096 + kMostRanks * kPartBytes; }
  char* Part(int rank) {
    return reinterpret_cast<char*>(this) + 4096 + static_cast<size_t>(rank) * kPartBytes;
  }
};

struct State {
  std::mutex mutex;
  FakeNcclOrders orders;
  FakeNcclCounts counts;
  uint64_t orders_given = 0;
  int next_id = 1;
  std::set<std::string> names;  // of groups that were begun here, until all ranks are in them

  ~State() {
    for (const std::string& name : names) shm_unlink(name.c_str());
  }
};
State& Fake() {
  static State state;
  return state;
}

struct FakeComm;
struct Op {
  FakeComm* comm;
  const void* send;
  void* receive;
  size_t bytes;
  int root;       // −1: all_gather
  int phase = 0;  // 0: not begun, 1: there, 2: taken
  uint64_t meeting = 0;
};

struct FakeComm {
  Group* group = nullptr;  // mapped until the process ends
  std::string name;
  int rank = 0;
  int size = 0;
  int polls = 0;         // that still say "in progress"
  nccl::Result end = 0;  // what it then says
  uint64_t orders = 0;   // that `calls` and `before` are since
  int calls = 0;         // ops that were queued
  uint64_t before = 0;   // ops that this rank had come to then
  uint64_t begun = 0;    // ops that this rank has come to
  bool hangs = false;
  bool aborted = false;
  bool joined = false;
  NativeStream* stream = nullptr;  // of its ops
  std::vector<std::unique_ptr<Op>> ops;
};

// NCCL ends no communicator before the last graph is gone that one of its ops was captured in.
void CountIfStuck(const FakeComm& comm) {
  const bool held = std::any_of(comm.ops.begin(), comm.ops.end(), [&comm](const auto& op) {
    return comm.stream->held(comm.stream, op.get());
  });
  if (held) ++Fake().counts.stuck;
}

bool For(const FakeComm& comm) { return Fake().orders.rank < 0 || Fake().orders.rank == comm.rank; }

// Ops are counted anew from the latest orders on.
void CountFromOrders(FakeComm& comm) {
  if (comm.orders == Fake().orders_given) return;
  comm.orders = Fake().orders_given;
  comm.calls = 0;
  comm.before = comm.begun;
}

// Obeys what a test in another process has left for this rank.
void TakeOrder(FakeComm& comm) {
  const char* path = std::getenv("FAKE_NCCL_ORDER");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return;
  int rank = -1;
  char word[16] = "";
  const bool read = std::fscanf(file, "%d %15s", &rank, word) == 2;
  std::fclose(file);
  if (!read || rank != comm.rank || unlink(path) != 0) return;
  if (strcmp(word, "die") == 0) raise(SIGKILL);
  if (strcmp(word, "hang") == 0) comm.hangs = true;
  if (strcmp(word, "error") == 0) comm.end = nccl::kRemoteError;
}

void Bring(Op& op) {
  FakeComm& comm = *op.comm;
  if (op.root < 0 || op.root == comm.rank) {
    memcpy(comm.group->Part(comm.rank), op.send, op.bytes);
  }
  op.meeting = comm.begun++;
  comm.group->came.fetch_add(1);
  op.phase = 1;
}

void Take(Op& op) {
  FakeComm& comm = *op.comm;
  auto* to = static_cast<char*>(op.receive);
  for (int rank = 0; rank < comm.size; ++rank) {
    const char* from = comm.group->Part(rank);
    if (op.root < 0) memcpy(to + op.bytes * static_cast<size_t>(rank), from, op.bytes);
    if (op.root == rank) memcpy(to, from, op.bytes);
  }
  comm.group->took.fetch_add(1);
  op.phase = 2;
}

// As a device sees a collective: 1 when it is over.
int PollOp(void* argument) {
  Op& op = *static_cast<Op*>(argument);
  FakeComm& comm = *op.comm;
  const std::lock_guard lock(Fake().mutex);
  if (comm.aborted) return 1;
  Group& group = *comm.group;
  if (group.broken.load()) return op.phase == 2 ? 1 : 0;
  if (op.phase == 0) {
    CountFromOrders(comm);
    const int number = static_cast<int>(comm.begun - comm.before);
    TakeOrder(comm);
    if (comm.hangs || (For(comm) && Fake().orders.hang_at == number)) return 0;
    Bring(op);
    if (For(comm) && Fake().orders.async_error_at == number) comm.end = nccl::kRemoteError;
  }
  const uint64_t all = (op.meeting + 1) * static_cast<uint64_t>(comm.size);
  if (group.came.load() < all) return 0;
  if (op.phase == 1) Take(op);
  if (group.took.load() < all) return 0;  // a peer still reads what was sent
  op.phase = 0;
  ++Fake().counts.ops;
  return 1;
}

nccl::Result Queue(Op op, void* stream) {
  NativeStream* native = static_cast<NativeStream*>(stream);
  Op* kept = nullptr;
  bool in_progress = false;
  {
    const std::lock_guard lock(Fake().mutex);
    CountFromOrders(*op.comm);
    const int number = op.comm->calls++;
    if (For(*op.comm) && Fake().orders.call_error_at == number) return 3;
    if (op.bytes > Group::kPartBytes) return 4;
    op.comm->polls = Fake().orders.polls_of_op;
    in_progress = op.comm->polls > 0;
    op.comm->stream = native;
    kept = op.comm->ops.emplace_back(std::make_unique<Op>(op)).get();
  }
  native->call(native, PollOp, kept);
  return in_progress ? nccl::kInProgress : nccl::kSuccess;
}

// The group of a name, which whoever comes first makes. Null: there is no memory.
Group* MapGroup(const std::string& name) {
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(Group::Bytes())) == 0) {
    at = mmap(nullptr, Group::Bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Group*>(at);
}

// Groups whose ranks were all killed before they had met: the process that named them is gone.
void RemoveOrphans() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    int process = 0;
    if (std::sscanf(name.c_str(), "quire_fake_nccl.%d.", &process) != 1) continue;
    if (kill(process, 0) != 0 && errno == ESRCH) shm_unlink(("/" + name).c_str());
  }
}

FakeComm* Of(nccl::Comm* comm) { return reinterpret_cast<FakeComm*>(comm); }

}  // namespace

extern "C" {

void fake_nccl_set(const FakeNcclOrders* orders) {
  const std::lock_guard lock(Fake().mutex);
  Fake().orders = *orders;
  Fake().counts = {};
  ++Fake().orders_given;
}
void fake_nccl_read(FakeNcclCounts* counts) {
  const std::lock_guard lock(Fake().mutex);
  *counts = Fake().counts;
}

int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return nccl::kSuccess;
}

int ncclGetUniqueId(nccl::UniqueId* id) {
  const std::lock_guard lock(Fake().mutex);
  if (Fake().orders.id_error != 0) return Fake().orders.id_error;
  RemoveOrphans();
  std::snprintf(id->internal, sizeof(id->internal), "/quire_fake_nccl.%d.%d", getpid(),
                Fake().next_id++);
  Fake().names.insert(id->internal);
  return nccl::kSuccess;
}

int ncclCommInitRankConfig(nccl::Comm** comm, int ranks, nccl::UniqueId id, int rank,
                           nccl::Config* config) {
  const std::lock_guard lock(Fake().mutex);
  if (ranks > static_cast<int>(Group::kMostRanks)) return 4;
  auto made = std::make_unique<FakeComm>();
  made->name = id.internal;
  made->group = MapGroup(made->name);
  if (made->group == nullptr) return 2;
  made->rank = rank;
  made->size = ranks;
  made->polls = Fake().orders.polls_of_init;
  if (For(*made)) made->end = Fake().orders.init_error;
  ++Fake().counts.started;
  if (config->blocking != 0) ++Fake().counts.blocking;
  made->group->joined.fetch_add(1);
  *comm = reinterpret_cast<nccl::Comm*>(made.release());
  return nccl::kInProgress;
}

int ncclCommGetAsyncError(nccl::Comm* comm, int* error) {
  const std::lock_guard lock(Fake().mutex);
  FakeComm& own = *Of(comm);
  const bool all_there = own.group->joined.load() >= static_cast<uint64_t>(own.size);
  if (all_there && Fake().names.erase(own.name) > 0) shm_unlink(own.name.c_str());
  if (own.end == nccl::kSuccess && ((!own.joined && !all_there) || own.polls > 0)) {
    if (own.polls > 0) --own.polls;
    *error = nccl::kInProgress;
  } else {
    own.joined = true;
    *error = own.end;
  }
  return nccl::kSuccess;
}

#ifndef FAKE_NCCL_WITHOUT_ABORT
// The device may still ask for its ops: what it reads stays. Who named the group may be gone.
int ncclCommAbort(nccl::Comm* comm) {
  const std::lock_guard lock(Fake().mutex);
  CountIfStuck(*Of(comm));
  Of(comm)->aborted = true;
  Fake().names.erase(Of(comm)->name);
  shm_unlink(Of(comm)->name.c_str());
  Of(comm)->group->broken.store(true);
  ++Fake().counts.aborted;
  return nccl::kSuccess;
}
#endif

int ncclCommFinalize(nccl::Comm* comm) {
  const std::lock_guard lock(Fake().mutex);
  CountIfStuck(*Of(comm));
  Of(comm)->polls = 2;
  ++Fake().counts.finalized;
  return nccl::kInProgress;
}

int ncclCommDestroy(nccl::Comm* comm) {
  const std::lock_guard lock(Fake().mutex);
  Of(comm)->aborted = true;
  ++Fake().counts.destroyed;
  return nccl::kSuccess;
}

int ncclAllGather(const void* send, void* receive, size_t count, int type, nccl::Comm* comm,
                  void* stream) {
  const size_t bytes = count * (type == nccl::kFloat32 ? 4 : 1);
  return Queue({Of(comm), send, receive, bytes, -1}, stream);
}

int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root,
                  nccl::Comm* comm, void* stream) {
  const size_t bytes = count * (type == nccl::kFloat32 ? 4 : 1);
  return Queue({Of(comm), send, receive, bytes, root}, stream);
}

const char* ncclGetErrorString(int result) {
  return result == nccl::kRemoteError ? "remote process exited" : "something\nelse";
}
const char* ncclGetLastError(nccl::Comm*) { return ""; }
}
