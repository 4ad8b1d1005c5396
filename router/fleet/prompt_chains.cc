#include "router/fleet/prompt_chains.h"

#include "common/block_hash.h"
#include "common/check.h"

namespace quire {

const std::vector<uint64_t>& PromptChains::For(const std::string& numerics_id,
                                               uint32_t block_size) {
  QUIRE_CHECK(block_size > 0);
  const auto [it, made] = chains_.try_emplace({numerics_id, block_size});
  if (made) it->second = Make(numerics_id, block_size);
  return it->second;
}

std::vector<uint64_t> PromptChains::Make(const std::string& numerics_id,
                                         uint32_t block_size) const {
  const size_t blocks = (prompt_.size() + outputs_.size()) / block_size;
  std::vector<uint64_t> chain;
  chain.reserve(blocks);
  BlockHash hash = RootHash(model_id_, numerics_id, adapter_, salt_);
  std::vector<TokenId> straddling;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * block_size;
    const size_t last = first + block_size;
    std::span<const TokenId> tokens;
    if (last <= prompt_.size()) {
      tokens = prompt_.subspan(first, block_size);
    } else if (first >= prompt_.size()) {
      tokens = outputs_.subspan(first - prompt_.size(), block_size);
    } else {
      straddling.assign(prompt_.begin() + static_cast<ptrdiff_t>(first), prompt_.end());
      straddling.insert(straddling.end(), outputs_.begin(),
                        outputs_.begin() + static_cast<ptrdiff_t>(last - prompt_.size()));
      tokens = straddling;
    }
    hash = HashBlock(hash, tokens);
    chain.push_back(hash.low);
  }
  return chain;
}

}  // namespace quire
