#include "common/text/chat_template.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire::text {
namespace {

using testing::HasSubstr;

constexpr std::string_view kHi = R"([{"role":"user","content":"hi"}])";

absl::StatusOr<std::string> Rendered(std::string_view source, std::string_view messages = kHi,
                                     const RenderOptions& options = {},
                                     std::string_view tools = "") {
  auto compiled = ChatTemplate::Compile(source);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->Render(messages, tools, options);
}

TEST(ChatTemplateTest, RendersMessagesSpecialTokensAndThePrompt) {
  const std::string_view source =
      "{{ bos_token }}{% for m in messages %}\n[{{ m.role }}] {{ m['content'] | trim }}\n"
      "{% endfor %}\n{% if add_generation_prompt %}[assistant]{% endif %}";
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  EXPECT_EQ(*Rendered(source, kHi, options), "<s>[user] hi\n[assistant]");
  options.add_generation_prompt = false;
  EXPECT_EQ(*Rendered(source, kHi, options), "<s>[user] hi\n");
}

// As Jinja reads them; what a message holds stays as it is.
TEST(ChatTemplateTest, LineEndsOfEveryKindAreOne) {
  const std::string_view messages = R"([{"role":"user","content":"a\r\nb"}])";
  EXPECT_EQ(*Rendered("x\r\n{% if true %}\r\n{{ messages[0].content }}\ry{% endif %}", messages),
            "x\na\r\nb\ny");
}

TEST(ChatTemplateTest, TheClockIsTheRequests) {
  RenderOptions options;
  options.now_unix_seconds = 1721952000;  // 26 July 2024
  EXPECT_EQ(*Rendered("{{ strftime_now('%d %b %Y %H:%M') }}", kHi, options), "26 Jul 2024 00:00");
}

TEST(ChatTemplateTest, RaiseExceptionBecomesAnError) {
  const auto text = Rendered("{{ raise_exception('Roles must ' ~ 'alternate') }}");
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("Roles must alternate"));
}

TEST(ChatTemplateTest, ExtraVariablesReachTheTemplate) {
  RenderOptions options;
  options.extra_json = R"({"enable_thinking":false})";
  EXPECT_EQ(*Rendered("{{ enable_thinking }}{{ nothing }}", kHi, options), "False");
  options.extra_json = R"({"messages":[]})";
  EXPECT_FALSE(Rendered("x", kHi, options).ok());
  options.extra_json = "[]";
  EXPECT_FALSE(Rendered("x", kHi, options).ok());
}

TEST(ChatTemplateTest, BadInputIsNamed) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"", "messages"},
      {"[]", "messages: must hold at least one"},
      {"{}", "messages: must be a list"},
      {"[1]", "messages[0]: must be an object"},
      {"[{\"role\":\"user\"", "messages: the JSON is malformed"},
      {"[{\"role\":\"\xFF\"}]", "UTF-8"},
  };
  for (const auto& [messages, why] : cases) {
    const auto text = Rendered("{{ messages }}", messages);
    ASSERT_FALSE(text.ok()) << why;
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(std::string(why)));
  }
  EXPECT_FALSE(Rendered("x", std::string(500, '[') + std::string(500, ']')).ok());
  EXPECT_FALSE(Rendered("x", kHi, {}, "{}").ok());
}

TEST(ChatTemplateTest, SyntaxErrorsNameTheLine) {
  for (const std::string_view source :
       {"a\n{% if %}", "a\n{{ x", "a\n{% for %}", "a\n{% include 'x' %}", "a\n{% nothing %}",
        "a\n{% block x %}{% endblock %}", "a\n{% do x %}", "a\n{{ 'open }}"}) {
    const auto compiled = ChatTemplate::Compile(source);
    ASSERT_FALSE(compiled.ok()) << source;
    EXPECT_THAT(std::string(compiled.status().message()), HasSubstr("line 2")) << source;
  }
  const auto big = ChatTemplate::Compile(std::string(kMaxTemplateBytes + 1, ' '));
  EXPECT_EQ(big.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ChatTemplate::Compile(std::string(kMaxTemplateBytes, ' ')).ok());
  EXPECT_FALSE(ChatTemplate::Compile("{{ \xFF }}").ok());
  EXPECT_FALSE(ChatTemplate::Compile("{{ " + std::string(100'000, '(') + " }}").ok());
}

// A tree as deep as the template is long would overflow the stack when it is parsed, rewritten or
// dropped: the end of the process.
TEST(ChatTemplateTest, DeepTreesAreRefusedBeforeTheyAreParsed) {
  const auto times = [](int count, std::string_view part) {
    std::string all;
    for (int i = 0; i < count; ++i) all += part;
    return all;
  };
  for (const int deep : {20'000, 200'000}) {
    for (const std::string& source :
         {"{{ a" + times(deep, "~a") + " }}", "{{ a" + times(deep, ".a") + " }}",
          "{{ " + times(deep, "- ") + "1 }}", "{{ " + times(deep, "not ") + "a }}",
          "{% if a %}" + times(deep / 4, "{%elif a%}") + "{% endif %}",
          "{{ a" + times(deep, "|f") + " }}", "{{ a" + times(deep, "[0]") + " }}",
          "{{ a" + times(deep / 4, " if a else a") + " }}", times(deep, "{{ [") + times(deep, "]"),
          "{% set " + times(deep, "(") + "a" + times(deep, ")") + " = 1 %}"}) {
      const auto compiled = ChatTemplate::Compile(source);
      ASSERT_FALSE(compiled.ok()) << source.substr(0, 40);
      EXPECT_THAT(std::string(compiled.status().message()),
                  HasSubstr("nest deeper than " + std::to_string(kMaxTemplateNesting)))
          << source.substr(0, 40);
      EXPECT_EQ(compiled.status().code(), absl::StatusCode::kResourceExhausted);
    }
  }
  EXPECT_EQ(*Rendered("{{ 'a'" + times(kMaxTemplateNesting, "~'a'") + " }}"),
            times(kMaxTemplateNesting + 1, "a"));
  EXPECT_FALSE(Rendered("{{ 'a'" + times(kMaxTemplateNesting + 1, "~'a'") + " }}").ok());
}

// Everything that grows without end must end in an error; that this test returns at all is half of
// it.
TEST(ChatTemplateTest, BombsEndInErrors) {
  for (const std::string_view source : {
           "{% for i in range(10**9) %}x{% endfor %}",
           "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
           "{{ 'a' * 10**9 }}",
           "{{ [1] * 10**9 }}",
           "{{ 10**9 * 'ab' }}",
           "{% set ns = namespace(s='abcdefgh') %}{% for i in range(60) %}"
           "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s | length }}",
           "{% set ns = namespace(s='abcdefgh') %}{% for i in range(60) %}"
           "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s | length }}",
           "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}"
           "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s | length }}",
           "{% set ns = namespace(s=1) %}{% for i in range(60) %}"
           "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}",
           "{% set ns = namespace(s=1) %}{% for i in range(100000) %}"
           "{% set ns.s = {'a': ns.s} %}{% endfor %}{{ ns.s }}",
           "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
           "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
           "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
           "{% set s = 'a' * 1000000 %}{{ s | replace('a', s) }}",
           "{% set s = 'a' * 1000000 %}{{ s | join(s) }}",
           "{% set s = 'a' * 1000000 %}{{ s.join(s) }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '{:1000000000d}'.format(1) }}",
           "{{ 'a'.ljust(10**12) }}",
           "{{ 'a' | indent(10**12) | length }}{{ raise_exception('small') }}",
           "{{ [1] | batch(10**9, 0) | list }}",
           "{{ [1] | slice(10**9) | list }}",
           "{% set s = 'ab' * 20000000 %}{% for i in range(100000) %}{{ s[39999999] }}{% endfor %}",
           "{% set s = 'ab' * 20000000 %}{% for i in range(100000) %}"
           "{% if s == s ~ '' %}{% endif %}{% endfor %}",
           "{% set x %}{% for i in range(100000) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
       }) {
    const auto text = Rendered(source);
    EXPECT_FALSE(text.ok()) << source << " rendered " << text->size() << " bytes";
  }
}

TEST(ChatTemplateTest, ANamespaceMayHoldItself) {
  EXPECT_EQ(*Rendered("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.list = [ns] %}ok"),
            "ok");
  EXPECT_FALSE(Rendered("{% set ns = namespace() %}{% set ns.me = ns %}{{ [ns] | tojson }}").ok());
}

TEST(ChatTemplateTest, LongConversationsAreServed) {
  std::string messages = "[";
  for (int i = 0; i < 20'000; ++i) {
    messages += R"({"role":"user","content":"some text of a message"},)";
  }
  messages.back() = ']';
  const auto text = Rendered(
      "{% set ns = namespace(last=0) %}{% for m in messages[::-1] %}"
      "{% set index = (messages|length - 1) - loop.index0 %}{% set ns.last = index %}"
      "{% endfor %}{% for m in messages %}<{{ m.role + ':' + m.content }}>{% endfor %}",
      messages);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), 20'000u * 29);
}

// What Python writes for each.
TEST(ChatTemplateTest, SlicesAreThoseOfPython) {
  const std::pair<std::string, std::string> kSlices[] = {
      {"''[::-1]", ""},
      {"'abcd'[::-1]", "dcba"},
      {"'abcd'[0:2:-1]", ""},
      {"'abcd'[2:0:-1]", "cb"},
      {"'abcd'[3:-9:-2]", "db"},
      {"'abcd'[-9:9]", "abcd"},
      {"'abcd'[9:]", ""},
      {"'abcd'[-2:]", "cd"},
      {"'abcd'[1:3]", "bc"},
      {"'abcd'[::3]", "ad"},
      {"'abcd'[-1:0:-3]", "d"},
      {"'ä€'[::-1]", "€ä"},
      {"[][::-1]", "[]"},
      {"[1,2,3][2:0:-1]", "[3, 2]"},
      {"[1,2,3][0:1:-2]", "[]"},
      {"[1,2,3][::-1]", "[3, 2, 1]"},
      {"[1,2,3][-9223372036854775807:9223372036854775807:9223372036854775807]", "[1]"},
      {"(1,2,3)[1:]", "(2, 3)"},
      {"(1,2,3)[::-2]", "(3, 1)"},
  };
  for (const auto& [slice, expected] : kSlices) {
    const auto text = Rendered("{{ " + slice + " }}", kHi);
    ASSERT_TRUE(text.ok()) << slice << ": " << text.status();
    EXPECT_EQ(*text, expected) << slice;
  }
  for (const char* const wrong : {"[1][::0]", "[1]['a':]", "{'a': 1}[1:]", "5[1:]"}) {
    const auto text = Rendered("{{ " + std::string(wrong) + " }}", kHi);
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << wrong << text.status();
  }
}

TEST(ChatTemplateTest, EndsWhenItsCallerGivesUp) {
  std::atomic<bool> cancelled = false;
  RenderOptions options;
  options.cancelled = &cancelled;
  const std::string_view source = "{% for i in range(10000) %}{{ i }}{% endfor %}";
  EXPECT_TRUE(Rendered(source, kHi, options).ok());
  cancelled = true;
  EXPECT_EQ(Rendered(source, kHi, options).status().code(), absl::StatusCode::kCancelled);
}

TEST(ChatTemplateTest, InputOverTheLimitIsRefused) {
  const auto text = Rendered("x", std::string(kMaxTemplateInputBytes + 1, ' '));
  EXPECT_EQ(text.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace quire::text
