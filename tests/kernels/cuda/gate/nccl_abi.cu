// Our own declarations of NCCL held against its header: every value, place and type of them.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "kernels/cuda/nccl/nccl_abi.h"

namespace abi = quire::kernels::cuda::nccl;

static_assert(abi::kNcclHeaderVersion == NCCL_VERSION_CODE);
static_assert(abi::kSuccess == ncclSuccess && abi::kRemoteError == ncclRemoteError &&
              abi::kInProgress == ncclInProgress);
static_assert(abi::kInt8 == ncclInt8 && abi::kFloat32 == ncclFloat32);
static_assert(abi::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(sizeof(abi::UniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(ncclResult_t) == sizeof(abi::Result));
static_assert(sizeof(ncclDataType_t) == sizeof(abi::DataType));

#define SAME_PLACE(ours, theirs) \
  static_assert(offsetof(abi::Config, ours) == offsetof(ncclConfig_t, theirs))
static_assert(sizeof(abi::Config) == sizeof(ncclConfig_t));
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_blocks, minCTAs);
SAME_PLACE(max_blocks, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
SAME_PLACE(traffic_class, trafficClass);
SAME_PLACE(comm_name, commName);
SAME_PLACE(collnet_enable, collnetEnable);
SAME_PLACE(block_policy, CTAPolicy);
SAME_PLACE(shrink_share, shrinkShare);
SAME_PLACE(nvls_blocks, nvlsCTAs);
SAME_PLACE(channels_per_net_peer, nChannelsPerNetPeer);
SAME_PLACE(nvlink_centric_scheduling, nvlinkCentricSched);

// A function of theirs takes as many arguments of the same sizes as ours; handles are pointers, and
// enumerations are ints in the calling convention.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  template <class X, class Y>
  static constexpr bool kSame =
      sizeof(X) == sizeof(Y) && std::is_pointer_v<X> == std::is_pointer_v<Y>;
  static constexpr bool Check() {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return kSame<R, S> && (kSame<A, B> && ...);
    }
  }
  static constexpr bool value = Check();
};
#define SAME_CALL(ours, theirs) \
  static_assert(SameCall<decltype(abi::Functions::ours), decltype(&theirs)>::value)
SAME_CALL(get_version, ncclGetVersion);
SAME_CALL(get_unique_id, ncclGetUniqueId);
SAME_CALL(comm_init_rank_config, ncclCommInitRankConfig);
SAME_CALL(comm_get_async_error, ncclCommGetAsyncError);
SAME_CALL(comm_abort, ncclCommAbort);
SAME_CALL(comm_finalize, ncclCommFinalize);
SAME_CALL(comm_destroy, ncclCommDestroy);
SAME_CALL(all_gather, ncclAllGather);
SAME_CALL(broadcast, ncclBroadcast);
SAME_CALL(get_error_string, ncclGetErrorString);
SAME_CALL(get_last_error, ncclGetLastError);
