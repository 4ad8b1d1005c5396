#include "cli/bench/bench_dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

namespace quire::cli {
namespace {

constexpr int64_t kDefaultOutputLen = 256;
constexpr int64_t kLeastIds = 16;

// Independent of the standard library's distributions, which differ between implementations.
int64_t Draw(std::mt19937_64& random, int64_t low, int64_t high) {
  const auto span = static_cast<uint64_t>(high - low) + 1;
  return low + static_cast<int64_t>(random() % span);
}

int64_t DrawLength(std::mt19937_64& random, int64_t length, double ratio) {
  const auto around = static_cast<double>(length);
  const auto low = static_cast<int64_t>(std::floor(around * (1 - ratio)));
  const auto high = static_cast<int64_t>(std::ceil(around * (1 + ratio)));
  return std::max<int64_t>(1, Draw(random, low, high));
}

// `count` tokens more of a prompt.
void Append(std::mt19937_64& random, const Vocabulary& vocabulary, int64_t count, bool as_text,
            BenchPrompt& prompt) {
  for (int64_t i = 0; i < count; ++i) {
    if (as_text) {
      prompt.text += vocabulary.words[random() % vocabulary.words.size()];
    } else {
      prompt.ids.push_back(vocabulary.ids[random() % vocabulary.ids.size()]);
    }
  }
}

std::string StringAt(const json::Object& object, std::string_view name) {
  const json::Value* value = json::Find(object, name);
  const json::String* text = value == nullptr ? nullptr : value->if_string();
  return text == nullptr ? "" : std::string(json::View(*text));
}

absl::StatusOr<std::vector<BenchPrompt>> ShareGpt(const DatasetOptions& options,
                                                  const std::string& text) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text));
  const json::Array* entries = value.if_array();
  if (entries == nullptr) {
    return InvalidArgument("--dataset-path: must hold an array of conversations");
  }
  std::vector<BenchPrompt> prompts;
  for (const json::Value& entry : *entries) {
    const json::Object* object = entry.if_object();
    const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "conversations");
    const json::Array* turns = list == nullptr ? nullptr : list->if_array();
    if (turns == nullptr || turns->size() < 2) continue;  // as vLLM does
    const json::Object* question = (*turns)[0].if_object();
    const json::Object* answer = (*turns)[1].if_object();
    if (question == nullptr || answer == nullptr) continue;
    BenchPrompt prompt{StringAt(*question, "value"), {}, options.output_len};
    // Without a tokenizer an answer's length is estimated at four bytes a token.
    constexpr int64_t kBytesPerToken = 4;
    if (prompt.output_len == 0) {
      const auto bytes = static_cast<int64_t>(StringAt(*answer, "value").size());
      prompt.output_len = std::clamp<int64_t>(bytes / kBytesPerToken, 4, 2048);
    }
    if (!prompt.text.empty()) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

absl::StatusOr<std::vector<BenchPrompt>> Custom(const DatasetOptions& options,
                                                const std::string& text) {
  std::vector<BenchPrompt> prompts;
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const absl::StatusOr<json::Value> value = json::Parse(line);
    const json::Object* object = value.ok() ? value->if_object() : nullptr;
    BenchPrompt prompt;
    if (object != nullptr) prompt.text = StringAt(*object, "prompt");
    if (prompt.text.empty()) {
      return InvalidArgument("--dataset-path: line " + std::to_string(number) +
                             " must be an object with a \"prompt\"");
    }
    const json::Value* length = json::Find(*object, "output_tokens");
    prompt.output_len = options.output_len > 0 ? options.output_len : kDefaultOutputLen;
    if (length != nullptr && options.output_len == 0) {
      QUIRE_ASSIGN_OR_RETURN(prompt.output_len, json::AsInt(*length, "output_tokens"));
      if (prompt.output_len < 1)
        return InvalidArgument("--dataset-path: output_tokens must be ≥ 1");
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

absl::StatusOr<std::string> ReadDataset(const std::string& path) {
  if (path.empty()) return InvalidArgument("--dataset-path is missing: this dataset is a file");
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxDatasetBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (text.empty())
    return InvalidArgument("--dataset-path: " + path + " cannot be read or is empty");
  if (text.size() > kMaxDatasetBytes) {
    return InvalidArgument("--dataset-path: " + path + " is longer than 64 MiB; take a part of it");
  }
  return text;
}

// Makes the server tokenize the words. Empty where it has no such route.
std::vector<int64_t> IdsOf(const Vocabulary& vocabulary, const AskOptions& server,
                           const std::atomic<bool>& cancelled) {
  json::Object body;
  body["model"] = server.model;
  std::string prompt;
  for (const std::string& word : vocabulary.words) prompt += word;
  body["prompt"] = prompt;
  body["add_special_tokens"] = false;
  const absl::StatusOr<client::Url> url = ServerOf(server);
  if (!url.ok()) return {};
  const client::HttpRequest request{"POST", "/tokenize", json::Serialize(body), server.api_key};
  const absl::StatusOr<client::HttpAnswer> answer =
      client::Exchange(*url, request, cancelled, [](std::string_view) { return true; });
  if (!answer.ok() || answer->status != 200) return {};
  const absl::StatusOr<json::Value> value = json::Parse(answer->body);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "tokens");
  const json::Array* tokens = list == nullptr ? nullptr : list->if_array();
  std::vector<int64_t> ids;
  for (size_t i = 0; tokens != nullptr && i < tokens->size(); ++i) {
    const absl::StatusOr<int64_t> id = json::AsInt((*tokens)[i], "tokens");
    if (id.ok()) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

Vocabulary BuiltInWords() {
  constexpr const char* kWords =
      "time year people way day man thing woman life child world school state family student group "
      "country problem hand part place case week company system program question work government "
      "number night point home water room mother area money story fact month lot right study book "
      "eye job word business issue side kind head house service friend father power hour game line "
      "end member law car city community name president team minute idea kid body information back "
      "parent face others level office door health person art war history party result change "
      "morning reason research girl guy moment air teacher force education river stone bird";
  Vocabulary vocabulary;
  std::istringstream words(kWords);
  for (std::string word; words >> word;) vocabulary.words.push_back(" " + word);
  return vocabulary;
}

std::vector<BenchPrompt> RandomPrompts(const DatasetOptions& options, const Vocabulary& vocabulary,
                                       bool as_text) {
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  const bool repeated = options.name == "prefix_repetition";
  std::vector<BenchPrompt> prefixes(
      static_cast<size_t>(repeated ? std::max<int64_t>(options.num_prefixes, 1) : 1));
  for (BenchPrompt& prefix : prefixes) {
    Append(random, vocabulary, repeated ? options.prefix_len : options.random_prefix_len, as_text,
           prefix);
  }
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    BenchPrompt prompt = prefixes[static_cast<size_t>(i) % prefixes.size()];
    int64_t length = options.suffix_len;
    prompt.output_len = options.prefix_output_len;
    if (!repeated) {
      length = DrawLength(random, options.random_input_len, options.random_range_ratio);
      prompt.output_len = DrawLength(random, options.random_output_len, options.random_range_ratio);
    }
    Append(random, vocabulary, length, as_text, prompt);
    prompts.push_back(std::move(prompt));
  }
  // Requests of different prefixes are mixed, as they are in service.
  for (size_t i = prompts.size(); repeated && i > 1; --i) {
    std::swap(prompts[i - 1], prompts[random() % i]);
  }
  return prompts;
}

absl::StatusOr<std::vector<BenchPrompt>> FilePrompts(const DatasetOptions& options,
                                                     const std::string& text) {
  QUIRE_ASSIGN_OR_RETURN(std::vector<BenchPrompt> prompts, options.name == "sharegpt"
                                                               ? ShareGpt(options, text)
                                                               : Custom(options, text));
  if (prompts.empty()) return InvalidArgument("--dataset-path: holds no prompt");
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  for (size_t i = prompts.size(); i > 1; --i) std::swap(prompts[i - 1], prompts[random() % i]);
  const size_t there = prompts.size();
  const auto wanted = static_cast<size_t>(options.num_prompts);
  prompts.resize(std::min(prompts.size(), wanted));
  for (size_t i = there; i < wanted; ++i) prompts.push_back(BenchPrompt(prompts[i % there]));
  return prompts;
}

absl::StatusOr<std::vector<BenchPrompt>> LoadDataset(const DatasetOptions& options, bool as_text,
                                                     const AskOptions& server,
                                                     const std::atomic<bool>& cancelled) {
  if (options.name == "sharegpt" || options.name == "custom") {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadDataset(options.path));
    return FilePrompts(options, text);
  }
  Vocabulary vocabulary = BuiltInWords();
  if (!as_text) vocabulary.ids = IdsOf(vocabulary, server, cancelled);
  const bool no_ids = static_cast<int64_t>(vocabulary.ids.size()) < kLeastIds;
  return RandomPrompts(options, vocabulary, as_text || no_ids);
}

std::vector<double> ArrivalTimes(const ArrivalOptions& options, int64_t count) {
  std::vector<double> times(static_cast<size_t>(count), 0);
  const bool ramp = !options.ramp.empty();
  if (options.request_rate <= 0 && !ramp) return times;
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::gamma_distribution<double> gaps(options.burstiness, 1 / options.burstiness);
  double now = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    times[i] = now;
    const double share =
        static_cast<double>(i) / std::max<double>(1, static_cast<double>(count - 1));
    double rate = options.request_rate;
    if (options.ramp == "linear") {
      rate = options.ramp_start + (options.ramp_end - options.ramp_start) * share;
    } else if (options.ramp == "exponential") {
      rate = options.ramp_start * std::pow(options.ramp_end / options.ramp_start, share);
    }
    now += gaps(random) / rate;
  }
  return times;
}

}  // namespace quire::cli
