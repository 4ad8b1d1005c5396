// The one C face of the Rust libraries: tokenizers, chat templates, vocabulary conversion.
//
// Called by the C++ faces in common/text alone. Objects are immutable once made and may be used by
// any number of threads at once; whoever made one frees it once.
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

void qtb_bytes_free(QtbBytes bytes);
void qtb_ids_free(QtbIds ids);

int32_t qtb_tokenizer_new(QtbSpan json, size_t max_vocab, QtbTokenizer** out, QtbBytes* error);
void qtb_tokenizer_free(QtbTokenizer* tokenizer);
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

#ifdef __cplusplus
}  // extern "C"
#endif
