// Weights as CPU kernels read them: panels of 16 output rows, K-major, quantised blocks kept
// quantised.
//
// Owned by the loaded program; written once by PackPanels, then read by every thread.
// Invariants:
// 1. A panel holds rows of one part only; lanes after its last row are zero weights.
// 2. A 32-bit lane of a quantised panel belongs to one row and holds consecutive k in its bytes, as
//    int8 dot-product instructions require.
// 3. kernels/README.md draws the layouts; decode.h and scales.h alone read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/rounded_form.h"
#include "kernels/step_program.h"
#include "kernels/tensor.h"

namespace quire::kernels::cpu {

inline constexpr int kPanelRows = 16;
inline constexpr int kBlock = 32;  // elements of K that are decoded together

// The panels of one type and K; formats.h describes their layout.
struct PanelGeometry {
  DType type = DType::kF32;
  int64_t k = 0;
  int64_t bytes = 0;  // a multiple of 64
};

PanelGeometry MakePanelGeometry(DType type, int64_t k);

struct Panel {
  const std::byte* data = nullptr;
  int32_t geometry = 0;  // index into PackedMatrix::geometries
  int32_t part = 0;
  int64_t part_row = 0;  // first row, within the part
  int64_t out_row = 0;   // first row, within the matrix
  int32_t rows = 0;      // 1 … 16
};

// Memory from the system, zeroed, aligned to a page, returned when its owner is destroyed.
class Pages {
 public:
  Pages() = default;
  explicit Pages(int64_t bytes, bool huge_pages = false);
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  std::byte* data() const { return data_; }
  int64_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct PackedMatrix {
  int64_t rows = 0;
  int64_t k = 0;
  bool gated = false;  // panels [0, n/2) are gates, panel i + n/2 is the value of gate i
  // [k] where it is not empty: column j is multiplied with input order[j] (WeightSource::order).
  std::vector<int32_t> order;
  bool takes_int8 = true;  // every part does (formats.h): a matrix is multiplied in one way
  Roundings roundings;     // of x, in the class w8a8; nothing where no part asks for it
  std::vector<PanelGeometry> geometries;  // by part
  std::vector<Panel> panels;
  Pages memory;

  int PanelCount() const { return static_cast<int>(panels.size()); }
};

// Cuts the rows into panels without packing them. Gated: also cut at half height, and both halves
// must then be cut alike (they are whenever gate and up are two parts, or half the height is a
// multiple of 16).
PackedMatrix PlanMatrix(const Weight& weight, bool gated);
int64_t PackedBytes(const PackedMatrix& matrix);
void AllocateMatrix(PackedMatrix& matrix);

// The rows of one panel: in their source, or in `scratch`, where the source's writer writes them.
struct PanelRows {
  const std::byte* first = nullptr;
  int64_t stride = 0;  // bytes
};
PanelRows RowsOf(const WeightSource& source, const Panel& panel, std::vector<std::byte>& scratch);

// Packs a panel from its rows of blocks, of the panel's type. Different panels may be packed by
// different threads.
void PackPanel(PackedMatrix& matrix, int panel, const PanelRows& rows);
// Packs panels begin … end − 1 from their sources.
void PackPanels(PackedMatrix& matrix, const Weight& weight, int begin, int end);

// All elements of a vector weight (its parts one after another) as float32.
std::vector<float> UnpackVector(const Weight& weight);

}  // namespace quire::kernels::cpu
