// The text side of every model that workers serve: fetched from a worker, compiled in the
// background, then shared by all requests, and by models whose bundles are the same.
//
// Owner: the pipeline, on the router's executor.
//  1. A bundle is identified by its SHA-256 and fetched once, whichever models and workers have it;
//     the fetched bytes are compared with their digest before they are read.
//  2. A failed fetch is tried again while `Want` is repeated, from another worker if there is one.
//  3. A bundle that cannot be read is refused for good, and the refusal is reported.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/runtime/runtime.h"
#include "router/core/model_text.h"
#include "router/fleet/fleet.h"
#include "router/fleet/text_bundles.h"

namespace quire {

class ModelTexts {
 public:
  // OK: the model's text is available. INVALID_ARGUMENT and the like: it never will be.
  // UNAVAILABLE: the fetch failed; call `Want` again a second later. Never called inside `Want`.
  using Changed = std::function<void(const std::string& model_id, const absl::Status& status)>;

  // All of it outlives this object.
  struct World {
    Dialer& dialer;
    Executor& executor;
    Background& background;
  };
  ModelTexts(const RouterLimits& limits, const World& world, ModelTextFactory factory,
             Changed changed);
  ~ModelTexts();

  // The worker is attached and serves this model. Does nothing when the text is known or being
  // fetched.
  void Want(const WorkerRecord& worker);
  // `Want` has been called for every worker: those from which a fetch failed may be tried again.
  // Forgets the models that are in no pool any more.
  void EndRound(const std::vector<Pool>& pools);
  // nullptr: not available.
  std::shared_ptr<const ModelText> Find(const std::string& model_id) const;

 private:
  enum class Phase : uint8_t { kAbsent, kUnderWay, kReady, kRefused };
  struct Entry {
    Phase phase = Phase::kAbsent;
    std::shared_ptr<const ModelText> text;
    absl::Status refusal;          // with kRefused
    std::set<std::string> models;  // models that have this bundle
    std::set<std::string> failed;  // targets from which it could not be fetched this round
  };
  using Digest = std::string;

  void Compile(const Digest& digest, std::string bundle);
  void Settle(const Digest& digest, absl::StatusOr<std::shared_ptr<const ModelText>> text);
  void Tell(const Digest& digest, const absl::Status& status);

  Executor& executor_;
  Background& background_;
  const ModelTextFactory factory_;
  const Changed changed_;
  TextBundles bundles_;
  std::map<Digest, Entry> entries_;
  std::map<std::string, Digest> digests_;  // by model_id
  std::shared_ptr<bool> alive_;            // watched by work in the background
};

}  // namespace quire
