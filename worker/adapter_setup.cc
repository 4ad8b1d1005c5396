#include "worker/adapter_setup.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "common/host_port.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "common/wire/worker_frames.h"
#include "worker/adapters/peft_adapter.h"
#include "worker/adapters/peft_config.h"

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

// Reads the settings' adapters one after another; `install` takes each new one into its slot, and
// says what it takes there.
using AdapterInstall = std::function<absl::StatusOr<int64_t>(int slot, const PeftAdapter& adapter)>;

absl::StatusOr<AdapterTable> ReadAdaptersWith(const WorkerConfig& config,
                                              const AdapterInstall& install) {
  AdapterTable table(MaxLoras(config));
  if (table.max_loras() == 0) return table;
  QUIRE_ASSIGN_OR_RETURN(const std::vector<AdapterSetting> settings,
                         ParseLoraModules(config.lora_modules));
  for (const AdapterSetting& setting : settings) {
    const std::string about = std::string(kLoraModulesFlag) + " " + setting.name;
    const auto adapter =
        PeftAdapter::Open(setting.path, config.allowed_model_roots, config.max_lora_rank);
    if (!adapter.ok()) return Annotate(adapter.status(), about);
    AdapterInfo info{setting.name, (*adapter)->digest(), (*adapter)->rank(), setting.path};
    const bool known = table.SlotOf(info.digest).has_value();
    if (!known && table.SlotCount() == table.max_loras()) {
      return InvalidArgument(about + ": all slots of --max-loras " +
                             std::to_string(table.max_loras()) + " are taken; raise it");
    }
    if (known) {
      info.bytes = table.BytesOf(info.digest);
    } else {
      const absl::StatusOr<int64_t> bytes = install(table.SlotCount(), **adapter);
      if (!bytes.ok()) return Annotate(bytes.status(), about);
      info.bytes = *bytes;
    }
    table.Add(std::move(info));
  }
  return table;
}

}  // namespace

void AddAdapterFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Adapters");
  schema.Add({.name = "enable-lora",
              .help = "Serve low-rank adapters (LoRA) of the model beside it.",
              .target = &c.enable_lora});
  schema.Add({.name = "max-loras",
              .help = "Adapters that are in memory at a time; the memory plan counts that many of "
                      "--max-lora-rank.",
              .target = &c.max_loras,
              .min = 1,
              .max = 4096});
  schema.Add({.name = "max-lora-rank",
              .help = "Largest rank that an adapter may have.",
              .target = &c.max_lora_rank,
              .min = 1,
              .max = kMaxLoraRank});
  schema.Add({.name = "lora-modules",
              .help = "Adapter to load at the start: its name and the folder that PEFT saved.",
              .target = &c.lora_modules,
              .value_name = "NAME=FOLDER",
              .default_text = "none"});
  schema.Add({.name = "lora-dir",
              .help = "Folder that says which adapters to serve, watched: each folder in it by its "
                      "name, or what its adapters.json lists.",
              .target = &c.lora_dir,
              .value_name = "DIR",
              .default_text = "none"});
}

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
    if (const absl::Status usable = CheckUsableAdapterName(name, {}); !usable.ok()) {
      return InvalidArgument(std::string(kLoraModulesFlag) + ": the name of '" +
                             text.substr(0, 100) + "' " + StatusMessage(usable) +
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

absl::Status CheckUsableAdapterName(const std::string& name,
                                    const std::vector<std::string>& served_names) {
  QUIRE_RETURN_IF_ERROR(CheckAdapterName(name));
  const bool blank = std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == 0x7f;
  });
  if (blank) return InvalidArgument("has a space or an invisible character");
  if (!IsValidUtf8(name)) return InvalidArgument("is no UTF-8");
  if (std::find(served_names.begin(), served_names.end(), name) != served_names.end()) {
    return InvalidArgument("is a name of the model");
  }
  return absl::OkStatus();
}

absl::Status CheckAdapterFlags(const WorkerConfig& config) {
  if (!config.enable_lora) {
    if (config.lora_modules.empty() && config.lora_dir.empty()) return absl::OkStatus();
    const std::string flag(config.lora_dir.empty() ? kLoraModulesFlag : "--lora-dir");
    return InvalidArgument(flag + ": goes with --enable-lora, which is missing");
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

AdapterKeeperOptions KeeperOptionsOf(const WorkerConfig& config,
                                     const std::vector<std::string>& served_names) {
  AdapterKeeperOptions options;
  if (!config.lora_dir.empty()) {  // orders may name whole paths in it
    options.lora_dir = std::filesystem::absolute(config.lora_dir).lexically_normal().string();
  }
  options.served_names = served_names;
  options.max_loras = config.max_loras;
  const absl::StatusOr<HostPort> listen = ParseHostPort(config.listen);
  options.on_loopback = listen.ok() && IsLoopback(listen->host);
  return options;
}

AdapterPack PackFor(const kernels::StepProgram& steps, const kernels::LoadedProgram& program) {
  using Packed = absl::StatusOr<std::shared_ptr<const kernels::AdapterWeights>>;
  return [&steps, &program](const PeftAdapter& adapter) -> Packed {
    QUIRE_ASSIGN_OR_RETURN(const RankAdapter matrices, adapter.For(steps.lora_targets));
    return program.PackAdapter(matrices.adapter);
  };
}

AdapterRead AdapterReads(const WorkerConfig& config, const kernels::StepProgram& steps,
                         AdapterPack pack) {
  const auto reader = std::make_shared<const AdapterReader>(
      steps.lora_targets, std::move(pack), config.allowed_model_roots, config.max_lora_rank);
  return [reader](const AdapterPlace& place, const std::vector<std::string>& held) {
    return reader->Read(place, held);
  };
}

absl::StatusOr<AdapterTable> LoadAdapters(const WorkerConfig& config, const AdapterPack& pack,
                                          Runner& runner) {
  return ReadAdaptersWith(config,
                          [&](int slot, const PeftAdapter& adapter) -> absl::StatusOr<int64_t> {
                            QUIRE_ASSIGN_OR_RETURN(auto packed, pack(adapter));
                            const int64_t bytes = packed->Bytes();
                            runner.SetAdapter(slot, std::move(packed));
                            return bytes;
                          });
}

absl::Status CheckAdapters(const WorkerConfig& config, const kernels::StepProgram& steps) {
  return ReadAdaptersWith(config,
                          [&](int, const PeftAdapter& adapter) -> absl::StatusOr<int64_t> {
                            QUIRE_RETURN_IF_ERROR(adapter.For(steps.lora_targets).status());
                            return 0;
                          })
      .status();
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

}  // namespace quire
