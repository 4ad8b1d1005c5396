#include "router/pipeline/model_texts.h"

#include <utility>

namespace quire {

ModelTexts::ModelTexts(const RouterLimits& limits, Dialer& dialer, Background& background,
                       ModelTextFactory factory, Changed changed)
    : background_(background),
      factory_(std::move(factory)),
      changed_(std::move(changed)),
      bundles_(limits, dialer),
      alive_(std::make_shared<bool>(true)) {}

ModelTexts::~ModelTexts() = default;

void ModelTexts::Want(const WorkerRecord& worker) {
  const std::string model_id = worker.hello.model_id;
  Entry& entry = entries_[model_id];
  if (entry.phase != Phase::kAbsent) return;
  const bool fetching =
      bundles_.Fetch({worker.target, model_id, worker.hello.text_bundle_sha256},
                     [this, model_id](absl::StatusOr<std::string> bundle) {
                       if (bundle.ok()) {
                         Compile(model_id, *std::move(bundle));
                         return;
                       }
                       entries_[model_id].phase = Phase::kAbsent;
                       changed_(model_id, absl::UnavailableError(bundle.status().message()));
                     });
  if (fetching) entry.phase = Phase::kUnderWay;
}

void ModelTexts::Compile(const std::string& model_id, std::string bundle) {
  using Made = absl::StatusOr<std::shared_ptr<const ModelText>>;
  auto made = std::make_shared<Made>(absl::UnavailableError("the background queue is full"));
  const bool queued = background_.Run(
      [factory = factory_, made, bundle = std::move(bundle)] { *made = factory(bundle); },
      [this, model_id, made, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) Settle(model_id, std::move(*made));
      });
  if (!queued) Settle(model_id, std::move(*made));
}

void ModelTexts::Settle(const std::string& model_id,
                        absl::StatusOr<std::shared_ptr<const ModelText>> text) {
  Entry& entry = entries_[model_id];
  if (text.ok()) {
    entry = {Phase::kReady, *std::move(text)};
    changed_(model_id, absl::OkStatus());
    return;
  }
  const bool again = absl::IsUnavailable(text.status());
  entry.phase = again ? Phase::kAbsent : Phase::kRefused;
  changed_(model_id, text.status());
}

std::shared_ptr<const ModelText> ModelTexts::Find(const std::string& model_id) const {
  const auto it = entries_.find(model_id);
  return it == entries_.end() ? nullptr : it->second.text;
}

}  // namespace quire
