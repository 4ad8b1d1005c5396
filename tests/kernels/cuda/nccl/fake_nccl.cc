// A library that stands in for NCCL: its ranks are threads of one process, its streams those of the
// emulated runtime. Compiled into libnccl.so.2 as it should be, and into others that lack
// something.
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
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

// One collective, as the ranks come to it.
struct Meeting {
  std::vector<const void*> sends;
  int came = 0;
  int took = 0;
};

struct Group {
  int size = 0;
  int joined = 0;
  bool broken = false;  // a rank has aborted: nobody meets it any more
  std::vector<Meeting> meetings;
};

struct State {
  std::mutex mutex;
  FakeNcclOrders orders;
  FakeNcclCounts counts;
  std::map<uint64_t, std::shared_ptr<Group>> groups;
  uint64_t next_id = 1;
  uint64_t orders_given = 0;
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
  size_t meeting = 0;
};

struct FakeComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int polls = 0;         // that still say "in progress"
  nccl::Result end = 0;  // what it then says
  uint64_t orders = 0;   // that `calls` and `before` are since
  int calls = 0;         // ops that were queued
  size_t before = 0;     // meetings that this rank had come to then
  size_t begun = 0;      // meetings that this rank has come to
  bool aborted = false;
  bool joined = false;
  std::vector<std::unique_ptr<Op>> ops;
};

bool For(const FakeComm& comm) { return Fake().orders.rank < 0 || Fake().orders.rank == comm.rank; }

// Ops are counted anew from the latest orders on.
void CountFromOrders(FakeComm& comm) {
  if (comm.orders == Fake().orders_given) return;
  comm.orders = Fake().orders_given;
  comm.calls = 0;
  comm.before = comm.begun;
}

// As a device sees a collective: 1 when it is over.
int PollOp(void* argument) {
  Op& op = *static_cast<Op*>(argument);
  FakeComm& comm = *op.comm;
  const std::lock_guard lock(Fake().mutex);
  if (comm.aborted) return 1;
  Group& group = *comm.group;
  if (group.broken) return op.phase == 2 ? 1 : 0;
  if (op.phase == 0) {
    CountFromOrders(comm);
    const int number = static_cast<int>(comm.begun - comm.before);
    if (For(comm) && Fake().orders.hang_at == number) return 0;
    op.meeting = comm.begun++;
    if (group.meetings.size() <= op.meeting) group.meetings.resize(op.meeting + 1);
    Meeting& meeting = group.meetings[op.meeting];
    meeting.sends.resize(static_cast<size_t>(group.size));
    meeting.sends[static_cast<size_t>(comm.rank)] = op.send;
    ++meeting.came;
    op.phase = 1;
    if (For(comm) && Fake().orders.async_error_at == number) comm.end = nccl::kRemoteError;
  }
  Meeting& meeting = group.meetings[op.meeting];
  if (meeting.came < group.size) return 0;
  if (op.phase == 1) {
    for (int rank = 0; rank < group.size; ++rank) {
      const void* from = meeting.sends[static_cast<size_t>(rank)];
      auto* to = static_cast<char*>(op.receive);
      if (op.root < 0) {
        memmove(to + op.bytes * static_cast<size_t>(rank), from, op.bytes);
      } else if (op.root == rank && comm.rank != rank) {
        memcpy(to, from, op.bytes);
      }
    }
    ++meeting.took;
    op.phase = 2;
  }
  if (meeting.took < group.size) return 0;  // a peer still reads what was sent
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
    op.comm->polls = Fake().orders.polls_of_op;
    in_progress = op.comm->polls > 0;
    kept = op.comm->ops.emplace_back(std::make_unique<Op>(op)).get();
  }
  native->call(native, PollOp, kept);
  return in_progress ? nccl::kInProgress : nccl::kSuccess;
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
  memcpy(id->internal, &Fake().next_id, sizeof(Fake().next_id));
  ++Fake().next_id;
  return nccl::kSuccess;
}

int ncclCommInitRankConfig(nccl::Comm** comm, int ranks, nccl::UniqueId id, int rank,
                           nccl::Config* config) {
  const std::lock_guard lock(Fake().mutex);
  uint64_t key = 0;
  memcpy(&key, id.internal, sizeof(key));
  std::shared_ptr<Group>& group = Fake().groups[key];
  if (group == nullptr) group = std::make_shared<Group>();
  group->size = ranks;
  auto made = std::make_unique<FakeComm>();
  made->group = group;
  made->rank = rank;
  made->polls = Fake().orders.polls_of_init;
  if (For(*made)) made->end = Fake().orders.init_error;
  ++Fake().counts.started;
  if (config->blocking != 0) ++Fake().counts.blocking;
  ++group->joined;
  *comm = reinterpret_cast<nccl::Comm*>(made.release());
  return nccl::kInProgress;
}

int ncclCommGetAsyncError(nccl::Comm* comm, int* error) {
  const std::lock_guard lock(Fake().mutex);
  FakeComm& own = *Of(comm);
  const bool peers_miss = !own.joined && own.group->joined < own.group->size;
  if (own.end == nccl::kSuccess && (peers_miss || own.polls > 0)) {
    if (own.polls > 0) --own.polls;
    *error = nccl::kInProgress;
  } else {
    own.joined = true;
    *error = own.end;
  }
  return nccl::kSuccess;
}

#ifndef FAKE_NCCL_WITHOUT_ABORT
// The device may still ask for its ops: what it reads stays.
int ncclCommAbort(nccl::Comm* comm) {
  const std::lock_guard lock(Fake().mutex);
  Of(comm)->aborted = true;
  Of(comm)->group->broken = true;
  ++Fake().counts.aborted;
  return nccl::kSuccess;
}
#endif

int ncclCommFinalize(nccl::Comm* comm) {
  const std::lock_guard lock(Fake().mutex);
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
