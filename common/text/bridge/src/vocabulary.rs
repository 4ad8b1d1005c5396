//! A tokenizer's tokens as the trie that constraints walk, filled from the tables that decoding
//! reads.

use std::sync::Arc;

use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::ParserFactory;

use crate::counting::grown;
use crate::tables::{Tables, FLAG_EXISTS, FLAG_SPECIAL};
use crate::tokenizer::LoadedTokenizer;
use crate::work::Work;
use crate::Failure;

/// The trie holds no longer ones; they are never allowed.
const MAX_TOKEN_BYTES: usize = 1000;
/// Of all tokens: the trie has at most as many nodes, and 2^22 are its limit.
const MAX_ALL_BYTES: usize = 1 << 22;
/// Ids are kept in 24 bits.
const MAX_WIDTH: usize = 1 << 22;
/// Forced text is tokenised so far, whatever its length: the first of its tokens is the one that is
/// asked for, and the rest is asked for again behind it.
const WINDOW: usize = 4 * MAX_TOKEN_BYTES;
/// A token id that no vocabulary has.
const NO_TOKEN: u32 = u32::MAX;
/// What `Vocabulary` holds at most, measured over tokenizers in use: a trie and its parts for each
/// slice of the vocabulary.
const BYTES_PER_TOKEN: usize = 160;
const BYTES_PER_TOKEN_BYTE: usize = 90;
const BASE_BYTES: usize = 1 << 20;

pub struct Vocabulary {
    pub factory: ParserFactory,
    pub width: usize,
    pub end_ids: Vec<u32>,
    /// Of tokens that can be allowed, as in a mask.
    pub exists: Vec<u32>,
    pub bytes: usize,
}

/// What `Vocabulary::new` leaves resident at most.
pub fn estimate(tokens: usize, token_bytes: usize) -> usize {
    BASE_BYTES + BYTES_PER_TOKEN * tokens + BYTES_PER_TOKEN_BYTE * token_bytes
}

struct Env {
    trie: TokTrie,
    tokenizer: Arc<LoadedTokenizer>,
    /// Every byte of UTF-8 has a token, so that any text can be written.
    whole: bool,
}

impl Env {
    /// The tokenizer's own ids, if they spell exactly this text with plain tokens.
    fn own(&self, text: &str) -> Option<Vec<u32>> {
        let ids = self.tokenizer.encode(text, false, None, &Work::new(text.len(), None)).ok()?;
        let mut rest = text.as_bytes();
        for id in &ids {
            if *id as usize >= self.trie.vocab_size() || self.trie.is_special_token(*id) {
                return None;
            }
            let bytes = self.trie.token(*id);
            if bytes.is_empty() {
                return None;
            }
            rest = rest.strip_prefix(bytes)?;
        }
        rest.is_empty().then_some(ids)
    }
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let mut ids = Vec::new();
        for chunk in bytes.utf8_chunks() {
            let text = chunk.valid();
            ids.extend(
                self.own(text).unwrap_or_else(|| self.trie.greedy_tokenize(text.as_bytes())),
            );
            ids.extend(self.trie.greedy_tokenize(chunk.invalid()));
        }
        ids
    }

    /// Tokens behind the window are missing, and the last ones in it may be others than the text's.
    fn tokenize_bytes_marker(&self, bytes: &[u8]) -> (Vec<u32>, usize) {
        Unbounded(self).tokenize_bytes_marker(&bytes[..bytes.len().min(WINDOW)])
    }

    /// Otherwise the library never forces tokens, which is right for any vocabulary.
    fn tokenize_is_canonical(&self) -> bool {
        self.whole
    }
}

/// The same with the library's own way through special tokens.
struct Unbounded<'a>(&'a Env);

impl TokenizerEnv for Unbounded<'_> {
    fn tok_trie(&self) -> &TokTrie {
        &self.0.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.0.tokenize_bytes(bytes)
    }
}

/// The bytes of each id below `width`, as the trie wants them: special tokens behind a mark, none
/// for ids that cannot be allowed.
fn words(tables: &Tables, width: usize, end_ids: &[u32]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new(); width];
    for (id, word) in words.iter_mut().enumerate().take(tables.flags.len()) {
        let flags = tables.flags[id];
        let bytes = &tables.bytes[tables.offsets[id] as usize..tables.offsets[id + 1] as usize];
        if flags & FLAG_EXISTS == 0 || bytes.is_empty() || bytes.len() > MAX_TOKEN_BYTES {
            continue;
        }
        if flags & FLAG_SPECIAL != 0 || end_ids.contains(&(id as u32)) {
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
        } else if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
            continue; // in no UTF-8
        }
        word.extend_from_slice(bytes);
    }
    words
}

/// Whether each byte that UTF-8 has is a token.
fn writes_every_byte(words: &[Vec<u8>]) -> bool {
    let mut seen = [false; 256];
    for word in words {
        if let [byte] = word[..] {
            seen[byte as usize] = true;
        }
    }
    let used = |byte: &usize| !matches!(byte, 0xc0 | 0xc1 | 0xf5..);
    (0..256).filter(used).all(|byte| seen[byte])
}

fn bits(words: &[Vec<u8>]) -> Vec<u32> {
    let mut bits = vec![0; words.len().div_ceil(32)];
    for (id, word) in words.iter().enumerate() {
        bits[id / 32] |= u32::from(!word.is_empty()) << (id % 32);
    }
    bits
}

impl Vocabulary {
    pub fn new(
        tokenizer: &Arc<LoadedTokenizer>,
        width: usize,
        end_ids: &[u32],
    ) -> Result<Self, Failure> {
        if width == 0 || width > MAX_WIDTH {
            return Err(Failure::exhausted(format!(
                "a vocabulary of {width} ids; 1 to {MAX_WIDTH} are supported"
            )));
        }
        if let Some(id) = end_ids.iter().find(|id| **id as usize >= width) {
            return Err(Failure::invalid(format!(
                "the end-of-sequence id {id} is not below the vocabulary's {width}"
            )));
        }
        if tokenizer.tables.bytes.len() > MAX_ALL_BYTES {
            return Err(Failure::exhausted(format!(
                "the tokens have {} bytes; constraints take at most {MAX_ALL_BYTES}",
                tokenizer.tables.bytes.len()
            )));
        }
        let (made, bytes) = grown(|| Self::made(tokenizer, width, end_ids));
        let mut vocabulary = made?;
        vocabulary.bytes = bytes.max(0) as usize;
        Ok(vocabulary)
    }

    fn made(
        tokenizer: &Arc<LoadedTokenizer>,
        width: usize,
        end_ids: &[u32],
    ) -> Result<Self, Failure> {
        let words = words(&tokenizer.tables, width, end_ids);
        let info = TokRxInfo::new(width as u32, end_ids.first().copied().unwrap_or(NO_TOKEN));
        let mut trie = TokTrie::from(&info, &words);
        if end_ids.len() > 1 {
            trie = trie.with_eos_tokens(end_ids);
        }
        let env = Env { trie, tokenizer: tokenizer.clone(), whole: writes_every_byte(&words) };
        let capabilities =
            InferenceCapabilities { ff_tokens: env.whole, ..InferenceCapabilities::default() };
        let env: TokEnv = Arc::new(env);
        let slices = SlicedBiasComputer::json_slices();
        let mut factory = ParserFactory::new(&env, capabilities, &slices)
            .map_err(|e| Failure::invalid(format!("the vocabulary cannot be sliced: {e}")))?;
        factory.quiet();
        let end_ids = end_ids.to_vec();
        Ok(Vocabulary { factory, width, end_ids, exists: bits(&words), bytes: 0 })
    }
}
