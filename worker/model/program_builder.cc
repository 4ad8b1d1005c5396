#include "worker/model/program_builder.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/model/mxfp4_rows.h"
#include "worker/model/nvfp4_rows.h"
#include "worker/model/rope.h"

namespace quire::model {

using kernels::DType;
using kernels::WeightId;
using kernels::WeightSource;

ProgramBuilder::ProgramBuilder(const TensorNaming& naming, const load::ModelConfig& config,
                               const load::ModelFiles& files, WeightMemory& memory,
                               const Shard& shard)
    : naming_(naming), config_(config), files_(files), memory_(memory), shard_(shard) {
  program_.family = config.family;
  program_.rank = shard.rank;
  program_.ranks = shard.ranks;
  program_.vocab_size = config.vocab_size;
  program_.hidden_size = config.hidden_size;
  program_.max_positions = config.max_positions;
  program_.layer_windows = config.layer_windows;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.KeysOf(layer) != layer || config.Skips(layer)) {
      program_.layer_windows[static_cast<size_t>(layer)] = kernels::kNoKeys;
    }
  }
  program_.full = {shard.full_kv_heads, config.gemma.full_head_dim};
  program_.heads = shard.heads;
  program_.kv_heads = shard.kv_heads;
  program_.head_dim = config.CacheDim();
  program_.latents = config.latent.rank > 0;
}

// Whether a vector lies there as a row or, where it is the weights of heads' norms or of groups',
// as a matrix of them; GGUF files have one number of each head of Mamba-2 as a column.
bool ProgramBuilder::IsVectorInTwo(const load::Tensor& tensor, Part part, int64_t length) const {
  const std::vector<int64_t>& found = tensor.shape;
  if (found.size() != 2) return false;
  if (found[0] == 1 && found[1] == length) return true;
  const bool of_heads = part == Part::kQueryNorm || part == Part::kKeyNorm;
  if (of_heads) return found[1] == config_.head_dim && found[0] == length / config_.head_dim;
  if (!files_.is_gguf()) return false;
  if (part == Part::kDecay || part == Part::kSkip) return found[1] == 1 && found[0] == length;
  const int64_t groups = config_.recurrent.key_heads;
  return part == Part::kGatedNorm && found[0] == groups && found[1] * groups == length;
}

const load::Tensor* ProgramBuilder::Find(Part part, std::string_view suffix, const Place& place,
                                         std::vector<int64_t> shape) {
  const std::vector<std::string> names =
      TensorNames(naming_, files_.is_gguf(), part, place, suffix);
  const load::Tensor* tensor = nullptr;
  for (const std::string& name : names) {
    if (tensor == nullptr) tensor = files_.tensors().Find(name);
  }
  if (tensor == nullptr) {
    Fail(absl::InvalidArgumentError(absl::StrCat(files_.path(), ": tensor \"",
                                                 names.empty() ? "?" : names.front(),
                                                 "\" is missing, the configuration demands it")));
    return nullptr;
  }
  if (tensor->shape != shape && (shape.size() != 1 || !IsVectorInTwo(*tensor, part, shape[0]))) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        tensor->file, ": tensor \"", tensor->name, "\" has shape ", tensor->ShapeText(),
        ", the configuration demands [", absl::StrJoin(shape, ", "), "]")));
    return nullptr;
  }
  if (!tensor->type.has_value() || (shape.size() == 1 && !IsFloat(*tensor->type))) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        tensor->file, ": tensor \"", tensor->name, "\" has type ", tensor->type_name,
        shape.size() == 1 ? ", biases and norms may be" : ", served are", " F32, F16 or BF16",
        shape.size() == 1 || !files_.is_gguf() ? "" : " or quantised")));
    return nullptr;
  }
  used_.Add(tensor);
  return tensor;
}

WeightSource ProgramBuilder::Source(const load::Tensor& tensor, int64_t rows, int64_t cols,
                                    const Kept& kept) {
  const WeightSource whole{*tensor.type, rows, cols, tensor.bytes.data()};
  QUIRE_CHECK(static_cast<size_t>(whole.Bytes()) == tensor.bytes.size());
  const int64_t block = kernels::BlockElements(whole.type);
  WeightSource source = whole;
  if (kept.rows.count >= 0) source.rows = kept.rows.count;
  if (kept.cols.count >= 0) source.cols = kept.cols.count;
  QUIRE_CHECK(kept.rows.begin + source.rows <= rows && kept.cols.begin + source.cols <= cols);
  QUIRE_CHECK_MSG(kept.cols.begin % block == 0 && source.cols % block == 0,
                  "a slice of columns cuts through a block");
  source.data += kept.rows.begin * whole.RowBytes() +
                 kept.cols.begin / block * kernels::BlockBytes(whole.type);
  if (source.cols < cols) source.row_stride = whole.RowBytes();
  const uintptr_t alignment = source.type == DType::kF32 ? 4 : 2;
  if (reinterpret_cast<uintptr_t>(source.data) % alignment == 0) return source;
  // A file may place numbers at odd addresses; kernels read them in place, so they get an aligned
  // copy.
  return Copy(source, [](int64_t row) { return row; });
}

template <typename RowFrom>
WeightSource ProgramBuilder::Copy(const WeightSource& source, const RowFrom& from) {
  const int64_t bytes = source.RowBytes();
  std::byte* copy = memory_.Allocate(source.Bytes());
  for (int64_t row = 0; row < source.rows; ++row) {
    std::memcpy(copy + row * bytes, source.Row(from(row)), static_cast<size_t>(bytes));
  }
  WeightSource result = source;
  result.data = copy;
  result.row_stride = 0;
  return result;
}

// Row i of a head's first half is its row 2 i, of its second half row 2 i + 1; what does not turn
// stays.
int64_t ProgramBuilder::PairedRow(int64_t row) const {
  const int64_t half = config_.RotaryDim() / 2;
  const int64_t within = row % config_.head_dim;
  return within >= 2 * half ? row : row - within + within % half * 2 + within / half;
}

WeightSource ProgramBuilder::Halved(Part part, const WeightSource& source) {
  if (!IsPaired(part)) return source;
  const auto from = [this](int64_t row) { return PairedRow(row); };
  if (source.rows != 1) return Copy(source, from);
  // For a vector, single elements move.
  WeightSource elements = source;
  elements.rows = source.cols;
  elements.cols = 1;
  WeightSource result = Copy(elements, from);
  std::swap(result.rows, result.cols);
  return result;
}

ProgramBuilder::RowPlaces ProgramBuilder::PlacesOf(const Stack& stack, const Place& place) const {
  if (!IsInputsFirst(place) || stack.part == Part::kExpertDown) return {0, 1, stack.rows};
  return {stack.part == Part::kExpertUp ? 1 : 0, 2, 2 * stack.rows};
}

bool ProgramBuilder::AddMxfp4(const Stack& stack, int64_t cols, const Place& place, Range kept,
                              kernels::Weight& weight) {
  constexpr int64_t kElements = 32, kBytes = 16;
  const load::Tensor* blocks = nullptr;
  const load::Tensor* scales = nullptr;
  std::string name;
  for (const std::string& one : TensorNames(naming_, false, stack.part, place, "weight")) {
    if (blocks != nullptr) break;
    name = one;
    blocks = files_.tensors().Find(name + "_blocks");
    scales = files_.tensors().Find(name + "_scales");
  }
  if (blocks == nullptr) return false;
  const RowPlaces places = PlacesOf(stack, place);
  const int64_t in_row = (cols + kElements - 1) / kElements;
  const std::vector<int64_t> wanted = {config_.experts.count, places.count, in_row};
  std::vector<int64_t> with_bytes = wanted;
  with_bytes.push_back(kBytes);
  if (scales == nullptr || cols % kElements != 0 || blocks->type_name != "U8" ||
      scales->type_name != "U8" || blocks->shape != with_bytes || scales->shape != wanted) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        blocks->file, ": tensor \"", blocks->name, "\" has type ", blocks->type_name, " and shape ",
        blocks->ShapeText(), ", its scales ", scales == nullptr ? "are missing" : "have ",
        scales == nullptr ? "" : scales->ShapeText(), "; expected are U8 of [",
        absl::StrJoin(with_bytes, ", "), "] and \"", name, "_scales\" of [",
        absl::StrJoin(wanted, ", "), "]")));
    return true;
  }
  used_.Add(blocks);
  used_.Add(scales);
  const int64_t rows = stack.kept.count < 0 ? stack.rows : stack.kept.count;
  const int64_t row = place.expert * places.count + places.first + places.step * stack.kept.begin;
  const int64_t first = row * in_row + kept.begin / kElements;
  const Mxfp4Rows from{blocks->bytes.data() + first * kBytes, scales->bytes.data() + first,
                       weight.cols / kElements, places.step * in_row};
  if (weight.name.empty()) weight.name = blocks->name;
  // Gate and up lie row by row: the bytes of both are done with when the later one is.
  std::span<const std::byte> file;
  if (places.first + 1 == places.step) {
    file = blocks->bytes.subspan(static_cast<size_t>((row - places.first) * in_row * kBytes),
                                 static_cast<size_t>(rows * places.step * in_row * kBytes));
  }
  weight.parts.push_back(memory_.MakeRows(
      DType::kMXFP4, rows, weight.cols,
      [from](int64_t first_row, int64_t count, std::byte* to) {
        WriteMxfp4Rows(from, first_row, count, to);
      },
      file));
  weight.rows += rows;
  return true;
}

void ProgramBuilder::AddColumns(const Stack& stack, int64_t cols, const Place& place, Range kept,
                                kernels::Weight& weight) {
  if (AddMxfp4(stack, cols, place, kept, weight)) return;
  const RowPlaces places = PlacesOf(stack, place);
  const load::Tensor* tensor =
      Find(stack.part, "weight", place, {config_.experts.count, cols, places.count});
  if (tensor == nullptr) return;
  if (!IsFloat(*tensor->type))
    return Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                        "\" has type ", tensor->type_name,
                                                        ", served are F32, F16 or BF16")));
  const int64_t bytes = kernels::BlockBytes(*tensor->type);
  WeightSource source{*tensor->type, stack.kept.count < 0 ? stack.rows : stack.kept.count,
                      weight.cols};
  const int64_t column = places.first + places.step * stack.kept.begin;
  source.data =
      tensor->bytes.data() + ((place.expert * cols + kept.begin) * places.count + column) * bytes;
  source.row_stride = places.step * bytes;
  if (weight.name.empty()) weight.name = tensor->name;
  weight.parts.push_back(memory_.Gather(source, places.count, tensor->name));
  weight.rows += source.rows;
}

WeightId ProgramBuilder::ExpertBias(std::initializer_list<Stack> stacks, const Place& place) {
  std::vector<float> values;
  std::string name;
  for (const Stack& stack : stacks) {
    if (!status_.ok()) return kernels::kNoId;
    const RowPlaces places = PlacesOf(stack, place);
    const load::Tensor* tensor =
        Find(stack.part, "bias", place, {config_.experts.count, places.count});
    if (tensor == nullptr) return kernels::kNoId;
    if (!IsFloat(*tensor->type)) {
      Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                   "\" has type ", tensor->type_name,
                                                   ", biases and norms may be F32, F16 or BF16")));
      return kernels::kNoId;
    }
    if (name.empty()) name = tensor->name;
    const WeightSource source{*tensor->type, 1, config_.experts.count * places.count,
                              tensor->bytes.data()};
    const int64_t count = stack.kept.count < 0 ? stack.rows : stack.kept.count;
    for (int64_t i = stack.kept.begin; i < stack.kept.begin + count; ++i) {
      values.push_back(
          FloatAt(source, place.expert * places.count + places.first + places.step * i));
    }
  }
  const auto size = static_cast<int64_t>(values.size());
  std::byte* const data = memory_.Allocate(4 * size);
  std::memcpy(data, values.data(), 4 * values.size());
  program_.weights.push_back({name, {{DType::kF32, 1, size, data}}, 1, size});
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

void ProgramBuilder::AddRows(const Stack& stack, int64_t cols, const Place& place, Range kept,
                             kernels::Weight& weight) {
  if (IsInputsFirst(place)) return AddColumns(stack, cols, place, kept, weight);
  if (AddFused(stack, cols, place, kept, weight)) return;
  const bool stacked = place.expert != kNoExpert && (files_.is_gguf() || naming_.experts_stacked);
  const int64_t experts = StackedCount(stack.part);
  const load::Tensor* tensor = Find(stack.part, "weight", place,
                                    stacked ? std::vector<int64_t>{experts, stack.rows, cols}
                                            : std::vector<int64_t>{stack.rows, cols});
  if (tensor == nullptr) return;
  Range rows = stack.kept;
  if (stacked) {  // the experts' matrices lie one below the other
    if (rows.count < 0) rows.count = stack.rows;
    rows.begin += place.expert * stack.rows;
  }
  WeightSource source =
      Halved(stack.part, Source(*tensor, stack.rows * (stacked ? experts : 1), cols, {rows, kept}));
  if (const load::Tensor* outer = OuterScaleOf(files_.tensors(), *tensor); outer != nullptr) {
    used_.Add(outer);
    const absl::StatusOr<float> scale = ReadOuterScale(*outer, *tensor, place.expert);
    if (!scale.ok()) return Fail(scale.status());
    const std::span<const std::byte> file(source.data, static_cast<size_t>(source.Bytes()));
    source = memory_.MakeRows(
        DType::kF4_16, source.rows, source.cols,
        [source, scale = *scale](int64_t first, int64_t count, std::byte* to) {
          WriteScaledNvfp4Rows(source, scale, first, count, to);
        },
        source.RowStride() == source.RowBytes() ? file : std::span<const std::byte>());
  }
  if (weight.name.empty()) weight.name = tensor->name;
  weight.parts.push_back(memory_.Convert(source, tensor->name));
  weight.rows += source.rows;
}

std::vector<ProgramBuilder::Stack> ProgramBuilder::Unfused(const std::vector<Stack>& of,
                                                           const Place& place, bool gguf) const {
  std::vector<Stack> result(of);
  if (IsInputsFirst(place)) return result;
  // Of the tensor that there is.
  const auto name_of = [&](const Stack& stack) {
    const std::vector<std::string> names = TensorNames(naming_, gguf, stack.part, place, "weight");
    const auto there = std::ranges::find_if(
        names, [this](const std::string& name) { return files_.tensors().Find(name) != nullptr; });
    if (there != names.end()) return *there;
    return names.empty() ? std::string() : names.front();
  };
  int64_t total = 0;
  for (const Stack& stack : of) {
    // Stacks of one part are rows of its tensor already.
    const bool again = &stack != &of.front() && stack.part == of.front().part;
    if (of.size() == 1 || again || name_of(stack) != name_of(of.front())) return result;
    total += stack.rows;
  }
  int64_t before = 0;
  for (Stack& stack : result) {
    const int64_t rows = stack.rows;
    if (stack.kept.count < 0) stack.kept.count = rows;
    stack.kept.begin += before;
    stack.rows = total;
    before += rows;
  }
  return result;
}

WeightId ProgramBuilder::Matrix(std::initializer_list<Stack> stacks, int64_t cols,
                                const Place& place, Range kept) {
  kernels::Weight weight;
  weight.cols = kept.count < 0 ? cols : kept.count;
  std::vector<Stack> unfused = Unfused(stacks, place, files_.is_gguf());
  const bool ordered = ShareOrder(unfused, cols, place, kept);
  for (Stack& stack : unfused) {
    stack.ordered = ordered;
    if (!status_.ok()) return kernels::kNoId;
    if (AddQuantised(stack, cols, place, kept, weight)) continue;
    AddRows(stack, cols, place, kept, weight);
  }
  if (!status_.ok()) return kernels::kNoId;
  program_.weights.push_back(std::move(weight));
  const auto id = static_cast<WeightId>(program_.weights.size()) - 1;
  Remember(id, {Unfused(stacks, place, /*gguf=*/false), place, cols, kept});
  return id;
}

WeightId ProgramBuilder::Router(Part part, int64_t rows, int layer) {
  return Unconverted(part, rows, config_.hidden_size, layer);
}

WeightId ProgramBuilder::SelectionBias(int64_t experts, int layer) {
  return Unconverted(Part::kSelectionBias, 1, experts, layer);
}

WeightId ProgramBuilder::Unconverted(Part part, int64_t rows, int64_t cols, int layer) {
  if (!status_.ok()) return kernels::kNoId;
  const load::Tensor* tensor =
      Find(part, "weight", layer, rows == 1 ? std::vector{cols} : std::vector{rows, cols});
  if (tensor == nullptr) return kernels::kNoId;
  if (!IsFloat(*tensor->type)) {
    Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                 "\" has type ", tensor->type_name,
                                                 ", routers may be F32, F16 or BF16")));
    return kernels::kNoId;
  }
  program_.weights.push_back({tensor->name, {Source(*tensor, rows, cols, {})}, rows, cols});
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

WeightId ProgramBuilder::Vector(std::initializer_list<Stack> stacks, std::string_view suffix,
                                int layer) {
  kernels::Weight weight;
  weight.rows = 1;
  std::vector<WeightSource> sources;
  for (const Stack& stack : Unfused(stacks, layer, files_.is_gguf())) {
    if (!status_.ok()) return kernels::kNoId;
    const load::Tensor* tensor = Find(stack.part, suffix, layer, {stack.rows});
    if (tensor == nullptr) return kernels::kNoId;
    if (weight.name.empty()) weight.name = tensor->name;
    WeightSource source = Source(*tensor, 1, stack.rows, {{}, stack.kept});
    source.row_stride = 0;
    const auto converted = memory_.ConvertVector(Halved(stack.part, source), tensor->name);
    if (!converted.ok()) {
      Fail(converted.status());
      return kernels::kNoId;
    }
    sources.push_back(*converted);
    weight.cols += source.cols;
  }
  WeightSource joined = sources.front();
  if (sources.size() > 1) {
    // Vectors of several tensors become one of float32: they are small, and kernels need one
    // address.
    auto* values = reinterpret_cast<float*>(memory_.Allocate(weight.cols * 4));
    joined = WeightSource{DType::kF32, 1, weight.cols, reinterpret_cast<std::byte*>(values)};
    for (const WeightSource& source : sources) {
      for (int64_t i = 0; i < source.cols; ++i) *values++ = FloatAt(source, i);
    }
  }
  weight.parts.push_back(joined);
  program_.weights.push_back(std::move(weight));
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

void ProgramBuilder::AddPartialLinear(kernels::LinearOp op, const PartialBias& bias) {
  op.accumulate = op.accumulate && shard_.first();
  if (bias.there && shard_.first()) {
    op.bias = Vector({{bias.part, program_.buffers[op.out].width}}, "bias", bias.layer);
  }
  Add(op);
  AddSum(op.out);
}

WeightId ProgramBuilder::Ones(int64_t length) {
  if (!status_.ok()) return kernels::kNoId;
  auto* values = reinterpret_cast<float*>(memory_.Allocate(length * 4));
  for (int64_t i = 0; i < length; ++i) values[i] = 1.0f;
  const WeightSource source{DType::kF32, 1, length, reinterpret_cast<std::byte*>(values)};
  program_.weights.push_back({"ones", {source}, 1, length});
  return static_cast<WeightId>(program_.weights.size()) - 1;
}

float ProgramBuilder::Scalar(Part part, int layer) {
  const load::Tensor* tensor = status_.ok() ? Find(part, "weight", layer, {1}) : nullptr;
  if (tensor == nullptr) return 1.0f;
  const float value = FloatAt(Source(*tensor, 1, 1, {}), 0);
  if (!std::isfinite(value)) {
    Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                 "\" is ", value, ", it must be a finite number")));
  }
  return value;
}

void ProgramBuilder::Ignore(Part part, int layer) {
  for (const std::string& name : TensorNames(naming_, files_.is_gguf(), part, layer, "weight")) {
    if (const load::Tensor* tensor = files_.tensors().Find(name); tensor != nullptr) {
      used_.Add(tensor);
    }
  }
}

kernels::BufferId ProgramBuilder::Buffer(std::string_view name, int64_t width,
                                         bool sampled_rows_only) {
  program_.buffers.push_back({std::string(name), static_cast<int>(width), sampled_rows_only});
  return static_cast<kernels::BufferId>(program_.buffers.size()) - 1;
}

kernels::BufferId ProgramBuilder::BufferOnce(std::string_view name, int64_t width) {
  const auto& buffers = program_.buffers;
  for (size_t id = 0; id < buffers.size(); ++id) {
    if (buffers[id].name == name) return static_cast<kernels::BufferId>(id);
  }
  return Buffer(name, width);
}

std::vector<float> ProgramBuilder::RopeFactors() {
  std::vector<float> factors;
  const std::vector<std::string> names =
      TensorNames(naming_, files_.is_gguf(), Part::kRopeFactors, kNoLayer, "weight");
  if (names.empty() || files_.tensors().Find(names.front()) == nullptr) return factors;
  if (config_.gemma.full_head_dim > 0) return factors;  // its configuration says the same
  const int64_t half = config_.RotaryDim() / 2;
  const load::Tensor* tensor = Find(Part::kRopeFactors, "weight", kNoLayer, {half});
  if (tensor == nullptr) return factors;
  const WeightSource source = Source(*tensor, 1, half, {});
  for (int64_t i = 0; i < half; ++i) {
    factors.push_back(FloatAt(source, i));
    if (!(factors.back() > 0.0f)) {
      Fail(absl::InvalidArgumentError(absl::StrCat(tensor->file, ": tensor \"", tensor->name,
                                                   "\" holds ", factors.back(),
                                                   ", it must be above 0")));
    }
  }
  return factors;
}

int ProgramBuilder::AddRope(const load::RopeConfig& rope, int rotary_dim) {
  if (rotary_dim == 0) rotary_dim = config_.RotaryDim();
  const std::vector<float> factors = RopeFactors();
  if (!status_.ok()) return kernels::kNoId;
  program_.ropes.push_back(MakeRope(rope, rotary_dim, factors));
  return static_cast<int>(program_.ropes.size()) - 1;
}

absl::StatusOr<kernels::StepProgram> ProgramBuilder::Finish() {
  // What other ranks hold in their stead, this rank need not.
  // Where experts are other ranks', one rank does not use all tensors; the whole model is built
  // before it is cut.
  const bool uses_all = shard_.first() && !shard_.HasWholeExperts(config_.experts.count);
  if (uses_all) Fail(used_.CheckLayers(files_, naming_, config_));
  if (!status_.ok()) return status_;
  return std::move(program_);
}

}  // namespace quire::model
