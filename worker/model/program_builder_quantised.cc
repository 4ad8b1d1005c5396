// The rows that a quantised checkpoint has for a weight.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/model/program_builder.h"

namespace quire::model {

std::optional<load::QuantisedMatrix> ProgramBuilder::FindQuantised(Part part, const Place& place,
                                                                   int64_t rows, int64_t cols) {
  if (files_.quantisation() == nullptr) return std::nullopt;
  for (const std::string& module : ModuleNames(naming_, part, place)) {
    absl::StatusOr<std::optional<load::QuantisedMatrix>> found =
        files_.quantisation()->Find(files_.tensors(), module, rows, cols);
    if (!found.ok()) {
      Fail(found.status());
      return std::nullopt;
    }
    if (!found->has_value()) continue;
    used_.AddModule(module);
    return *std::move(found);
  }
  return std::nullopt;
}

bool ProgramBuilder::ShareOrder(const std::vector<Stack>& stacks, int64_t cols, const Place& place,
                                Range kept) {
  constexpr Part kOfLinearOps[] = {Part::kQuery, Part::kKey, Part::kValue, Part::kOutput,
                                   Part::kGate,  Part::kUp,  Part::kDown};
  if (place.layer == kNoLayer || place.expert != kNoExpert) return false;
  if (kept.count >= 0 && kept.count < cols) return false;
  std::optional<std::vector<int32_t>> order;
  for (const Stack& stack : stacks) {
    if (std::ranges::find(kOfLinearOps, stack.part) == std::end(kOfLinearOps)) return false;
    std::optional<load::QuantisedMatrix> one = FindQuantised(stack.part, place, stack.rows, cols);
    if (!one.has_value()) return false;
    one->OrderByGroups();
    if (one->order.empty() || (order.has_value() && one->order != *order)) return false;
    order = std::move(one->order);
  }
  return true;
}

bool ProgramBuilder::AddQuantised(const Stack& stack, int64_t cols, const Place& place, Range kept,
                                  kernels::Weight& weight) {
  std::optional<load::QuantisedMatrix> quantised =
      FindQuantised(stack.part, place, stack.rows, cols);
  if (!quantised.has_value()) return !status_.ok();
  if (IsPaired(stack.part)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat(files_.path(), ": module \"", quantised->module,
                     "\" is quantised, and its rows are rotated in neighbouring pairs: not "
                     "served, use a checkpoint in floats or a GGUF file")));
    return true;
  }
  if (stack.ordered) quantised->OrderByGroups();
  const load::QuantisedMatrix::Slice slice{stack.kept.begin,
                                           stack.kept.count < 0 ? stack.rows : stack.kept.count,
                                           kept.begin, weight.cols};
  if (weight.name.empty()) weight.name = quantised->module + ".weight";
  weight.parts.push_back(memory_.Make(*std::move(quantised), slice));
  weight.rows += slice.rows;
  return true;
}

}  // namespace quire::model
