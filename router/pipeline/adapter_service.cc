#include "router/pipeline/adapter_service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/wire/features.h"
#include "router/core/result.h"

namespace quire {
namespace {

constexpr std::string_view kCannot =
    "it takes no adapters at run time; that needs --enable-lora, and one rank on a CPU";

class Task final : public AdapterTask {
 public:
  Task(AdapterOrders& orders, uint64_t number) : orders_(orders), number_(number) {}
  ~Task() override { orders_.Forget(number_); }

 private:
  AdapterOrders& orders_;
  const uint64_t number_;
};

std::vector<std::string> ModelNames(const Fleet& fleet) {
  std::vector<std::string> names;
  for (const Pool& pool : fleet.pools()) {
    const bool listed = std::ranges::find(names, pool.name) != names.end();
    if (pool.adapter.empty() && !listed) names.push_back(pool.name);
  }
  return names;
}

// The model_ids of the named model; of every model that has the adapter, where an unload names
// none.
Result<std::set<std::string>> ModelsOf(const Fleet& fleet, const AdapterAsk& ask) {
  std::set<std::string> ids;
  std::string name = Unaliased(fleet.pool_rules(), ask.base_model);
  const bool unload = ask.order.kind == AdapterOrder::Kind::kUnload;
  if (name.empty() && unload) {
    for (const Pool& pool : fleet.pools()) {
      if (pool.name == ask.order.name && !pool.adapter.empty()) ids.insert(pool.model_id);
    }
    if (!ids.empty()) return ids;
    return ApiError{ApiCode::kNotFound,
                    "The lora adapter '" + ask.order.name + "' cannot be found.", "lora_name", 0};
  }
  if (name.empty()) {
    const std::string* only = OnlyName(fleet.pools());
    if (only == nullptr && !fleet.pools().empty()) {
      return InvalidField("base_model_name", "must name a model, since several are served");
    }
    if (only != nullptr) name = *only;
  }
  for (const Pool& pool : fleet.pools()) {
    if (pool.name == name && pool.adapter.empty()) ids.insert(pool.model_id);
  }
  if (ids.empty() && !ask.base_model.empty()) {
    ApiError unknown = NotServed(ask.base_model, ModelNames(fleet));
    unknown.param = "base_model_name";
    return unknown;
  }
  return ids;
}

}  // namespace

Result<std::unique_ptr<AdapterTask>> OrderAdaptersOf(Dispatcher& dispatcher, AdapterAsk ask,
                                                     AdapterDone done) {
  const Fleet& fleet = dispatcher.fleet();
  const std::vector<std::string> models = ModelNames(fleet);
  if (std::ranges::find(models, ask.order.name) != models.end() ||
      fleet.pool_rules().aliases.contains(ask.order.name)) {
    return InvalidField("lora_name", "'" + ask.order.name + "' is a name of a model");
  }
  const Result<std::set<std::string>> ids = ModelsOf(fleet, ask);
  if (!ids.ok()) return ids.error();
  std::vector<AdapterOrders::Target> targets;
  for (const WorkerRecord& worker : fleet.workers()) {
    const bool usable = worker.attached && !worker.draining && worker.refusal.empty();
    if (!usable || !ids.value().contains(worker.hello.model_id)) continue;
    AdapterOrders::Target& target = targets.emplace_back();
    target.worker = worker.index;
    target.name =
        "worker " + (worker.hello.worker_id.empty() ? worker.target : worker.hello.worker_id);
    const std::vector<std::string>& features = worker.hello.features;
    if (std::ranges::find(features, kFeatureAdapterOrders) == features.end()) {
      target.cannot = kCannot;
    }
  }
  if (targets.empty()) {
    return ApiError{ApiCode::kUnavailable, "no worker of the model is connected", "", 1000};
  }
  const uint64_t number =
      dispatcher.adapter_orders().Begin(std::move(ask.order), targets, std::move(done));
  if (number == 0) {
    return ApiError{ApiCode::kUnavailable,
                    std::to_string(kMaxAdapterOrders) + " orders about adapters are under way", "",
                    1000};
  }
  return std::unique_ptr<AdapterTask>(std::make_unique<Task>(dispatcher.adapter_orders(), number));
}

}  // namespace quire
