// The text side of every model that workers serve: fetched from the first worker of each, compiled
// in the background, then shared by all requests.
//
// Owner: the pipeline, on the router's executor.
//  1. A model's text is fetched once; a failed fetch is tried again every second while Want is
//     repeated.
//  2. A bundle that cannot be read is refused for good and told so.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/runtime/runtime.h"
#include "router/core/model_text.h"
#include "router/fleet/fleet.h"
#include "router/fleet/text_bundles.h"

namespace quire {

class ModelTexts {
 public:
  // OK: the model's text is at hand. INVALID_ARGUMENT and the like: it never will be. UNAVAILABLE:
  // the fetch failed, and is worth another Want a second later.
  using Changed = std::function<void(const std::string& model_id, const absl::Status& status)>;

  // `dialer` and `background` outlive this object.
  ModelTexts(const RouterLimits& limits, Dialer& dialer, Background& background,
             ModelTextFactory factory, Changed changed);
  ~ModelTexts();

  // The worker is attached and serves this model. Does nothing when the text is known or under way.
  void Want(const WorkerRecord& worker);
  // nullptr: not at hand.
  std::shared_ptr<const ModelText> Find(const std::string& model_id) const;

 private:
  enum class Phase : uint8_t { kAbsent, kUnderWay, kReady, kRefused };
  struct Entry {
    Phase phase = Phase::kAbsent;
    std::shared_ptr<const ModelText> text;
  };

  void Compile(const std::string& model_id, std::string bundle);
  void Settle(const std::string& model_id, absl::StatusOr<std::shared_ptr<const ModelText>> text);

  Background& background_;
  const ModelTextFactory factory_;
  const Changed changed_;
  TextBundles bundles_;
  std::map<std::string, Entry> entries_;
  std::shared_ptr<bool> alive_;  // watched by work in the background
};

}  // namespace quire
