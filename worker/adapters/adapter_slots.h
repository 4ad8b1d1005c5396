// Which adapter is in which slot, when each was last asked for, and which one gives way to another.
//
// Owner: Engine, on its thread. Pure: time comes in as an argument.
//  1. A slot holds one digest or none; no two slots hold the same.
//  2. A slot that is in use, or whose digest is kept, is never chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class AdapterTable;

class AdapterSlots {
 public:
  // What the table holds at the start; null: there are no slots.
  explicit AdapterSlots(const AdapterTable* table);

  int count() const { return static_cast<int>(slots_.size()); }
  std::optional<int> SlotOf(std::string_view digest) const;
  const std::string& In(int slot) const { return slots_.at(static_cast<size_t>(slot)).digest; }

  // A request with the slot's adapter has come, or has ended.
  void Touch(int slot, int64_t now_us) { slots_.at(static_cast<size_t>(slot)).used_us = now_us; }

  // The slot for another adapter: a free one, else one that nothing uses and whose digest is not
  // among `kept`: first those that are not among `named` either, then the one that was touched
  // first. None: there is no such slot.
  std::optional<int> Choose(const std::vector<bool>& in_use, std::span<const std::string> kept,
                            std::span<const std::string> named) const;
  void Put(int slot, std::string digest, int64_t now_us);

 private:
  struct Slot {
    std::string digest;  // empty: none
    int64_t used_us = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace quire
