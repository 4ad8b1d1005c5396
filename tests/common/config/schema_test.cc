#include "common/config/schema.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace quire::config {
namespace {

struct Settings {
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int64_t big = 0;
  double ratio = 0.5;
  bool caching = true;
  bool insecure = false;
  std::vector<std::string> names;
  std::string device = "auto";
  Bytes memory{512 << 20};
  Duration timeout{30000};
  std::string model;
};

Schema MakeSchema(Settings& s) {
  Schema schema("quire-test", "Tests the schema.");
  schema.Group("Network");
  schema.Add({.name = "host", .help = "Address to listen on.", .target = &s.host});
  schema.Add({.name = "port", .help = "Port.", .target = &s.port, .min = 0, .max = 65535});
  schema.Group("Other");
  schema.Add({.name = "big", .help = "Big.", .target = &s.big});
  schema.Add({.name = "ratio", .help = "Ratio.", .target = &s.ratio, .min = 0, .max = 1});
  schema.Add({.name = "enable-caching", .help = "Cache.", .target = &s.caching});
  schema.Add({.name = "insecure", .help = "Dangerous.", .target = &s.insecure});
  schema.Add({.name = "served-model-name", .help = "Name.", .target = &s.names});
  schema.Add({.name = "device",
              .help = "Where to run.",
              .target = &s.device,
              .choices = {"cpu", "cuda", "auto"}});
  schema.Add({.name = "memory", .help = "Memory.", .target = &s.memory, .min = 1 << 20});
  schema.Add({.name = "drain-timeout", .help = "Wait.", .target = &s.timeout, .max = 60000});
  schema.AddPositional({.name = "MODEL", .help = "Model.", .target = &s.model}, false);
  return schema;
}

struct Outcome {
  Settings settings;
  absl::StatusOr<ParseResult> result;
};

Outcome Parse(const std::vector<std::string>& args, const Environment& environment = {}) {
  Outcome outcome;
  Schema schema = MakeSchema(outcome.settings);
  outcome.result = schema.Parse(args, environment);
  return outcome;
}

std::string Error(const std::vector<std::string>& args, const Environment& environment = {}) {
  const Outcome outcome = Parse(args, environment);
  EXPECT_FALSE(outcome.result.ok());
  return StatusMessage(outcome.result.status());
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(testing::TempDir() + "quire_schema_test.yaml") {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Schema, DefaultsStayWithoutInput) {
  const Outcome o = Parse({});
  ASSERT_TRUE(o.result.ok()) << o.result.status();
  EXPECT_EQ(o.settings.port, 8000);
  EXPECT_FALSE(o.result->IsSet("port"));
  EXPECT_EQ(o.result->Find("memory").values, std::vector<std::string>{"512MiB"});
}

TEST(Schema, ReadsEveryTypeInBothSpellings) {
  const Outcome o =
      Parse({"--port", "9", "--host=::1", "--big", "-5", "--ratio=0.25", "--no-enable-caching",
             "--insecure", "--served-model-name", "a", "--served_model_name=b,c", "--device", "cpu",
             "--memory", "1.5GiB", "--drain-timeout=250ms", "some/model"});
  ASSERT_TRUE(o.result.ok()) << o.result.status();
  EXPECT_EQ(o.settings.port, 9);
  EXPECT_EQ(o.settings.host, "::1");
  EXPECT_EQ(o.settings.big, -5);
  EXPECT_EQ(o.settings.ratio, 0.25);
  EXPECT_FALSE(o.settings.caching);
  EXPECT_TRUE(o.settings.insecure);
  EXPECT_EQ(o.settings.names, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_EQ(o.settings.device, "cpu");
  EXPECT_EQ(o.settings.memory.value, int64_t{3} << 29);
  EXPECT_EQ(o.settings.timeout.milliseconds, 250);
  EXPECT_EQ(o.settings.model, "some/model");
}

TEST(Schema, FlagWinsOverEnvironmentOverFileOverDefault) {
  const ConfigFile file("port: 1\nratio: 0.1\nmemory: 2MiB\nserved-model-name: [x, y]\n");
  const Environment environment = {
      {"QUIRE_PORT", "2"}, {"QUIRE_RATIO", "0.2"}, {"QUIRE_CONFIG", file.path()}};
  const Outcome o = Parse({"--port=3"}, environment);
  ASSERT_TRUE(o.result.ok()) << o.result.status();
  EXPECT_EQ(o.settings.port, 3);
  EXPECT_EQ(o.settings.ratio, 0.2);
  EXPECT_EQ(o.settings.memory.value, 2 << 20);
  EXPECT_EQ(o.settings.names, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(o.result->Find("port").origin, Origin::kFlag);
  EXPECT_EQ(o.result->Find("ratio").where, "QUIRE_RATIO");
  EXPECT_EQ(o.result->Find("memory").where, file.path() + ":3");
  EXPECT_EQ(o.result->Find("host").origin, Origin::kDefault);
  EXPECT_EQ(OriginName(o.result->Find("memory").origin), "file");
}

TEST(Schema, AListIsReplacedAsAWhole) {
  const ConfigFile file("served_model_name:\n  - x\n");
  const Outcome from_environment =
      Parse({"--config", file.path()}, {{"QUIRE_SERVED_MODEL_NAME", "a,b"}});
  EXPECT_EQ(from_environment.settings.names, (std::vector<std::string>{"a", "b"}));
  const Outcome from_flag = Parse({"--served-model-name=f"}, {{"QUIRE_SERVED_MODEL_NAME", "a,b"}});
  EXPECT_EQ(from_flag.settings.names, std::vector<std::string>{"f"});
}

TEST(Schema, UnknownFlagNamesItsNearest) {
  EXPECT_EQ(Error({"--prot", "1"}), "unknown flag --prot; did you mean --port?");
  EXPECT_EQ(Error({"--enable-cachign"}),
            "unknown flag --enable-cachign; did you mean --enable-caching?");
  EXPECT_EQ(Error({"--no-port"}), "unknown flag --no-port; see quire-test --help");
  EXPECT_EQ(Error({"--zzzzzzzzzzzz=1"}), "unknown flag --zzzzzzzzzzzz; see quire-test --help");
  EXPECT_EQ(Error({"-x"}), "unknown flag -x; see quire-test --help");
}

TEST(Schema, BadValuesNameTheFlagAndWhatIsRight) {
  EXPECT_EQ(Error({"--port=65536"}), "--port: must be in [0, 65535], is 65536");
  EXPECT_EQ(Error({"--port=80x"}), "--port: must be a whole number, is '80x'");
  EXPECT_EQ(Error({"--port"}), "--port: needs a value, as in --port=N");
  EXPECT_EQ(Error({"--port", "--insecure"}), "--port: needs a value, as in --port=N");
  EXPECT_EQ(Error({"--big=9223372036854775808"}),
            "--big: must be a whole number, is '9223372036854775808'");
  EXPECT_EQ(Error({"--ratio=nan"}), "--ratio: must be a number, is 'nan'");
  EXPECT_EQ(Error({"--memory=1KiB"}), "--memory: must be at least 1MiB, is 1KiB");
  EXPECT_EQ(Error({"--memory=12parsec"}),
            "--memory: must be a size such as 512MiB or 2GB, is '12parsec'");
  EXPECT_EQ(Error({"--drain-timeout=2m"}), "--drain-timeout: must be at most 1m, is 2m");
  EXPECT_EQ(Error({"--device=cudo"}),
            "--device: must be one of cpu, cuda, auto, is 'cudo'; did you mean cuda?");
  EXPECT_EQ(Error({"--insecure=perhaps"}), "--insecure: must be true or false, is 'perhaps'");
  EXPECT_EQ(Error({"--no-insecure=1"}), "--no-insecure: takes no value");
  EXPECT_EQ(Error({"a", "b"}), "unexpected argument 'b'; see quire-test --help");
  EXPECT_EQ(Error({}, {{"QUIRE_PORT", "x"}}), "QUIRE_PORT: must be a whole number, is 'x'");
}

TEST(Schema, UnknownVariablesWarnAndKubernetesOnesAreIgnored) {
  const Outcome o = Parse({}, {{"QUIRE_PROT", "1"},
                               {"QUIRE_PORT", "tcp://10.0.0.1:8000"},
                               {"QUIRE_SERVICE_HOST", "10.0.0.1"},
                               {"QUIRE_SERVICE_PORT_HTTP", "8000"},
                               {"QUIRE_PORT_8000_TCP_ADDR", "10.0.0.1"},
                               {"QUIRE_ROUTER_PORT_80_TCP", "tcp://10.0.0.1:80"},
                               {"HOME", "/root"}});
  ASSERT_TRUE(o.result.ok()) << o.result.status();
  EXPECT_EQ(o.settings.port, 8000);
  EXPECT_EQ(
      o.result->warnings,
      std::vector<std::string>{
          "environment variable QUIRE_PROT is unknown and ignored; did you mean QUIRE_PORT?"});
}

TEST(Schema, FileErrorsNameFileAndLine) {
  const auto error = [](const std::string& text) {
    const ConfigFile file(text);
    const std::string message = Error({"--config", file.path()});
    EXPECT_TRUE(message.starts_with(file.path())) << message;
    return message.substr(std::min(message.size(), file.path().size()));
  };
  EXPECT_EQ(error("host: a\nprot: 1\n"), ":2: unknown key 'prot'; did you mean port?");
  EXPECT_EQ(error("port: 70000\n"), ":1: port: must be in [0, 65535], is 70000");
  EXPECT_EQ(error("port: [1, 2]\n"), ":1: port takes one value, not a list");
  EXPECT_EQ(error("port:\n  a: 1\n"), ":1: port must have a value or a list of values");
  EXPECT_EQ(error("port: 1\nport: 2\n"), ":2: key 'port' is given twice");
  EXPECT_EQ(error("- a\n"), ": must be a map of settings, as in 'port: 8000'");
  EXPECT_TRUE(error("a: [\n").starts_with(":2: not YAML: ")) << error("a: [\n");
  EXPECT_EQ(error("config: other.yaml\n").substr(0, 24), ":1: unknown key 'config'");
  EXPECT_EQ(Error({"--config=/nonexistent.yaml"}),
            "--config: /nonexistent.yaml cannot be read; give an existing YAML file");
  EXPECT_NE(Error({"--config=/"}).find("cannot be read"), std::string::npos);
  const ConfigFile too_long(std::string(kMaxConfigFileBytes, '#') + "\n");
  EXPECT_NE(Error({"--config", too_long.path()}).find("longer than 1 MiB"), std::string::npos);
}

TEST(Schema, EmptyFileSetsNothing) {
  const ConfigFile file("# nothing\n");
  EXPECT_TRUE(Parse({"--config", file.path()}).result.ok());
}

TEST(Schema, HelpAndVersionStopEverythingElse) {
  EXPECT_TRUE(Parse({"--port=x", "--help"}).result->help);
  EXPECT_TRUE(Parse({"-h"}).result->help);
  EXPECT_TRUE(Parse({"--version"}).result->version);
  const Outcome o = Parse({"--", "--help"});
  ASSERT_TRUE(o.result.ok());
  EXPECT_FALSE(o.result->help);
  EXPECT_EQ(o.settings.model, "--help");
}

TEST(Schema, RequiredPositional) {
  std::string model;
  Schema schema("quire x", "Tests.");
  schema.AddPositional({.name = "MODEL", .help = "Model.", .target = &model}, true);
  EXPECT_EQ(StatusMessage(schema.Parse({}, {}).status()), "MODEL is missing; see quire x --help");
}

enum class Order { kFirst, kLast };

struct Room {
  uint32_t streams = 256;
  size_t body_bytes = size_t{32} << 20;
  uint32_t header_bytes = 64u << 10;
  int64_t silence_us = 1'500'000;
  uint32_t wait_ms = 250;
  Order order = Order::kLast;
  uint64_t also_bytes = 0;
  uint32_t also_narrow = 0;
};

Schema MakeRoomSchema(Room& r) {
  Schema schema("quire-test", "Tests the schema.");
  schema.Add({.name = "streams", .help = "Streams.", .target = &r.streams});
  schema.Add({.name = "body-bytes",
              .help = "Body.",
              .target = InBytes(&r.body_bytes),
              .also = {InBytes(&r.also_bytes), InBytes(&r.also_narrow)}});
  schema.Add({.name = "header-bytes", .help = "Header.", .target = InBytes(&r.header_bytes)});
  schema.Add({.name = "silence", .help = "Silence.", .target = InMicros(&r.silence_us)});
  schema.Add({.name = "wait", .help = "Wait.", .target = InMillis(&r.wait_ms)});
  schema.Add({.name = "order",
              .help = "Order.",
              .target = OneOf(&r.order, {{"first", Order::kFirst}, {"last", Order::kLast}})});
  return schema;
}

TEST(Schema, WritesStraightIntoTheFieldsOfARoom) {
  Room room;
  Schema schema = MakeRoomSchema(room);
  EXPECT_EQ(room.also_bytes, room.body_bytes) << "the default is stated once";
  EXPECT_EQ(room.also_narrow, room.body_bytes);
  const auto before = schema.Parse({}, {});
  ASSERT_TRUE(before.ok()) << before.status();
  const auto shown = [&](const char* name) { return before->Find(name).values.front(); };
  EXPECT_EQ(shown("streams"), "256");
  EXPECT_EQ(shown("body-bytes"), "32MiB");
  EXPECT_EQ(shown("header-bytes"), "64KiB");
  EXPECT_EQ(shown("silence"), "1500ms");
  EXPECT_EQ(shown("wait"), "250ms");
  EXPECT_EQ(shown("order"), "last");
  const auto given = schema.Parse({"--streams=7", "--body-bytes=1KiB", "--header-bytes=2KiB",
                                   "--silence=2s", "--wait=3s", "--order=first"},
                                  {});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(room.streams, 7u);
  EXPECT_EQ(room.body_bytes, 1024u);
  EXPECT_EQ(room.also_bytes, 1024u);
  EXPECT_EQ(room.also_narrow, 1024u);
  EXPECT_EQ(room.header_bytes, 2048u);
  EXPECT_EQ(room.silence_us, 2'000'000);
  EXPECT_EQ(room.wait_ms, 3000u);
  EXPECT_EQ(room.order, Order::kFirst);
  EXPECT_NE(schema.HelpText().find("--order first|last"), std::string::npos);
}

TEST(Schema, AValueThatAFieldOfARoomCannotHoldIsRefused) {
  const auto error = [](const std::string& flag) {
    Room room;
    return StatusMessage(MakeRoomSchema(room).Parse({flag}, {}).status());
  };
  EXPECT_EQ(error("--streams=4294967295"), "");
  EXPECT_EQ(error("--streams=4294967296"), "--streams: must be in [0, 4294967295], is 4294967296");
  EXPECT_EQ(error("--streams=-1"), "--streams: must be in [0, 4294967295], is -1");
  EXPECT_EQ(error("--header-bytes=4GiB"), "--header-bytes: must be in [0, 4294967295], is 4GiB");
  EXPECT_EQ(error("--body-bytes=4GiB"), "--body-bytes: must be in [0, 4294967295], is 4GiB")
      << "a narrower field that has the same value";
  EXPECT_EQ(error("--order=firts"),
            "--order: must be one of first, last, is 'firts'; did you mean first?");
}

TEST(Schema, HelpIsGroupedAlignedAndShowsDefaults) {
  Settings settings;
  const std::string help = MakeSchema(settings).HelpText();
  EXPECT_NE(help.find("Usage: quire-test [flags] [MODEL]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("\nNetwork\n  --host TEXT"), std::string::npos) << help;
  EXPECT_NE(help.find("Port. [8000]"), std::string::npos) << help;
  EXPECT_NE(help.find("--device cpu|cuda|auto"), std::string::npos) << help;
  EXPECT_NE(help.find("Wait. [30s]"), std::string::npos) << help;
  EXPECT_LT(help.find("Network"), help.find("--config"));
  size_t width = 0;
  for (size_t start = 0, end; (end = help.find('\n', start)) != std::string::npos;
       start = end + 1) {
    width = std::max(width, end - start);
  }
  EXPECT_LE(width, 100u);
}

}  // namespace
}  // namespace quire::config
