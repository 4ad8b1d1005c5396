#include "common/text/gguf_vocab.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"
#include "common/text/tokenizer.h"

namespace quire::text {
namespace {

constexpr std::string_view kMark = "\u2581";  // SentencePiece's word mark
constexpr size_t kMaxPieceBytes = 4096;
constexpr size_t kMaxMerges = 8'000'000;

// A splitting rule of byte-level vocabularies under its names in `tokenizer.ggml.pre`.
struct SplittingRule {
  std::string_view name;
  std::string_view expression;  // of a Split step; empty: none
  bool digits_apart;            // digits are split one by one before anything else
  bool library_expression;      // the ByteLevel step splits by GPT-2's expression
  bool ignore_merges;           // words of the vocabulary are taken whole
  bool compose;                 // text is normalized to NFC first
};

constexpr std::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr SplittingRule kSplittingRules[] = {
    {"default", "", false, true, false, false},
    {"gpt-2", "", false, true, false, false},
    {"opt", "", false, true, false, false},
    {"smollm", "", true, true, false, false},
    {"starcoder", "", true, true, false, false},
    {"refact", "", true, true, false, false},
    {"command-r", "", true, true, false, true},
    {"llama-bpe", kLlama3Expression, false, false, true, false},
    {"llama3", kLlama3Expression, false, false, true, false},
    {"llama-v3", kLlama3Expression, false, false, true, false},
    {"smaug-bpe", kLlama3Expression, false, false, false, false},
    {"dbrx", kLlama3Expression, false, false, false, false},
    {"chatglm-bpe", kLlama3Expression, false, false, false, false},
    {"glm4", kLlama3Expression, false, false, false, false},
    {"qwen2", kQwen2Expression, false, false, false, true},
    {"deepseek-r1-qwen", kQwen2Expression, false, false, false, true},
    {"qwen35", kQwen35Expression, false, false, false, true},
    {"megrez", kQwen2Expression, false, false, false, true},
    {"gpt-4o", kGpt4oExpression, false, false, true, false},
    {"tekken", kTekkenExpression, false, false, true, false},
    {"pixtral", kTekkenExpression, false, false, true, false},
};

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", what));
}

// Characters of UTF-8 text: bytes that don't continue one.
size_t CharCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string Marked(std::string_view token) {
  std::string piece;
  for (const char c : token) {
    if (c == ' ') {
      piece += kMark;
    } else {
      piece.push_back(c);
    }
  }
  return piece;
}

std::string Quoted(std::string_view text) {
  std::string out;
  json::AppendQuoted(text, out);
  return out;
}

void AppendMerge(std::string_view left, std::string_view right, std::string* out) {
  *out += out->empty() ? "[" : ",[";
  json::AppendQuoted(left, *out);
  out->push_back(',');
  json::AppendQuoted(right, *out);
  out->push_back(']');
}

absl::Status CheckIds(const GgufVocab& vocab) {
  const std::pair<const char*, std::optional<int32_t>> ids[] = {
      {"bos_token_id", vocab.bos_id},         {"eos_token_id", vocab.eos_id},
      {"eot_token_id", vocab.eot_id},         {"unknown_token_id", vocab.unknown_id},
      {"padding_token_id", vocab.padding_id},
  };
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= vocab.tokens.size())) {
      return Wrong(absl::StrCat(name, ": ", *id, " is not below ", vocab.tokens.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVocab(const GgufVocab& vocab) {
  if (vocab.model != "llama" && vocab.model != "gpt2" && vocab.model != "gemma4") {
    return Wrong(absl::StrCat("model: '", vocab.model,
                              "' is not supported; supported: llama, gpt2, gemma4"));
  }
  const size_t count = vocab.tokens.size();
  if (count == 0 || count > kMaxVocabSize) {
    return Wrong(absl::StrCat("tokens: ", count, " tokens; 1 to ", kMaxVocabSize, " can be read"));
  }
  for (const std::string& token : vocab.tokens) {
    if (token.size() > kMaxPieceBytes) {
      return Wrong(absl::StrCat("tokens: one is longer than ", kMaxPieceBytes, " bytes"));
    }
  }
  if (!vocab.token_types.empty() && vocab.token_types.size() != count) {
    return Wrong(
        absl::StrCat("token_type: ", vocab.token_types.size(), " values for ", count, " tokens"));
  }
  if (vocab.model == "llama" && vocab.scores.size() != count) {
    return Wrong(absl::StrCat("scores: ", vocab.scores.size(), " values for ", count, " tokens"));
  }
  if (vocab.model != "llama" && vocab.merges.size() > kMaxMerges) {
    return Wrong(absl::StrCat("merges: more than ", kMaxMerges));
  }
  return CheckIds(vocab);
}

// Builds the text. One object per conversion.
class Converter {
 public:
  explicit Converter(const GgufVocab& vocab)
      : vocab_(vocab),
        sentence_piece_(vocab.model == "llama" || vocab.model == "gemma4"),
        merges_given_(vocab.model != "llama") {}

  absl::StatusOr<std::string> Run() {
    QUIRE_RETURN_IF_ERROR(IndexPieces());
    const SplittingRule* rule = nullptr;
    if (!sentence_piece_) {
      QUIRE_ASSIGN_OR_RETURN(rule, FindRule());
    }
    QUIRE_ASSIGN_OR_RETURN(const std::string merges,
                           merges_given_ ? GivenMerges() : MergesFromScores());
    std::string out = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
    AppendAddedTokens(&out);
    out += sentence_piece_ ? SentencePieceSteps() : ByteLevelSteps(*rule);
    out += PostProcessor();
    out += R"("model":{"type":"BPE","dropout":null,"unk_token":)";
    out += sentence_piece_ && vocab_.unknown_id ? Quoted(pieces_[*vocab_.unknown_id]) : "null";
    out += R"(,"continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":)";
    out += sentence_piece_ ? R"(true,"byte_fallback":true)" : R"(false,"byte_fallback":false)";
    out += rule != nullptr && rule->ignore_merges ? R"(,"ignore_merges":true)" : "";
    out += R"(,"vocab":{)";
    for (size_t id = 0; id < pieces_.size(); ++id) {
      if (id > 0) out.push_back(',');
      json::AppendQuoted(pieces_[id], out);
      absl::StrAppend(&out, ":", id);
    }
    absl::StrAppend(&out, "},\"merges\":[", merges, "]}}");
    if (out.size() > kMaxTokenizerJsonBytes) {
      return absl::ResourceExhaustedError("tokenizer.ggml: the vocabulary is too large");
    }
    return out;
  }

 private:
  GgufTokenType Type(size_t id) const {
    return vocab_.token_types.empty() ? GgufTokenType::kNormal
                                      : static_cast<GgufTokenType>(vocab_.token_types[id]);
  }

  bool IsAdded(size_t id) const {
    const GgufTokenType type = Type(id);
    return type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined ||
           type == GgufTokenType::kUnknown;
  }

  // The pieces as the vocabulary of tokenizer.json spells them, and their ids.
  absl::Status IndexPieces() {
    pieces_.reserve(vocab_.tokens.size());
    for (const std::string& token : vocab_.tokens) {
      pieces_.push_back(sentence_piece_ ? Marked(token) : token);
    }
    ids_.reserve(pieces_.size());
    for (size_t id = 0; id < pieces_.size(); ++id) {
      const auto [other, is_new] = ids_.emplace(pieces_[id], static_cast<int32_t>(id));
      if (!is_new) {
        return Wrong(absl::StrCat("tokens: tokens ", other->second, " and ", id, " are equal"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const SplittingRule*> FindRule() const {
    std::string names;
    for (const SplittingRule& rule : kSplittingRules) {
      if (rule.name == (vocab_.pre.empty() ? "default" : vocab_.pre)) return &rule;
      absl::StrAppend(&names, names.empty() ? "" : ", ", AbslView(rule.name));
    }
    return Wrong(absl::StrCat("pre: '", vocab_.pre, "' is not supported; supported: ", names));
  }

  absl::StatusOr<std::string> GivenMerges() const {
    std::string out;
    for (const std::string& merge : vocab_.merges) {
      // Pieces hold no plain spaces, in byte-level spelling or with marks, so the first one parts
      // them.
      const size_t space = merge.find(' ');
      if (space == std::string::npos || space == 0 || space + 1 == merge.size()) {
        return Wrong("merges: an entry is not two pieces with a space between");
      }
      const std::string_view left = std::string_view(merge).substr(0, space);
      const std::string_view right = std::string_view(merge).substr(space + 1);
      AppendMerge(left, right, &out);
    }
    return out;
  }

  absl::StatusOr<std::string> MergesFromScores() const;
  void AppendAddedTokens(std::string* out) const;
  std::string SentencePieceSteps() const;
  std::string ByteLevelSteps(const SplittingRule& rule) const;
  std::string PostProcessor() const;

  const GgufVocab& vocab_;
  const bool sentence_piece_;  // spaces are marks, and bytes have tokens of their own
  const bool merges_given_;
  std::vector<std::string> pieces_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;  // looked up only, never iterated
};

struct ScoredMerge {
  float score;
  uint32_t left_chars;
  uint32_t right_chars;
  int32_t left;
  int32_t right;
};

// As `transformers` derives merges from a SentencePiece model: for each piece in order of ids its
// splits in order of (left id, right id), then all sorted, stably, by falling (score, characters
// left, characters right). Control and user-defined pieces have the best score there, and some low
// one in GGUF files.
absl::StatusOr<std::string> Converter::MergesFromScores() const {
  std::vector<ScoredMerge> merges;
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const std::string_view piece = pieces_[id];
    const bool best =
        Type(id) == GgufTokenType::kControl || Type(id) == GgufTokenType::kUserDefined;
    const float score = best ? 0.0f : vocab_.scores[id];
    if (std::isnan(score)) return Wrong(absl::StrCat("scores: number ", id, " is not a number"));
    const size_t first = merges.size();
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if ((piece[cut] & 0xC0) == 0x80) continue;
      const auto left = ids_.find(piece.substr(0, cut));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(piece.substr(cut));
      if (right == ids_.end()) continue;
      merges.push_back({score, static_cast<uint32_t>(CharCount(left->first)),
                        static_cast<uint32_t>(CharCount(right->first)), left->second,
                        right->second});
    }
    if (merges.size() > kMaxMerges) {
      return Wrong(absl::StrCat("tokens: over ", kMaxMerges, " merges"));
    }
    std::sort(merges.begin() + first, merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
      return std::tie(a.left, a.right) < std::tie(b.left, b.right);
    });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_chars, a.right_chars) >
           std::tie(b.score, b.left_chars, b.right_chars);
  });
  std::string out;
  for (const ScoredMerge& merge : merges) {
    AppendMerge(pieces_[merge.left], pieces_[merge.right], &out);
  }
  return out;
}

void Converter::AppendAddedTokens(std::string* out) const {
  bool first = true;
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (!IsAdded(id) || pieces_[id].empty()) continue;
    const bool special = Type(id) != GgufTokenType::kUserDefined;
    absl::StrAppend(out, first ? "" : ",", "{\"id\":", id, ",\"content\":", Quoted(pieces_[id]),
                    R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    "\"special\":", special ? "true}" : "false}");
    first = false;
  }
}

std::string Converter::SentencePieceSteps() const {
  const bool prefix = vocab_.add_space_prefix.value_or(!merges_given_);
  std::string out = R"(],"normalizer":{"type":"Sequence","normalizers":[)";
  if (prefix) out += R"({"type":"Prepend","prepend":"▁"},)";
  out += R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null,)"
         R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
         R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"})";
  if (prefix) out += R"(,{"type":"Strip","content":" ","start":1,"stop":0})";
  out += "]},";
  return out;
}

std::string Converter::ByteLevelSteps(const SplittingRule& rule) const {
  std::string out = R"(],"normalizer":)";
  out += rule.compose ? R"({"type":"NFC"})" : "null";
  out += R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)";
  if (rule.digits_apart) out += R"({"type":"Digits","individual_digits":true},)";
  if (!rule.expression.empty()) {
    absl::StrAppend(&out, R"({"type":"Split","pattern":{"Regex":)", Quoted(rule.expression),
                    R"(},"behavior":"Isolated","invert":false},)");
  }
  absl::StrAppend(&out, R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)",
                  "\"use_regex\":", rule.library_expression ? "true" : "false");
  out += R"(}]},"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
         R"("use_regex":true},)";
  return out;
}

std::string Converter::PostProcessor() const {
  const bool by_default = sentence_piece_ || vocab_.pre == "llama-bpe" || vocab_.pre == "llama3" ||
                          vocab_.pre == "tekken" || vocab_.pre == "pixtral";
  const bool bos = vocab_.bos_id && vocab_.add_bos.value_or(by_default);
  const bool eos = vocab_.eos_id && vocab_.add_eos.value_or(false);
  if (!bos && !eos) return R"("post_processor":null,)";
  std::string steps;
  std::string tokens;
  const auto special = [&](int32_t id) {
    const std::string name = Quoted(pieces_[id]);
    absl::StrAppend(&steps, steps.empty() ? "" : ",", R"({"SpecialToken":{"id":)", name,
                    R"(,"type_id":0}})");
    if (tokens.find(name) == std::string::npos) {
      absl::StrAppend(&tokens, tokens.empty() ? "" : ",", name, R"(:{"id":)", name, R"(,"ids":[)",
                      id, R"(],"tokens":[)", name, "]}");
    }
  };
  if (bos) special(*vocab_.bos_id);
  absl::StrAppend(&steps, steps.empty() ? "" : ",", R"({"Sequence":{"id":"A","type_id":0}})");
  if (eos) special(*vocab_.eos_id);
  return absl::StrCat(R"("post_processor":{"type":"TemplateProcessing","single":[)", steps,
                      R"(],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B",)",
                      R"("type_id":1}}],"special_tokens":{)", tokens, "}},");
}

}  // namespace

absl::StatusOr<std::string> GgufVocabToTokenizerJson(const GgufVocab& vocab) {
  QUIRE_RETURN_IF_ERROR(CheckVocab(vocab));
  return Converter(vocab).Run();
}

}  // namespace quire::text
