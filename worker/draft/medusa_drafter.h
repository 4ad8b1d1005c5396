// Drafts with the heads of Medusa (Cai et al., arXiv 2401.10774): each reads the hidden state of
// the position before the row's last token, and names the likeliest token one further behind it.
//
// Owner and threads as HeadDrafter. A proposal depends on that hidden state alone.
#pragma once

#include <vector>

#include "worker/draft/head_drafter.h"

namespace quire {

class MedusaDrafter final : public HeadDrafter {
 public:
  // One program for each further token; they outlive the drafter.
  MedusaDrafter(HeadDrafterOptions options, std::vector<kernels::LoadedProgram*> heads);

  void Observe(const ObservedStep& step) override;

 private:
  void Draft(std::span<const Active> rows) override;

  const std::vector<kernels::LoadedProgram*> heads_;
  std::vector<float> states_;  // [slots][hidden]
  // Of one head's step, by row.
  std::vector<float> inputs_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::SampleOutput> outputs_;
};

}  // namespace quire
