#include "common/config/store.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace quire::config {
namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string WholeText(int64_t value, Whole::Unit unit) {
  if (unit == Whole::Unit::kBytes) return FormatBytes({value});
  return unit == Whole::Unit::kTime ? FormatDuration({value}) : std::to_string(value);
}

absl::StatusOr<int64_t> ParseWhole(const std::string& text, Whole::Unit unit) {
  if (unit == Whole::Unit::kCount) return ParseInt(text);
  if (unit == Whole::Unit::kBytes) {
    QUIRE_ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
    return bytes.value;
  }
  QUIRE_ASSIGN_OR_RETURN(const Duration duration, ParseDuration(text));
  return duration.milliseconds;
}

std::string BoundText(const Flag& flag, double bound) {
  if (std::holds_alternative<double*>(flag.target)) return FormatDouble(bound);
  return WholeText(static_cast<int64_t>(bound), std::get<Whole>(flag.target).unit);
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

absl::Status StoreWhole(const Whole& target, int64_t value, const std::string& text) {
  return std::visit(
      [&](auto* field) -> absl::Status {
        using Number = std::remove_pointer_t<decltype(field)>;
        using Limits = std::numeric_limits<Number>;
        int64_t scaled = 0;
        bool fits = !__builtin_mul_overflow(value, target.scale, &scaled);
        if constexpr (std::is_integral_v<Number>) fits = fits && std::in_range<Number>(scaled);
        if (!fits) {
          return InvalidArgument("must be in [" + std::to_string(Limits::min()) + ", " +
                                 std::to_string(Limits::max()) + "], is " + text);
        }
        *field = static_cast<Number>(scaled);
        return absl::OkStatus();
      },
      target.field);
}

absl::Status StoreOne(const Flag& flag, const Target& to, const std::string& text) {
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
          [&](double* target) -> absl::Status {
            QUIRE_ASSIGN_OR_RETURN(const double value, ParseDouble(text));
            QUIRE_RETURN_IF_ERROR(CheckBounds(flag, value, text));
            *target = value;
            return absl::OkStatus();
          },
          [&](const Whole& target) -> absl::Status {
            QUIRE_ASSIGN_OR_RETURN(const int64_t value, ParseWhole(text, target.unit));
            QUIRE_RETURN_IF_ERROR(CheckBounds(flag, static_cast<double>(value), text));
            return StoreWhole(target, value, text);
          },
          [&](const Choice& target) -> absl::Status {
            QUIRE_RETURN_IF_ERROR(CheckChoice(flag, text));
            const auto word = std::find(target.words.begin(), target.words.end(), text);
            target.set(static_cast<size_t>(word - target.words.begin()));
            return absl::OkStatus();
          },
      },
      to);
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
    QUIRE_RETURN_IF_ERROR(Annotate(StoreOne(flag, flag.target, value), shown));
    for (const Target& other : flag.also) {
      QUIRE_RETURN_IF_ERROR(Annotate(StoreOne(flag, other, value), shown));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> TargetText(const Target& target) {
  using Texts = std::vector<std::string>;
  return std::visit(Overloaded{
                        [](std::string* value) { return value->empty() ? Texts{} : Texts{*value}; },
                        [](std::vector<std::string>* values) { return *values; },
                        [](bool* value) { return Texts{*value ? "true" : "false"}; },
                        [](double* value) { return Texts{FormatDouble(*value)}; },
                        [](const Whole& whole) {
                          const auto held =
                              std::visit([](auto* field) { return static_cast<int64_t>(*field); },
                                         whole.field);
                          return Texts{WholeText(held / whole.scale, whole.unit)};
                        },
                        [](const Choice& choice) { return Texts{choice.words[choice.get()]}; },
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
  if (std::holds_alternative<bool*>(flag.target)) return "";
  if (std::holds_alternative<double*>(flag.target)) return "X";
  const Whole* whole = std::get_if<Whole>(&flag.target);
  if (whole == nullptr) return "TEXT";
  if (whole->unit == Whole::Unit::kBytes) return "SIZE";
  return whole->unit == Whole::Unit::kTime ? "TIME" : "N";
}

}  // namespace quire::config
