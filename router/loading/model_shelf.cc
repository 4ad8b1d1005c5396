#include "router/loading/model_shelf.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

using serve::ModelState;
using serve::OrderKind;

bool ModelShelf::Heard(const serve::ModelNews& news, Micros now) {
  const auto known = models_.find(news.name);
  if (news.gone) {
    if (known == models_.end()) return true;
    std::erase(wanted_, news.name);
    if (known->second.waiting + known->second.using_it == 0) {
      models_.erase(known);
    } else {
      known->second.news = news;  // until its requests have heard of it
      known->second.wanted = false;
    }
    return true;
  }
  if (known == models_.end() && models_.size() >= serve::kMaxModels) return false;
  Model& model = known != models_.end() ? known->second : models_[news.name];
  const bool was_ready = model.news.state == ModelState::kReady;
  const bool leaves = model.news.state == ModelState::kStopping;
  model.news = news;
  if (leaves && news.state == ModelState::kAbsent) model.keep_alive.reset();
  if (news.state == ModelState::kReady && !was_ready) {
    model.fresh = model.waiting > 0;
    model.used_at = now;
    model.leaves = false;
  }
  if (news.no_room && loaded() == 0) {
    model.news.error = "there is no memory for it";  // no other model could give way
  }
  const bool failed = news.state == ModelState::kAbsent && !model.news.error.empty();
  if (model.wanted && (news.state == ModelState::kReady || failed)) {
    model.wanted = false;
    std::erase(wanted_, news.name);
  }
  return true;
}

const ModelShelf::Model* ModelShelf::Find(std::string_view name) const {
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : &found->second;
}

ModelShelf::Model& ModelShelf::Get(std::string_view name) {
  const auto found = models_.find(name);
  QUIRE_CHECK_MSG(found != models_.end(), "callers look for a model first");
  return found->second;
}

void ModelShelf::Want(std::string_view name, Micros now) {
  Model& model = Get(name);
  model.leaves = false;
  if (model.wanted || model.news.state == ModelState::kReady) return;
  model.news.error.clear();
  model.news.no_room = false;
  model.wanted = true;
  model.wanted_since = now;
  wanted_.emplace_back(name);
}

void ModelShelf::Wait(std::string_view name, Micros now) {
  ++Get(name).waiting;
  Want(name, now);
}

void ModelShelf::StopWaiting(std::string_view name) {
  Model& model = Get(name);
  QUIRE_CHECK(model.waiting > 0);
  if (--model.waiting > 0) return;
  model.fresh = false;
  if (model.news.gone && model.using_it == 0) models_.erase(std::string(name));
}

bool ModelShelf::MayBegin(std::string_view name, Micros now) const {
  const Model* model = Find(name);
  if (model == nullptr || model->news.state != ModelState::kReady) return false;
  if (model->fresh || wanted_.empty()) return true;
  const Model& first = models_.find(wanted_.front())->second;
  const bool full = loaded() >= limits_.max_loaded || first.news.no_room;
  return !full || now < first.wanted_since + kTurnAfter;
}

void ModelShelf::Use(std::string_view name) {
  Model& model = Get(name);
  ++model.using_it;
  model.fresh = false;
}

void ModelShelf::Done(std::string_view name, Micros now) {
  Model& model = Get(name);
  QUIRE_CHECK(model.using_it > 0);
  --model.using_it;
  model.used_at = now;
  if (model.news.gone && model.using_it + model.waiting == 0) models_.erase(std::string(name));
}

void ModelShelf::KeepAlive(std::string_view name, Micros time, Micros now) {
  Model& model = Get(name);
  model.keep_alive = time;
  model.used_at = now;
}

bool ModelShelf::Unload(std::string_view name) {
  Model& model = Get(name);
  if (model.using_it + model.waiting > 0) return false;
  if (std::exchange(model.wanted, false)) std::erase(wanted_, model.news.name);
  model.leaves = model.news.state == ModelState::kReady || model.news.state == ModelState::kLoading;
  return true;
}

Micros ModelShelf::KeepAliveOf(const Model& model) const {
  if (model.keep_alive) return *model.keep_alive;
  if (model.news.kept && !limits_.keep_alive_is_given) return -1;
  return limits_.keep_alive;
}

std::optional<Micros> ModelShelf::Until(const Model& model) const {
  if (model.news.state != ModelState::kReady || model.using_it + model.waiting > 0) {
    return std::nullopt;
  }
  const Micros time = KeepAliveOf(model);
  if (time < 0) return std::nullopt;
  return model.used_at + time;
}

size_t ModelShelf::loaded() const {
  return static_cast<size_t>(std::count_if(models_.begin(), models_.end(), [](const auto& one) {
    return one.second.news.state != ModelState::kAbsent;
  }));
}

bool ModelShelf::AnyReady() const {
  return std::any_of(models_.begin(), models_.end(),
                     [](const auto& one) { return one.second.news.state == ModelState::kReady; });
}

bool ModelShelf::UnderWay() const {
  return std::any_of(models_.begin(), models_.end(), [](const auto& one) {
    const ModelState state = one.second.news.state;
    return state == ModelState::kLoading || state == ModelState::kStopping;
  });
}

ModelShelf::Model* ModelShelf::WhoGivesWay(std::string_view for_model, Micros now) {
  const Micros since = models_.find(for_model)->second.wanted_since;
  Model* chosen = nullptr;
  const auto rank = [this](const Model& model) {
    return std::pair(KeepAliveOf(model) < 0, model.used_at);
  };
  for (auto& [name, model] : models_) {
    const bool held_back = now >= since + kTurnAfter;  // its new requests wait behind this model
    const bool idle = model.using_it == 0 && !model.fresh && (model.waiting == 0 || held_back);
    if (model.news.state != ModelState::kReady || !idle) continue;
    if (chosen == nullptr || rank(model) < rank(*chosen)) chosen = &model;
  }
  return chosen;
}

serve::Order ModelShelf::Say(OrderKind kind, Model& model) {
  const bool load = kind == OrderKind::kLoad;
  model.news.state = load ? ModelState::kLoading : ModelState::kStopping;
  model.leaves = false;
  return {kind, model.news.name, 0};
}

std::optional<serve::Order> ModelShelf::Next(Micros now) {
  if (UnderWay()) return std::nullopt;
  for (auto& [name, model] : models_) {
    if (model.news.state != ModelState::kReady || model.using_it + model.waiting > 0) continue;
    const std::optional<Micros> until = Until(model);
    if (model.leaves || (until && *until <= now)) return Say(OrderKind::kUnload, model);
  }
  if (wanted_.empty()) return std::nullopt;
  Model& first = Get(wanted_.front());
  if (loaded() < limits_.max_loaded && !first.news.no_room) return Say(OrderKind::kLoad, first);
  if (Model* idle = WhoGivesWay(first.news.name, now)) {
    first.news.no_room = false;  // there may be room then
    serve::Order order = Say(OrderKind::kUnload, *idle);
    if (idle->waiting > 0) Want(idle->news.name, now);  // its turn comes again
    return order;
  }
  return std::nullopt;
}

std::optional<Micros> ModelShelf::NextExpiry(Micros now) const {
  std::optional<Micros> next;
  const auto add = [&](Micros due) {
    if (due > now) next = std::min(next.value_or(due), due);
  };
  for (const auto& [name, model] : models_) {
    if (const std::optional<Micros> until = Until(model)) add(*until);
  }
  if (!wanted_.empty()) add(models_.find(wanted_.front())->second.wanted_since + kTurnAfter);
  return next;
}

void ModelShelf::CheckInvariants() const {
  QUIRE_CHECK(models_.size() <= serve::kMaxModels && wanted_.size() <= models_.size());
  for (const auto& [name, model] : models_) {
    const ModelState state = model.news.state;
    QUIRE_CHECK_MSG(state != ModelState::kStopping || model.using_it == 0,
                    "no model is unloaded while somebody uses it");
    QUIRE_CHECK(model.wanted == (std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end()));
  }
}

}  // namespace quire
