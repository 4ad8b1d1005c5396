// The files of one model, opened and mapped: a Hugging Face directory or a GGUF file.
//
// Owned by the loaded Model; read from any thread once open. Everything read from the files stays
// mapped as long as this object lives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "worker/load/gguf.h"
#include "worker/load/mapped_file.h"
#include "worker/load/model_roots.h"
#include "worker/load/quantisation.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

inline constexpr size_t kMaxConfigBytes = 4 << 20;
inline constexpr size_t kMaxIndexBytes = 64 << 20;
inline constexpr size_t kMaxShards = 4'096;

class ModelFiles {
 public:
  // `path` is a directory with config.json and *.safetensors (one file, or shards named by
  // model.safetensors.index.json), a GGUF file, or a directory with one. Errors name the file and
  // tensor, and what would work. Links may lead where model_roots.h permits, with `allowed_roots`.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(
      const std::string& path, const std::vector<std::string>& allowed_roots = {});

  const std::string& path() const { return path_; }
  bool is_gguf() const { return gguf_.has_value(); }
  // Requires is_gguf().
  const GgufFile& gguf() const { return *gguf_; }
  // config.json. Requires !is_gguf().
  const json::Object& config() const { return config_; }
  const TensorTable& tensors() const { return is_gguf() ? gguf_->tensors() : tensors_; }

  // How the checkpoint is quantised; null: it is not, or by the types of its tensors alone (GGUF).
  const Quantisation* quantisation() const { return quantisation_ ? &*quantisation_ : nullptr; }

  // The text of a file of the directory (tokenizer.json, chat_template.jinja, …), or nothing when
  // it is absent. RESOURCE_EXHAUSTED above max_bytes. Requires !is_gguf().
  absl::StatusOr<std::optional<std::string>> ReadText(std::string_view name,
                                                      size_t max_bytes) const;

  // Drops resident pages of the mapped files inside the range; other memory is left alone.
  void Release(const void* data, int64_t bytes) const;

 private:
  explicit ModelFiles(ModelRoots roots) : roots_(std::move(roots)) {}
  absl::StatusOr<std::unique_ptr<MappedFile>> MapFile(const std::string& path) const;
  absl::Status OpenDirectory();
  absl::Status OpenGguf();
  absl::Status ReadQuantisation();
  absl::Status OpenShards(const json::Object& index);
  absl::Status AddSafetensors(const std::string& name);

  const ModelRoots roots_;
  std::string path_;
  std::vector<std::unique_ptr<MappedFile>> maps_;
  std::optional<GgufFile> gguf_;
  json::Object config_;
  TensorTable tensors_;
  std::optional<Quantisation> quantisation_;
};

}  // namespace quire::load
