// How router and worker introduce themselves to each other when an Attach begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"

namespace quire {

inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;

struct CacheGroupInfo {
  std::string kind;  // "full", "sliding"
  uint32_t groups = 0;
  uint32_t window = 0;
};

struct WorkerLimits {
  uint32_t max_model_len = 0;
  uint32_t max_num_seqs = 0;
  uint32_t max_waiting_requests = 0;
  uint32_t max_choices = 1;
  uint32_t max_logprobs = 0;
  uint32_t max_stop_token_ids = 0;
  uint32_t max_logit_bias = 0;
  uint32_t max_frame_bytes = 0;
};

// An adapter by its name and by what it is: the digest alone says which one a request gets.
struct ServedAdapter {
  std::string name;
  std::string digest;  // SHA-256 of its content, 64 lower-case hexadecimal digits
  std::string parent;  // a served name of its model
  uint32_t rank = 0;   // the largest of its modules
  bool operator==(const ServedAdapter&) const = default;
};

struct WorkerHello {
  std::string worker_id;
  Epoch epoch;
  uint32_t protocol = kProtocolMax;
  std::vector<std::string> features;
  std::string model_id;
  std::string numerics_id;
  std::vector<CacheGroupInfo> cache_groups;
  uint32_t block_size = 0;
  std::string hash_scheme;
  uint64_t capacity_blocks = 0;
  WorkerLimits limits;
  std::string text_bundle_sha256;  // 32 bytes
  std::vector<std::string> served_names;
  uint32_t vocab_size = 0;
  bool prefix_caching = false;
  std::vector<ServedAdapter> adapters;  // each name once
};

struct RouterHello {
  RouterInstance instance;
  uint64_t attach_number = 0;
  uint32_t protocol_min = kProtocolMin;
  uint32_t protocol_max = kProtocolMax;
  std::vector<std::string> features;
  bool wants_events = false;
};

}  // namespace quire
