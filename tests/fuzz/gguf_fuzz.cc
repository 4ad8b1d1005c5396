// Fuzzes the GGUF reader and all that reads its metadata: arrays, model configuration, vocabulary.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <variant>

#include "worker/load/gguf.h"
#include "worker/load/text/text_files.h"
#include "worker/model/family.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const auto file = quire::load::GgufFile::Parse(bytes, "fuzz");
  if (!file.ok()) return 0;
  for (const auto& [name, tensor] : file->tensors().all()) {
    if (tensor.bytes.empty()) continue;
    if (tensor.bytes.data() < bytes.data()) std::abort();
    if (tensor.bytes.data() + tensor.bytes.size() > bytes.data() + bytes.size()) std::abort();
  }
  for (const auto& [key, value] : file->metadata()) {
    const auto* array = std::get_if<quire::load::GgufArray>(&value);
    if (array == nullptr) continue;
    if (const auto strings = array->Strings(quire::load::kMaxGgufArrayElements);
        strings.ok() && strings->size() != array->count) {
      std::abort();
    }
    if (const auto numbers = array->Numbers(quire::load::kMaxGgufArrayElements);
        numbers.ok() && numbers->size() != array->count) {
      std::abort();
    }
  }
  const auto config = quire::model::ModelConfigFromGguf(*file, "fuzz");
  if (config.ok() && !quire::load::CheckModelConfig(*config).ok()) std::abort();
  (void)quire::load::ReadGgufVocab(*file);
  return 0;
}
