#include "worker/model/draft_head.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace quire::model {

using kernels::BufferId;
using kernels::kNoId;

absl::Status AddFinalNorm(const kernels::StepProgram& target, BufferId in, BufferId out,
                          kernels::StepProgram& to) {
  const auto gather = std::ranges::find_if(target.ops, [](const kernels::Op& op) {
    return std::holds_alternative<kernels::GatherRowsOp>(op);
  });
  const bool plain = target.ops.end() - gather > 2 &&
                     std::holds_alternative<kernels::NormOp>(*(gather + 1)) &&
                     std::holds_alternative<kernels::LogitsOp>(*(gather + 2));
  if (!plain) {
    return absl::InvalidArgumentError(
        absl::StrCat("models of the family ", target.family,
                     " have more than a norm before their head, which draft heads do not read; "
                     "use method draft_model or ngram"));
  }
  kernels::NormOp norm = std::get<kernels::NormOp>(*(gather + 1));
  for (kernels::WeightId* id : {&norm.weight, &norm.bias}) {
    if (*id == kNoId) continue;
    to.weights.push_back(target.weights[static_cast<size_t>(*id)]);
    *id = static_cast<kernels::WeightId>(to.weights.size()) - 1;
  }
  norm.in = in;
  norm.out = out;
  to.ops.emplace_back(norm);
  return absl::OkStatus();
}

absl::Status CheckFeatures(const Model& target) {
  if (target.program.features != kNoId) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("models of the family ", target.config.family,
                   " do not show their hidden states to draft heads; use method draft_model or "
                   "ngram"));
}

kernels::StepProgram HeadProgram(const kernels::StepProgram& target, const char* family,
                                 int64_t vocab_size) {
  kernels::StepProgram program;
  program.family = family;
  program.vocab_size = static_cast<int>(vocab_size);
  program.hidden_size = target.hidden_size;
  program.max_positions = target.max_positions;
  program.heads = program.kv_heads = 1;  // where it has no attention, nothing reads them
  program.head_dim = target.head_dim;
  return program;
}

BufferId AddBuffer(kernels::StepProgram& program, const char* name, int64_t width,
                   bool sampled_rows_only) {
  program.buffers.push_back({name, static_cast<int>(width), sampled_rows_only});
  return static_cast<BufferId>(program.buffers.size()) - 1;
}

void AddHeadEnd(kernels::StepProgram& program, const HeadEnd& end) {
  const int width = program.buffers[static_cast<size_t>(end.in)].width;
  BufferId last = AddBuffer(program, "last", width, true);
  program.ops.emplace_back(kernels::GatherRowsOp{end.in, last});
  if (end.norm != kNoId) {
    const BufferId normed = AddBuffer(program, "last_normed", width, true);
    kernels::NormOp norm;
    norm.weight = end.norm;
    norm.epsilon = end.epsilon;
    norm.in = last;
    norm.out = normed;
    program.ops.emplace_back(norm);
    last = normed;
  }
  kernels::LogitsOp logits;
  logits.head = end.head;
  logits.in = last;
  logits.out =
      AddBuffer(program, "logits", kernels::VocabularyOf(program.vocab_size, 0, 1).width, true);
  program.ops.emplace_back(logits);
  program.ops.emplace_back(kernels::SampleOp{logits.out});
}

}  // namespace quire::model
