// A program that computes the prompt of its first sequence and copies its pages for all others:
// many streams get long contexts in the time of one prompt, each in pages of its own. The tokens of
// a step that copies are made up.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace quire::bench {

class CopiedContext final : public kernels::LoadedProgram {
 public:
  explicit CopiedContext(std::unique_ptr<kernels::LoadedProgram> inner)
      : inner_(std::move(inner)) {}

  // kWatch: steps are computed, and the pages of their first row are those to copy from.
  enum class Mode { kCompute, kWatch, kCopy };
  void Set(Mode mode) { mode_ = mode; }

  void Run(const kernels::StepBatch& batch) override {
    if (mode_ == Mode::kCopy && !batch.rows.empty()) return Copy(batch);
    inner_->Run(batch);
    if (mode_ != Mode::kWatch || batch.rows.empty()) return;
    pages_.clear();
    for (const auto& table : batch.rows[0].block_tables) {
      pages_.emplace_back(table.begin(), table.end());
    }
  }

  void RunWithLogits(const kernels::StepBatch& batch, std::span<float> logits) override {
    inner_->RunWithLogits(batch, logits);
  }
  void PoisonPage(int32_t page) override { inner_->PoisonPage(page); }
  int64_t WeightBytes() const override { return inner_->WeightBytes(); }
  int64_t WorkspaceBytes() const override { return inner_->WorkspaceBytes(); }
  int64_t PoolBytes() const override { return inner_->PoolBytes(); }

 private:
  // Rows with a part of a prompt get the pages of the first sequence. A step needs a token: the
  // first row's is computed.
  void Copy(const kernels::StepBatch& batch) {
    std::vector<kernels::PageCopy> copies(batch.copies.begin(), batch.copies.end());
    for (const kernels::BatchRow& row : batch.rows) {
      if (row.token_count == 1) continue;
      for (size_t group = 0; group < row.block_tables.size(); ++group) {
        const auto& table = row.block_tables[group];
        for (size_t block = 0; block < std::min(table.size(), pages_[group].size()); ++block) {
          if (table[block] < 0 || pages_[group][block] < 0) continue;
          copies.push_back({pages_[group][block], table[block]});
        }
      }
    }
    kernels::BatchRow row = batch.rows[0];
    const size_t first = static_cast<size_t>(row.first_token);
    row.first_token = 0;
    row.token_count = 1;
    kernels::StepBatch one;
    one.tokens = batch.tokens.subspan(first, 1);
    one.positions = batch.positions.subspan(first, 1);
    one.rows = {&row, 1};
    one.copies = copies;
    inner_->Run(one);
    for (kernels::SampleOutput& sample : batch.sample_outputs) sample.token = 7;
  }

  std::unique_ptr<kernels::LoadedProgram> inner_;
  Mode mode_ = Mode::kCompute;
  std::vector<std::vector<int32_t>> pages_;  // by group: what the first sequence has
};

}  // namespace quire::bench
