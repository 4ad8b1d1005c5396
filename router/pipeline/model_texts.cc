#include "router/pipeline/model_texts.h"

#include <algorithm>
#include <utility>

namespace quire {

ModelTexts::ModelTexts(const RouterLimits& limits, const World& world, ModelTextFactory factory,
                       Changed changed)
    : executor_(world.executor),
      background_(world.background),
      factory_(std::move(factory)),
      changed_(std::move(changed)),
      bundles_(limits, world.dialer),
      alive_(std::make_shared<bool>(true)) {}

ModelTexts::~ModelTexts() = default;

void ModelTexts::Want(const WorkerRecord& worker) {
  const std::string& model_id = worker.hello.model_id;
  const Digest digest = worker.hello.text_bundle_sha256;
  digests_.try_emplace(model_id, digest);
  Entry& entry = entries_[digest];
  const bool is_new = entry.models.insert(model_id).second;
  if (is_new && (entry.phase == Phase::kReady || entry.phase == Phase::kRefused)) {
    executor_.Post([this, model_id, status = entry.refusal, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) changed_(model_id, status);
    });
  }
  if (entry.phase != Phase::kAbsent || entry.failed.contains(worker.target)) return;
  const std::string target = worker.target;
  const bool fetching = bundles_.Fetch(
      {target, model_id, digest}, [this, digest, target](absl::StatusOr<std::string> bundle) {
        if (bundle.ok()) return Compile(digest, *std::move(bundle));
        entries_[digest].phase = Phase::kAbsent;
        entries_[digest].failed.insert(target);
        Tell(digest, absl::UnavailableError(bundle.status().message()));
      });
  if (fetching) entry.phase = Phase::kUnderWay;
}

void ModelTexts::EndRound(const std::vector<Pool>& pools) {
  std::erase_if(digests_, [&](const auto& known) {
    return std::none_of(pools.begin(), pools.end(),
                        [&](const Pool& pool) { return pool.model_id == known.first; });
  });
  for (auto& [digest, entry] : entries_) {
    if (entry.phase == Phase::kAbsent) entry.failed.clear();
    std::erase_if(entry.models, [&](const auto& model) { return !digests_.contains(model); });
  }
  std::erase_if(entries_, [](const auto& entry) {
    return entry.second.models.empty() && entry.second.phase != Phase::kUnderWay;
  });
}

void ModelTexts::Compile(const Digest& digest, std::string bundle) {
  using Made = absl::StatusOr<std::shared_ptr<const ModelText>>;
  auto made = std::make_shared<Made>(absl::UnavailableError("the background queue is full"));
  const bool queued = background_.Run(
      [factory = factory_, made, bundle = std::move(bundle)] { *made = factory(bundle); },
      [this, digest, made, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) Settle(digest, std::move(*made));
      });
  if (!queued) Settle(digest, std::move(*made));
}

void ModelTexts::Settle(const Digest& digest,
                        absl::StatusOr<std::shared_ptr<const ModelText>> text) {
  Entry& entry = entries_[digest];
  const absl::Status status = text.status();
  if (status.ok()) {
    entry.phase = Phase::kReady;
    entry.text = *std::move(text);
  } else if (absl::IsUnavailable(status)) {
    entry.phase = Phase::kAbsent;
  } else {
    entry.phase = Phase::kRefused;
    entry.refusal = status;
  }
  Tell(digest, status);
}

void ModelTexts::Tell(const Digest& digest, const absl::Status& status) {
  const std::set<std::string> models = entries_[digest].models;
  for (const std::string& model_id : models) changed_(model_id, status);
}

std::shared_ptr<const ModelText> ModelTexts::Find(const std::string& model_id) const {
  const auto digest = digests_.find(model_id);
  if (digest == digests_.end()) return nullptr;
  const auto it = entries_.find(digest->second);
  return it == entries_.end() ? nullptr : it->second.text;
}

}  // namespace quire
