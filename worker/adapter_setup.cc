#include "worker/adapter_setup.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "common/json/json.h"
#include "common/wire/worker_frames.h"
#include "kernels/cpu/packed_adapter.h"
#include "worker/adapters/peft_adapter.h"

namespace quire {
namespace {

constexpr std::string_view kLoraModulesFlag = "--lora-modules";

// The environment parts lists at commas, and JSON has some: its pieces are one entry again.
std::vector<std::string> WholeLoraEntries(const std::vector<std::string>& pieces) {
  std::vector<std::string> entries;
  bool open = false;
  for (const std::string& piece : pieces) {
    if (open) {
      entries.back() += "," + piece;
    } else {
      entries.push_back(piece);
    }
    const std::string& whole = entries.back();
    open = whole.starts_with('{') && !whole.ends_with('}');
  }
  return entries;
}

absl::StatusOr<AdapterSetting> SettingFromJson(const std::string& text) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text, {.max_bytes = 1 << 16}));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "the entry"));
  AdapterSetting setting;
  for (const auto& [key, member] :
       {std::pair<std::string_view, std::string*>{"name", &setting.name},
        {"path", &setting.path}}) {
    const json::Value* found = json::Find(*object, key);
    if (found == nullptr) return InvalidArgument("has no \"" + std::string(key) + "\"");
    QUIRE_ASSIGN_OR_RETURN(const std::string_view read, json::AsString(*found, key));
    *member = std::string(read);
  }
  return setting;
}

absl::StatusOr<AdapterSetting> SettingFromText(const std::string& text) {
  if (text.starts_with('{')) return SettingFromJson(text);
  const size_t equals = text.find('=');
  if (equals == text.npos) return InvalidArgument("has no =");
  return AdapterSetting{text.substr(0, equals), text.substr(equals + 1)};
}

// Reads one after another; `install` takes each into its slot, and says what it takes there.
template <typename Install>
absl::StatusOr<AdapterTable> ReadAdaptersWith(const WorkerConfig& config,
                                              const kernels::StepProgram& steps,
                                              const Install& install) {
  AdapterTable table(MaxLoras(config));
  if (table.max_loras() == 0) return table;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<AdapterSetting> settings,
                         ParseLoraModules(config.lora_modules));
  for (const AdapterSetting& setting : settings) {
    const std::string about = std::string(kLoraModulesFlag) + " " + setting.name;
    const auto adapter =
        PeftAdapter::Open(setting.path, config.allowed_model_roots, config.max_lora_rank);
    if (!adapter.ok()) return Annotate(adapter.status(), about);
    const absl::StatusOr<RankAdapter> matrices = (*adapter)->For(steps.lora_targets);
    if (!matrices.ok()) return Annotate(matrices.status(), about);
    AdapterInfo info{setting.name, (*adapter)->digest(), (*adapter)->rank(), setting.path};
    const bool known = table.SlotOf(info.digest).has_value();
    if (!known && table.SlotCount() == table.max_loras()) {
      return InvalidArgument(about + ": all slots of --max-loras " +
                             std::to_string(table.max_loras()) + " are taken; raise it");
    }
    if (known) {
      info.bytes = table.BytesOf(info.digest);
      table.Add(std::move(info));
    } else {
      info.bytes = install(table.SlotCount(), matrices->adapter);
      table.Add(std::move(info));
    }
  }
  return table;
}

}  // namespace

absl::StatusOr<std::vector<AdapterSetting>> ParseLoraModules(
    const std::vector<std::string>& entries) {
  std::vector<AdapterSetting> settings;
  std::set<std::string> names;
  for (const std::string& text : WholeLoraEntries(entries)) {
    absl::StatusOr<AdapterSetting> setting = SettingFromText(text);
    if (!setting.ok() || setting->path.empty()) {
      const std::string why = setting.ok() ? "has no folder" : StatusMessage(setting.status());
      return InvalidArgument(std::string(kLoraModulesFlag) + ": '" + text.substr(0, 100) + "' " +
                             why + "; give NAME=FOLDER");
    }
    const std::string& name = setting->name;
    const bool blank = std::any_of(name.begin(), name.end(), [](char c) {
      return static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
    });
    const absl::Status usable = CheckAdapterName(name);
    if (!usable.ok() || blank) {
      return InvalidArgument(
          std::string(kLoraModulesFlag) + ": the name of '" + text.substr(0, 100) + "' " +
          (usable.ok() ? "has a space or an invisible character" : StatusMessage(usable)) +
          "; give NAME=FOLDER");
    }
    if (!names.insert(name).second) {
      return InvalidArgument(std::string(kLoraModulesFlag) + ": '" + name +
                             "' is there twice; give each adapter a name of its own");
    }
    settings.push_back(*std::move(setting));
  }
  if (settings.size() > static_cast<size_t>(kMaxServedAdapters)) {
    return InvalidArgument(std::string(kLoraModulesFlag) + ": names " +
                           std::to_string(settings.size()) + " adapters; at most " +
                           std::to_string(kMaxServedAdapters) + " are served");
  }
  return settings;
}

absl::Status CheckAdapterFlags(const WorkerConfig& config) {
  if (!config.enable_lora) {
    if (config.lora_modules.empty()) return absl::OkStatus();
    return InvalidArgument(std::string(kLoraModulesFlag) +
                           ": goes with --enable-lora, which is missing");
  }
  if (AsksForGpu(config)) {
    return InvalidArgument(
        "--enable-lora: adapters are served on the CPU alone; leave it out, or set --device cpu");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<AdapterSetting> settings,
                         ParseLoraModules(config.lora_modules));
  std::vector<std::string> served = config.served_model_names;
  if (served.empty()) served.push_back(ModelBaseName(config.model));
  for (const AdapterSetting& setting : settings) {
    if (std::find(served.begin(), served.end(), setting.name) == served.end()) continue;
    return InvalidArgument(std::string(kLoraModulesFlag) + ": '" + setting.name +
                           "' is a name of the model; give the adapter another one");
  }
  return absl::OkStatus();
}

absl::StatusOr<AdapterTable> LoadAdapters(const WorkerConfig& config,
                                          const kernels::StepProgram& steps,
                                          kernels::LoadedProgram& program) {
  return ReadAdaptersWith(config, steps, [&program](int slot, const kernels::Adapter& adapter) {
    std::shared_ptr<const kernels::AdapterWeights> packed = program.PackAdapter(adapter);
    const int64_t bytes = packed->Bytes();
    program.SetAdapter(slot, std::move(packed));
    return bytes;
  });
}

absl::StatusOr<AdapterTable> ReadAdapters(const WorkerConfig& config,
                                          const kernels::StepProgram& steps) {
  return ReadAdaptersWith(config, steps, [](int, const kernels::Adapter& adapter) {
    return kernels::cpu::PackAdapter(adapter)->Bytes();
  });
}

void LogAdapters(const AdapterTable& adapters, Logger& log) {
  for (const AdapterInfo& adapter : adapters.List()) {
    log.Info("adapter", {{"name", adapter.name},
                         {"path", adapter.path},
                         {"digest", adapter.digest},
                         {"rank", adapter.rank},
                         {"bytes", adapter.bytes}});
  }
}

std::string AdapterIdentity(const AdapterTable& adapters) {
  std::string identity;
  for (const std::string& digest : adapters.Slots()) identity += " " + digest;
  return identity;
}

}  // namespace quire
