#include "cli/manual/descriptions.h"

#include <gtest/gtest.h>

#include "cli/commands.h"

namespace quire::cli {
namespace {

std::vector<config::Description> Programs() {
  config::Description serve{"quire serve", "Serves a model.", {}, {}};
  serve.arguments.push_back({"MODEL", "A model's name.", {}, true});
  serve.flags.push_back({"port", "Network", "Port. More.", "N", "8000", {}, false});
  serve.flags.push_back(
      {"log-level", "Log", "It's the level.", "LEVEL", "info", {"info", "debug"}, false});
  serve.flags.push_back({"tls-cert-file", "Network", "A [file]: PEM.", "FILE", "", {}, false});
  serve.flags.push_back({"metrics", "Network", ".starts with a dot", "", "true", {}, false});
  serve.flags.push_back({"worker", "Network", "Back\\slash | bar ×1.", "HOST:PORT", "", {}, true});
  config::Description router{"quire-router", "Routes.", {}, {}};
  router.flags.push_back({"port", "Network", "Port.", "N", "8000", {}, false});
  return {serve, router};
}

TEST(Completion, EveryShellGetsEveryFlagAndChoice) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = CompletionScript(shell, Programs());
    for (const char* word :
         {"port", "log-level", "info debug", "no-metrics", "quire-router", "quire models"}) {
      EXPECT_NE(script.find(word), std::string::npos) << shell << " lacks " << word;
    }
  }
}

TEST(Manual, RoffTakesNoTextForARequest) {
  const std::string page = ManualPage(Programs()[0]);
  EXPECT_TRUE(page.starts_with(".TH QUIRE\\-SERVE 1 ")) << page;
  EXPECT_NE(page.find("\n\\&.starts with a dot\n"), std::string::npos) << page;
  EXPECT_NE(page.find("Back\\eslash"), std::string::npos);
  EXPECT_NE(page.find(".B \\-\\-port \\fIN\\fR\n"), std::string::npos);
  EXPECT_NE(page.find("bar \\[u00D7]1."), std::string::npos);
  EXPECT_NE(page.find("Repeatable."), std::string::npos);
  EXPECT_NE(page.find("Default: 8000"), std::string::npos);
  for (const Command& command : Commands()) {
    EXPECT_NE(ManualOverview().find("\n" + std::string(command.help) + "\n"), std::string::npos)
        << command.name;
  }
}

TEST(Reference, ABarInAHelpTextDoesNotEndItsCell) {
  const std::string text = ReferenceText(Programs());
  EXPECT_NE(text.find("\n## quire serve\n"), std::string::npos);
  EXPECT_NE(text.find("| `--worker HOST:PORT` |  | Back\\slash \\| bar ×1. Repeatable. |"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace quire::cli
