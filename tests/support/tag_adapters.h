// Adapters of the tag model: rows of another one have other tags from their first token on.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/support/tag_arithmetic.h"
#include "worker/adapters/adapter_table.h"

namespace quire::test {

inline constexpr int kTagAdapters = 2;

inline std::string TagAdapterName(int index) { return index == 0 ? "first" : "second"; }
inline std::string TagAdapterDigest(int index) {
  return std::string(64, static_cast<char>('a' + index));
}

// What a row's salt is mixed with; 0: no adapter.
inline uint64_t TagAdapterSalt(std::string_view digest) {
  return digest.empty() ? 0 : TagMix(0xADA97E4ull, static_cast<uint64_t>(digest.front()));
}

// All of them, from the one with this index on: a digest has not the same slot everywhere. `spare`
// slots hold none.
inline AdapterTable TagAdapterTable(int first, int spare = 0) {
  AdapterTable table(kTagAdapters + spare);
  for (int i = 0; i < kTagAdapters; ++i) {
    const int index = (first + i) % kTagAdapters;
    AdapterInfo info;
    info.name = TagAdapterName(index);
    info.digest = TagAdapterDigest(index);
    info.rank = 8;
    table.Add(info);
  }
  return table;
}

// The salt of the adapter in this slot.
inline uint64_t TagSlotSalt(const AdapterTable& table, int32_t slot) {
  if (slot < 0) return 0;
  for (const AdapterInfo& info : table.List()) {
    if (table.SlotOf(info.digest) == slot) return TagAdapterSalt(info.digest);
  }
  return kNoTag;  // no adapter has it
}

}  // namespace quire::test
