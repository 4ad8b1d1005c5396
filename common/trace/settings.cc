#include "common/trace/settings.h"

#include <algorithm>
#include <charconv>

#include "common/ascii.h"

namespace quire::trace {
namespace {

constexpr std::string_view kPath = "/v1/traces";
constexpr char kDefaultEndpoint[] = "http://localhost:4318";

// "a=b,c=d" with percent-encoded values; anything that is not a pair is left out.
std::vector<std::pair<std::string, std::string>> Pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals != std::string_view::npos && !Trim(part.substr(0, equals)).empty()) {
      pairs.emplace_back(Trim(part.substr(0, equals)),
                         PercentDecode(Trim(part.substr(equals + 1))));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pairs;
}

std::vector<std::string> Items(std::string_view list) {
  std::vector<std::string> items;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (const std::string_view item = Trim(list.substr(0, comma)); !item.empty()) {
      items.emplace_back(item);
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return items;
}

bool Lists(std::string_view list, std::string_view wanted) {
  const std::vector<std::string> items = Items(list);
  return std::find(items.begin(), items.end(), wanted) != items.end();
}

class Reader {
 public:
  Reader(const std::map<std::string, std::string>& environment, TraceSettings& settings)
      : environment_(environment), settings_(settings) {}

  // The first of these variables that is set and not empty.
  std::string Text(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto found = environment_.find(name);
      if (found != environment_.end() && !Trim(found->second).empty()) {
        return std::string(Trim(found->second));
      }
    }
    return "";
  }
  void Number(std::initializer_list<const char*> names, int64_t least, int64_t most,
              int64_t& value) const {
    const std::string text = Text(names);
    if (text.empty()) return;
    int64_t read = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (code == std::errc() && end == text.data() + text.size() && read >= least && read <= most) {
      value = read;
      return;
    }
    const auto set = std::find_if(names.begin(), names.end(),
                                  [this](const char* name) { return !Text({name}).empty(); });
    Warn(std::string(*set) + ": must be in [" + std::to_string(least) + ", " +
         std::to_string(most) + "], is '" + text.substr(0, 64) + "'; " + std::to_string(value) +
         " holds");
  }
  void Warn(std::string line) const { settings_.warnings.push_back(std::move(line)); }

 private:
  const std::map<std::string, std::string>& environment_;
  TraceSettings& settings_;
};

void ReadSampler(const Reader& read, TraceSettings& settings) {
  const std::string name = read.Text({"OTEL_TRACES_SAMPLER"});
  const std::string argument = read.Text({"OTEL_TRACES_SAMPLER_ARG"});
  settings.sampler.follow_parent = name.empty() || name.starts_with("parentbased_");
  const std::string base = name.starts_with("parentbased_")
                               ? name.substr(std::string_view("parentbased_").size())
                               : name;
  if (base == "always_off") {
    settings.sampler.ratio = 0;
  } else if (base == "traceidratio") {
    double ratio = 1;
    const auto [end, code] =
        std::from_chars(argument.data(), argument.data() + argument.size(), ratio);
    const bool good =
        code == std::errc() && end == argument.data() + argument.size() && ratio >= 0 && ratio <= 1;
    if (good) settings.sampler.ratio = ratio;
    if (!good && !argument.empty()) {
      read.Warn("OTEL_TRACES_SAMPLER_ARG: must be in [0, 1], is '" + argument.substr(0, 64) +
                "'; 1 holds");
    }
  } else if (!base.empty() && base != "always_on") {
    settings.sampler = {};
    read.Warn("OTEL_TRACES_SAMPLER: '" + name.substr(0, 64) +
              "' is not served; parentbased_always_on holds");
  }
}

// If kept, they would be looked up as a part of the host, and appear in each line about it.
void DropCredentials(const Reader& read, TraceSettings& settings) {
  const size_t scheme = settings.url.find("://");
  if (scheme == std::string::npos) return;
  const size_t end = settings.url.find('/', scheme + 3);
  const size_t at = settings.url.rfind('@', end);
  if (at == std::string::npos || at < scheme + 3) return;
  settings.url.erase(scheme + 3, at + 1 - (scheme + 3));
  read.Warn(
      "the collector's URL has a name or password in it, which is left out: "
      "OTEL_EXPORTER_OTLP_HEADERS carries credentials, such as authorization=Basic%20...");
}

void ReadEndpoint(const Reader& read, const std::string& flag, TraceSettings& settings) {
  settings.url = flag.empty() ? read.Text({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}) : flag;
  std::string base = read.Text({"OTEL_EXPORTER_OTLP_ENDPOINT"});
  // An exporter without an endpoint uses the specification's default endpoint.
  if (base.empty() && Lists(read.Text({"OTEL_TRACES_EXPORTER"}), "otlp")) base = kDefaultEndpoint;
  if (settings.url.empty() && !base.empty()) {
    settings.url = base + (base.ends_with('/') ? std::string(kPath.substr(1)) : std::string(kPath));
  }
  // vLLM's flag names a host alone: the protocol defines scheme and path.
  if (!flag.empty() && flag.find("://") == std::string::npos) settings.url = "http://" + flag;
  const size_t scheme = settings.url.find("://");
  const size_t start = scheme == std::string::npos ? 0 : scheme + 3;
  if (!settings.url.empty() && settings.url.find('/', start) == std::string::npos) {
    settings.url += kPath;
  }
  settings.on = !settings.url.empty();
  DropCredentials(read, settings);
  if (settings.on && !settings.url.starts_with("http://") &&
      !settings.url.starts_with("https://")) {
    read.Warn("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must begin with http:// or https://, is '" +
              ShownUrl(settings.url) + "'; no traces are exported");
    settings.on = false;
  }
  if (settings.on && settings.url.find(":4317/") != std::string::npos) {
    read.Warn("traces go to " + ShownUrl(settings.url) +
              " over HTTP; port 4317 is gRPC's by custom, HTTP's is 4318");
  }
  const std::string protocol =
      read.Text({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"});
  if (settings.on && !protocol.empty() && protocol != "http/protobuf") {
    read.Warn("OTEL_EXPORTER_OTLP_PROTOCOL: only http/protobuf is served, is '" +
              protocol.substr(0, 64) + "'; traces go as http/protobuf, by default to port 4318");
  }
}

bool IsSwitchedOff(const Reader& read) {
  std::string disabled = read.Text({"OTEL_SDK_DISABLED"});
  for (char& c : disabled) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (disabled == "true") return true;
  if (!disabled.empty() && disabled != "false") {
    read.Warn("OTEL_SDK_DISABLED: must be true or false, is '" + disabled.substr(0, 64) +
              "'; false holds");
  }
  const std::vector<std::string> exporters = Items(read.Text({"OTEL_TRACES_EXPORTER"}));
  for (const std::string& exporter : exporters) {
    if (exporter == "otlp" || exporter == "none") continue;
    read.Warn("OTEL_TRACES_EXPORTER: only otlp and none are served, is '" + exporter.substr(0, 64) +
              "'; otlp holds where an endpoint is named");
  }
  return exporters == std::vector<std::string>{"none"};
}

// Variables that this exporter does not support; each gets one line, and traces work without it.
void WarnOfWhatIsNotServed(const Reader& read) {
  const auto warn = [&read](const char* name, const std::string& value, const char* instead) {
    read.Warn(std::string(name) + ": '" + value.substr(0, 64) + "' is not served; " + instead);
  };
  for (const char* name :
       {"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY"}) {
    const std::string file = read.Text({name});
    if (!file.empty()) warn(name, file, "the collector is shown no certificate");
  }
  const std::string propagators = read.Text({"OTEL_PROPAGATORS"});
  for (const std::string& propagator : Items(propagators)) {
    if (propagator == "tracecontext" || propagator == "baggage") continue;
    warn("OTEL_PROPAGATORS", propagator, "tracecontext holds");
  }
}

bool WantsGzip(const Reader& read) {
  const std::string compression =
      read.Text({"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"});
  if (compression == "gzip") return true;
  if (!compression.empty() && compression != "none") {
    read.Warn("OTEL_EXPORTER_OTLP_COMPRESSION: only gzip and none are served, is '" +
              compression.substr(0, 64) + "'; none holds");
  }
  return false;
}

// The identity of this process: the given attributes, and a separate name for each program of a
// machine.
void ReadResource(const Reader& read, const std::string& service, TraceSettings& settings) {
  std::string name = read.Text({"OTEL_SERVICE_NAME"});
  for (auto& [key, value] : Pairs(read.Text({"OTEL_RESOURCE_ATTRIBUTES"}))) {
    if (key == "service.name") {
      if (name.empty()) name = value;
      continue;
    }
    settings.resource.emplace_back(key, value);
  }
  settings.resource.emplace_back("service.name", name.empty() ? service : name);
  settings.resource.emplace_back("service.version", std::string(QUIRE_VERSION));
  settings.resource.emplace_back("process.executable.name", service);
  settings.resource.emplace_back("telemetry.sdk.name", std::string("quire"));
  settings.resource.emplace_back("telemetry.sdk.language", std::string("cpp"));
}

}  // namespace

std::string ShownUrl(std::string_view url) {
  const size_t scheme = url.find("://");
  const size_t start = scheme == std::string_view::npos ? 0 : scheme + 3;
  const size_t end = std::min(url.find_first_of("/?#", start), url.size());
  const std::string_view authority = url.substr(start, end - start);
  const size_t at = authority.rfind('@');
  const size_t host = at == std::string_view::npos ? 0 : at + 1;
  return std::string(url.substr(0, start)) + std::string(authority.substr(host).substr(0, 200));
}

TraceSettings TraceSettingsOf(const std::map<std::string, std::string>& environment,
                              const std::string& service, const std::string& endpoint) {
  TraceSettings settings;
  const Reader read(environment, settings);
  ReadEndpoint(read, endpoint, settings);
  if (IsSwitchedOff(read)) settings.on = false;
  if (!settings.on) return settings;
  ReadSampler(read, settings);
  WarnOfWhatIsNotServed(read);
  settings.gzip = WantsGzip(read);
  settings.headers =
      Pairs(read.Text({"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"}));
  settings.certificate_file =
      read.Text({"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"});
  ReadResource(read, service, settings);
  auto queue = static_cast<int64_t>(settings.max_queue);
  auto batch = static_cast<int64_t>(settings.max_batch);
  read.Number({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"}, 1, 600'000,
              settings.timeout_ms);
  int64_t batch_timeout_ms = settings.timeout_ms;
  read.Number({"OTEL_BSP_EXPORT_TIMEOUT"}, 1, 600'000, batch_timeout_ms);
  settings.timeout_ms = std::min(settings.timeout_ms, batch_timeout_ms);
  read.Number({"OTEL_BSP_SCHEDULE_DELAY"}, 1, 600'000, settings.delay_ms);
  read.Number({"OTEL_BSP_MAX_QUEUE_SIZE"}, 1, kMostQueuedSpans, queue);
  read.Number({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE"}, 1, kMostQueuedSpans, batch);
  settings.max_queue = static_cast<size_t>(queue);
  settings.max_batch = static_cast<size_t>(std::min(batch, queue));
  return settings;
}

}  // namespace quire::trace
