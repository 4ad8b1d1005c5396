// The one C face of the Rust libraries: tokenizers, chat templates, constraints.
//
// Only the C++ classes in common/text and common/grammar call it. Objects are immutable once made
// and may be used by any number of threads at once, except for matchers, which one thread uses at a
// time; their maker frees them once.
//  1. Every call returns QTB_OK and fills *out, or another code and fills *error with a one-line
//     message.
//  2. No call unwinds or aborts, whatever its input bytes say; spans are read only during the call.
//  3. QtbBytes and QtbIds are owned by the caller and given back to qtb_bytes_free and
//     qtb_ids_free.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  QTB_OK = 0,
  QTB_INVALID = 1,    // the input is malformed or not supported
  QTB_EXHAUSTED = 2,  // the input is over a limit
  QTB_INTERNAL = 3,   // a library gave up in a way it shouldn't
  QTB_CANCELLED = 4,  // the caller's flag was set
};

typedef struct QtbTokenizer QtbTokenizer;
typedef struct QtbTemplate QtbTemplate;

typedef struct {
  const uint8_t* data;
  size_t size;
} QtbSpan;

typedef struct {
  uint8_t* data;
  size_t size;
} QtbBytes;

typedef struct {
  uint32_t* data;
  size_t size;
} QtbIds;

// Views into a tokenizer. Token i owns bytes[offsets[i] .. offsets[i + 1]); flags: 1 exists, 2
// special, 4 stands for a single byte.
typedef struct {
  const uint8_t* bytes;
  const uint32_t* offsets;
  const uint8_t* flags;
  size_t vocab_size;
  const uint32_t* prefix;
  size_t prefix_size;
  const uint32_t* suffix;
  size_t suffix_size;
  uint8_t byte_fallback;
  uint8_t strip_first_token_spaces;
  uint32_t strip_leading_spaces;
} QtbTables;

typedef struct {
  QtbSpan name;
  QtbSpan text;
} QtbNamed;

// What to encode. `cancelled` as in QtbRender; `marked`: the text is a marked one; `steps`: null,
// or where the steps go that the call took.
typedef struct {
  QtbSpan text;
  const bool* cancelled;
  uint8_t add_special_tokens;
  uint8_t marked;
  uint64_t* steps;
} QtbEncode;

// What to render. tools_json and extra_json may be empty.
typedef struct {
  QtbSpan messages_json;
  QtbSpan tools_json;
  QtbSpan extra_json;
  const QtbNamed* special_tokens;
  size_t special_tokens_size;
  const bool* cancelled;  // null, or a flag that another thread sets, atomically, when it gives up
  int64_t now_unix_seconds;
  size_t max_output_bytes;
  uint8_t add_generation_prompt;
  uint8_t continue_final_message;
  const QtbTokenizer* tokenizer;  // null, or the text is marked where messages spell its tokens
} QtbRender;

// From now on `hook` is called, on any thread, before an allocation of the bridge fails. It may end
// the program; where it returns, the program aborts.
void qtb_on_no_memory(void (*hook)(void));

void qtb_bytes_free(QtbBytes bytes);
void qtb_ids_free(QtbIds ids);

int32_t qtb_tokenizer_new(QtbSpan json, size_t max_vocab, const QtbTokenizer** out,
                          QtbBytes* error);
void qtb_tokenizer_free(const QtbTokenizer* tokenizer);
QtbTables qtb_tokenizer_tables(const QtbTokenizer* tokenizer);
int32_t qtb_encode(const QtbTokenizer* tokenizer, const QtbEncode* encode, QtbIds* out,
                   QtbBytes* error);
// As many tokens as the text has, or fewer; 0: nothing is known, or the text is no UTF-8.
size_t qtb_fewest_tokens(const QtbTokenizer* tokenizer, QtbSpan text, uint8_t marked);
int32_t qtb_encode_by_reference(QtbSpan json, QtbSpan text, uint8_t add_special_tokens, QtbIds* out,
                                QtbBytes* error);
int32_t qtb_tokenizer_piece(const QtbTokenizer* tokenizer, uint32_t id, QtbBytes* out,
                            QtbBytes* error);
int64_t qtb_tokenizer_id(const QtbTokenizer* tokenizer, QtbSpan piece);

int32_t qtb_template_new(QtbSpan source, QtbTemplate** out, QtbBytes* error);
void qtb_template_free(QtbTemplate* chat_template);
int32_t qtb_template_render(const QtbTemplate* chat_template, const QtbRender* render,
                            QtbBytes* out, QtbBytes* error);

typedef struct QtbVocabulary QtbVocabulary;
typedef struct QtbGrammar QtbGrammar;
typedef struct QtbMatcher QtbMatcher;

// As grammar::Limits has them.
typedef struct {
  size_t max_grammar_symbols;
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_depth;
} QtbLimits;

// What to compile. `kind` as ConstraintKind; `cancelled` as in QtbRender.
typedef struct {
  QtbSpan source;
  QtbSpan whitespace_pattern;
  QtbLimits limits;
  const bool* cancelled;
  uint8_t kind;
  uint8_t compact;
  uint8_t closed;
} QtbConstraint;

// Of vocabularies, grammars and matchers a code may carry a grammar::Fault above QTB_FAULT_SHIFT.
enum { QTB_FAULT_SHIFT = 8 };

// What qtb_vocabulary_new leaves resident at most.
size_t qtb_vocabulary_estimate(const QtbTokenizer* tokenizer);
size_t qtb_vocabulary_estimate_of(size_t tokens, size_t token_bytes);
int32_t qtb_vocabulary_new(const QtbTokenizer* tokenizer, size_t width, const uint32_t* end_ids,
                           size_t end_ids_size, const QtbVocabulary** out, QtbBytes* error);
void qtb_vocabulary_free(const QtbVocabulary* vocabulary);
size_t qtb_vocabulary_bytes(const QtbVocabulary* vocabulary);

// Vocabularies outlive their tokenizer, grammars their vocabulary, matchers their grammar.
int32_t qtb_grammar_new(const QtbVocabulary* vocabulary, const QtbConstraint* constraint,
                        QtbGrammar** out, QtbBytes* error);
void qtb_grammar_free(QtbGrammar* grammar);
size_t qtb_grammar_bytes(const QtbGrammar* grammar);
int32_t qtb_grammar_matcher(const QtbGrammar* grammar, QtbMatcher** out, QtbBytes* error);

int32_t qtb_matcher_fork(const QtbMatcher* matcher, QtbMatcher** out, QtbBytes* error);
void qtb_matcher_free(QtbMatcher* matcher);
int32_t qtb_matcher_accept(QtbMatcher* matcher, const uint32_t* ids, size_t size, QtbBytes* error);
int32_t qtb_matcher_mask(QtbMatcher* matcher, uint32_t* words, size_t size, QtbBytes* error);
// The ids live until the next call.
int32_t qtb_matcher_forced(QtbMatcher* matcher, const uint32_t** out, size_t* size,
                           QtbBytes* error);
uint8_t qtb_matcher_state(const QtbMatcher* matcher);  // 1: finished; 2: may end
size_t qtb_matcher_bytes(const QtbMatcher* matcher);

#ifdef __cplusplus
}  // extern "C"
#endif
