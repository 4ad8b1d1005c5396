// The block hashes of one request's tokens, one chain for each way in which the workers of its
// model hash them.
//
// Owner: the dispatcher's request. Chains are made on first use and kept: a request that waits is
// placed many times. Only the low 64 bits of each hash travel, so only they are kept.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace quire {

class PromptChains {
 public:
  // `prompt` and `outputs` are what the worker would look up: all tokens that are sent to it. They
  // outlive this object.
  PromptChains(std::string model_id, std::string adapter, std::string salt,
               std::span<const TokenId> prompt, std::span<const TokenId> outputs)
      : model_id_(std::move(model_id)),
        adapter_(std::move(adapter)),
        salt_(std::move(salt)),
        prompt_(prompt),
        outputs_(outputs) {}

  int64_t token_count() const { return static_cast<int64_t>(prompt_.size() + outputs_.size()); }

  // The hash of each full block, the first one first. Requires: block_size > 0.
  const std::vector<uint64_t>& For(const std::string& numerics_id, uint32_t block_size);

 private:
  std::vector<uint64_t> Make(const std::string& numerics_id, uint32_t block_size) const;

  const std::string model_id_;
  const std::string adapter_;
  const std::string salt_;
  const std::span<const TokenId> prompt_;
  const std::span<const TokenId> outputs_;
  std::map<std::pair<std::string, uint32_t>, std::vector<uint64_t>> chains_;
};

}  // namespace quire
