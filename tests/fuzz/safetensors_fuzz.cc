// Fuzzes the safetensors reader: every tensor that it accepts must lie inside the input.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "worker/load/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  quire::load::TensorTable table;
  if (!quire::load::ReadSafetensors(bytes, "fuzz", table).ok()) return 0;
  for (const auto& [name, tensor] : table.all()) {
    if (tensor.bytes.empty()) continue;
    if (tensor.bytes.data() < bytes.data()) std::abort();
    if (tensor.bytes.data() + tensor.bytes.size() > bytes.data() + bytes.size()) std::abort();
  }
  return 0;
}
