// Reads one adapter at run time, off the engine's thread: from its folder to packed matrices.
//
// Any thread; values. What it names outlives it. The folder is hostile input, and may change while
// it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/lora_ops.h"
#include "worker/adapters/peft_adapter.h"

namespace quire {

struct AdapterPlace {
  std::string folder;
  std::string root;  // every file is in it, with links followed; empty: the folder is anywhere
};

struct AdapterContent {
  std::string digest;
  int rank = 0;  // the largest of its modules
  int64_t bytes = 0;
  std::shared_ptr<const kernels::AdapterWeights> weights;  // null: it is held already
};

// Where `path` leads in `root`, a folder: relative to it, or below it. INVALID_ARGUMENT: elsewhere.
absl::StatusOr<AdapterPlace> PlaceInRoot(const std::string& root, const std::string& path);

// Equal for equal states of a folder's files, which are not read; empty: one is missing.
std::string FolderFingerprint(const std::string& folder);

// An adapter as SetAdapter takes it. INVALID_ARGUMENT: it is no adapter of this model.
using AdapterPack = std::function<absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>>(
    const PeftAdapter& adapter)>;

class AdapterReader {
 public:
  // `targets` are of the whole model or of one rank.
  AdapterReader(const std::vector<kernels::LoraTarget>& targets, AdapterPack pack,
                std::vector<std::string> allowed_roots, int max_rank)
      : targets_(targets),
        pack_(std::move(pack)),
        allowed_roots_(std::move(allowed_roots)),
        max_rank_(max_rank) {}

  // `held` are digests that need no packing. NOT_FOUND: there is no such folder; every other error
  // says what cannot be served, in one line.
  absl::StatusOr<AdapterContent> Read(const AdapterPlace& place,
                                      std::span<const std::string> held) const;

 private:
  int64_t MostFileBytes() const;

  const std::vector<kernels::LoraTarget>& targets_;
  const AdapterPack pack_;
  const std::vector<std::string> allowed_roots_;
  const int max_rank_;
};

}  // namespace quire
