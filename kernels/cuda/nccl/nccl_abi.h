// The part of NCCL's interface that is used, in our own declarations: no part of the toolkit is
// needed to build a program that opens NCCL when it has several GPUs.
//
// tests/kernels/cuda/gate/nccl_abi.cu compares it with the real nccl.h. Values and layouts follow
// kNcclHeaderVersion; a library that is older is refused.
#pragma once

#include <climits>
#include <cstddef>

namespace quire::kernels::cuda::nccl {

inline constexpr int kNcclHeaderVersion = 22809;  // 2.28.9, as NCCL codes it

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kRemoteError = 6;
inline constexpr Result kInProgress = 7;

using DataType = int;
inline constexpr DataType kInt8 = 0;
inline constexpr DataType kFloat32 = 7;

struct UniqueId {
  char internal[128];
};

struct Comm;          // NCCL's
using Stream = void;  // CUDA's, as it is pointed to

inline constexpr int kUndefined = INT_MIN;

// The library reads as much of it as `size` says.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclHeaderVersion;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_blocks = kUndefined;
  int max_blocks = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int block_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_blocks = kUndefined;
  int channels_per_net_peer = kUndefined;
  int nvlink_centric_scheduling = kUndefined;
};

// The functions, by their names in the library.
struct Functions {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  Result (*comm_init_rank_config)(Comm** comm, int ranks, UniqueId id, int rank,
                                  Config* config) = nullptr;
  Result (*comm_get_async_error)(Comm* comm, Result* error) = nullptr;
  Result (*comm_abort)(Comm* comm) = nullptr;
  Result (*comm_finalize)(Comm* comm) = nullptr;
  Result (*comm_destroy)(Comm* comm) = nullptr;
  Result (*all_gather)(const void* send, void* receive, size_t count, DataType type, Comm* comm,
                       Stream* stream) = nullptr;
  Result (*broadcast)(const void* send, void* receive, size_t count, DataType type, int root,
                      Comm* comm, Stream* stream) = nullptr;
  const char* (*get_error_string)(Result result) = nullptr;
  const char* (*get_last_error)(Comm* comm) = nullptr;
};

}  // namespace quire::kernels::cuda::nccl
