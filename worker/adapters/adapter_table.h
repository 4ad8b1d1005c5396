// The adapters that a worker holds: names, digests, and the slots by which rows of a step name
// them.
//
// Owned by the loaded worker; filled while it loads, then read by the engine and its sessions.
// Invariants:
// 1. A slot is in [0, max_loras()), and belongs to one digest while anything refers to it.
// 2. Two names may share a digest, and then share its slot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct AdapterInfo {
  std::string name;
  std::string digest;  // SHA-256 of the adapter's content, 64 hexadecimal digits
  int rank = 0;        // the largest of its modules
  std::string path;
  int64_t bytes = 0;  // in memory, of one rank
};

class AdapterTable {
 public:
  explicit AdapterTable(int max_loras = 0) : max_loras_(max_loras) {}

  // In the order in which they were added.
  std::vector<AdapterInfo> List() const { return adapters_; }
  // The slot of an adapter; none: no adapter here has this digest.
  std::optional<int> SlotOf(std::string_view digest) const;
  // Digests in the order of their slots: those that hold an adapter.
  const std::vector<std::string>& Slots() const { return slots_; }
  int SlotCount() const { return static_cast<int>(slots_.size()); }
  // Of an adapter that is here; 0: it is not.
  int64_t BytesOf(std::string_view digest) const;
  // 0: this worker serves no adapters.
  int max_loras() const { return max_loras_; }

  // The slot of the adapter; none: all slots are taken.
  std::optional<int> Add(AdapterInfo adapter);

 private:
  int max_loras_;
  std::vector<AdapterInfo> adapters_;
  std::vector<std::string> slots_;  // digest by slot
};

}  // namespace quire
