#include "common/config/store.h"

#include <algorithm>

namespace quire::config {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string BoundText(const Flag& flag, double bound) {
  const auto whole = [bound] { return static_cast<int64_t>(bound); };
  return std::visit(Overloaded{
                        [&](Bytes*) { return FormatBytes({whole()}); },
                        [&](Duration*) { return FormatDuration({whole()}); },
                        [&](double*) { return FormatDouble(bound); },
                        [&](auto*) { return std::to_string(whole()); },
                    },
                    flag.target);
}

absl::Status CheckBounds(const Flag& flag, double value, std::string_view text) {
  const bool low = value < flag.min;
  if (!low && value <= flag.max) return absl::OkStatus();
  const bool has_min = flag.min > std::numeric_limits<double>::lowest();
  const bool has_max = flag.max < std::numeric_limits<double>::max();
  std::string range = "at least " + (has_min ? BoundText(flag, flag.min) : std::string());
  if (has_min && has_max) {
    range = "in [" + BoundText(flag, flag.min) + ", " + BoundText(flag, flag.max) + "]";
  } else if (has_max) {
    range = "at most " + BoundText(flag, flag.max);
  }
  return InvalidArgument("must be " + range + ", is " + std::string(text));
}

absl::Status CheckChoice(const Flag& flag, const std::string& value) {
  if (flag.choices.empty()) return absl::OkStatus();
  if (std::find(flag.choices.begin(), flag.choices.end(), value) != flag.choices.end()) {
    return absl::OkStatus();
  }
  std::string choices;
  for (const std::string& choice : flag.choices) choices += (choices.empty() ? "" : ", ") + choice;
  const std::string nearest = NearestMatch(value, flag.choices);
  return InvalidArgument("must be one of " + choices + ", is '" + value + "'" +
                         (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

absl::Status StoreOne(const Flag& flag, const std::string& text) {
  const auto number = [&](auto parsed, auto value_of, auto store) -> absl::Status {
    QUIRE_RETURN_IF_ERROR(parsed.status());
    QUIRE_RETURN_IF_ERROR(CheckBounds(flag, static_cast<double>(value_of(*parsed)), text));
    return store(*parsed);
  };
  const auto same = [](auto value) { return value; };
  return std::visit(
      Overloaded{
          [&](std::string* target) -> absl::Status {
            QUIRE_RETURN_IF_ERROR(CheckChoice(flag, text));
            *target = text;
            return absl::OkStatus();
          },
          [&](std::vector<std::string>* target) -> absl::Status {
            QUIRE_RETURN_IF_ERROR(CheckChoice(flag, text));
            target->push_back(text);
            return absl::OkStatus();
          },
          [&](bool* target) -> absl::Status {
            QUIRE_ASSIGN_OR_RETURN(*target, ParseBool(text));
            return absl::OkStatus();
          },
          [&](int32_t* target) -> absl::Status {
            return number(ParseInt(text), same, [&](int64_t value) -> absl::Status {
              *target = static_cast<int32_t>(value);
              if (*target == value) return absl::OkStatus();
              return InvalidArgument("must be in [-2147483648, 2147483647], is " + text);
            });
          },
          [&](int64_t* target) -> absl::Status {
            return number(ParseInt(text), same,
                          [&](int64_t value) { return *target = value, absl::OkStatus(); });
          },
          [&](double* target) -> absl::Status {
            return number(ParseDouble(text), same,
                          [&](double value) { return *target = value, absl::OkStatus(); });
          },
          [&](Bytes* target) -> absl::Status {
            return number(
                ParseBytes(text), [](Bytes bytes) { return bytes.value; },
                [&](Bytes value) { return *target = value, absl::OkStatus(); });
          },
          [&](Duration* target) -> absl::Status {
            return number(
                ParseDuration(text), [](Duration d) { return d.milliseconds; },
                [&](Duration value) { return *target = value, absl::OkStatus(); });
          },
      },
      flag.target);
}

}  // namespace

absl::Status StoreValues(const Flag& flag, const std::vector<std::string>& values,
                         std::string_view shown) {
  if (auto* list = std::get_if<std::vector<std::string>*>(&flag.target)) (*list)->clear();
  for (const std::string& value : values) {
    if (value.size() > kMaxValueBytes || value.find('\0') != std::string::npos) {
      return InvalidArgument(std::string(shown) + ": must be at most " +
                             std::to_string(kMaxValueBytes) + " bytes of text without NUL");
    }
    if (absl::Status status = StoreOne(flag, value); !status.ok()) return Annotate(status, shown);
  }
  return absl::OkStatus();
}

std::vector<std::string> TargetText(const Target& target) {
  using Texts = std::vector<std::string>;
  return std::visit(Overloaded{
                        [](std::string* value) { return value->empty() ? Texts{} : Texts{*value}; },
                        [](std::vector<std::string>* values) { return *values; },
                        [](bool* value) { return Texts{*value ? "true" : "false"}; },
                        [](int32_t* value) { return Texts{std::to_string(*value)}; },
                        [](int64_t* value) { return Texts{std::to_string(*value)}; },
                        [](double* value) { return Texts{FormatDouble(*value)}; },
                        [](Bytes* value) { return Texts{FormatBytes(*value)}; },
                        [](Duration* value) { return Texts{FormatDuration(*value)}; },
                    },
                    target);
}

std::string ValueName(const Flag& flag) {
  if (!flag.value_name.empty()) return flag.value_name;
  if (!flag.choices.empty()) {
    std::string names;
    for (const std::string& choice : flag.choices) names += (names.empty() ? "" : "|") + choice;
    return names;
  }
  return std::visit(Overloaded{
                        [](bool*) -> std::string { return ""; },
                        [](int32_t*) -> std::string { return "N"; },
                        [](int64_t*) -> std::string { return "N"; },
                        [](double*) -> std::string { return "X"; },
                        [](Bytes*) -> std::string { return "SIZE"; },
                        [](Duration*) -> std::string { return "TIME"; },
                        [](auto*) -> std::string { return "TEXT"; },
                    },
                    flag.target);
}

}  // namespace quire::config
