// Fuzzes the readers of quantised checkpoints: a quantization_config, a line end, a safetensors
// file. Whatever module of it they accept must be written without reading outside its tensors.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "worker/load/quantisation.h"
#include "worker/load/safetensors.h"

namespace {

constexpr int64_t kMostElements = 1 << 14;

void WriteAll(const quire::load::QuantisedMatrix& matrix) {
  if (matrix.rows * matrix.cols > kMostElements) return;
  if (!matrix.Check({0, matrix.rows, 0, matrix.cols}).ok()) return;
  const quire::kernels::WeightSource form{matrix.Form(), matrix.rows, matrix.cols, nullptr};
  std::vector<std::byte> out(static_cast<size_t>(form.Bytes()));
  matrix.Write({0, matrix.rows, 0, matrix.cols}, out.data());
  std::vector<float> floats(static_cast<size_t>(matrix.rows * matrix.cols));
  matrix.WriteTransposed({0, matrix.rows, 0, matrix.cols}, floats.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return 0;
  const auto config = quire::json::Parse(text.substr(0, end));
  if (!config.ok() || !config->is_object()) return 0;
  const auto quantisation = quire::load::Quantisation::Read(config->as_object(), "fuzz");
  if (!quantisation.ok()) return 0;
  const std::string_view rest = text.substr(end + 1);
  quire::load::TensorTable table;
  const auto bytes = std::as_bytes(std::span(rest.data(), rest.size()));
  if (!quire::load::ReadSafetensors(bytes, "fuzz", table).ok()) return 0;
  for (const auto& [name, tensor] : table.all()) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    for (const int64_t rows : {1, 2, 8, 32}) {
      for (const int64_t cols : {1, 16, 32, 64, 128}) {
        const auto found = quantisation->Find(table, name.substr(0, dot), rows, cols);
        if (!found.ok() || !found->has_value()) continue;
        WriteAll(**found);
        quire::load::QuantisedMatrix ordered = **found;
        ordered.OrderByGroups();
        if (!ordered.order.empty()) WriteAll(ordered);
      }
    }
  }
  return 0;
}
