//! Tokens that a tokenizer.json adds to its model's vocabulary, with ids as the library gives them.

use ahash::{AHashMap, AHashSet};
use serde::Deserialize;
use std::borrow::Cow;

use tokenizers::AddedToken;

use crate::bpe::Pieces;
use crate::encode::AddedMatcher;
use crate::normal::Normal;
use crate::work::Work;
use crate::Failure;

const MAX_ADDED_TOKENS: usize = 100_000;
/// The spellings of all added tokens: finding them takes a table of many bytes for each of these.
const MAX_ADDED_BYTES: usize = 4 << 20;

#[derive(Deserialize)]
pub struct AddedTokenFile {
    /// Written by the library and not read by it: the vocabulary or the order decides.
    #[serde(rename = "id")]
    _id: u32,
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Default)]
pub struct AddedTokens {
    ids: AHashMap<String, u32>,
    by_id: AHashMap<u32, AddedToken>,
    /// How tokens are spelled once normalized, where that differs.
    normalized: AHashMap<u32, String>,
    specials: AHashSet<String>,
}

impl AddedTokens {
    pub fn new(
        tokens: Vec<AddedTokenFile>,
        pieces: &Pieces,
        normals: &[Normal],
    ) -> Result<Self, Failure> {
        if tokens.len() > MAX_ADDED_TOKENS {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: more than {MAX_ADDED_TOKENS} added tokens"
            )));
        }
        let bytes: usize = tokens.iter().map(|file| file.token.content.len()).sum();
        if bytes > MAX_ADDED_BYTES {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: added_tokens have {bytes} bytes; at most {MAX_ADDED_BYTES} are read"
            )));
        }
        let work = Work::new(bytes, None);
        let mut added = AddedTokens::default();
        let mut next_id = pieces.len() as u32;
        for AddedTokenFile { token, .. } in tokens {
            if token.content.is_empty() {
                continue;
            }
            let known = added.ids.get(&token.content).copied();
            let id = known.or_else(|| pieces.id(&token.content)).unwrap_or_else(|| {
                next_id += 1;
                next_id - 1
            });
            if token.normalized {
                let mut text = Cow::Borrowed(token.content.as_str());
                for step in normals {
                    text = step.apply(text, &work)?;
                }
                if text != token.content.as_str() {
                    added.normalized.insert(id, text.into_owned());
                }
            }
            if token.special {
                added.specials.insert(token.content.clone());
            }
            added.ids.insert(token.content.clone(), id);
            added.by_id.insert(id, token);
        }
        Ok(added)
    }

    pub fn id(&self, content: &str) -> Option<u32> {
        self.ids.get(content).copied()
    }

    /// The token as decoding spells it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        let token = self.by_id.get(&id)?;
        Some(self.normalized.get(&id).unwrap_or(&token.content))
    }

    pub fn is_special(&self, content: &str) -> bool {
        self.specials.contains(content)
    }

    /// How special tokens are spelled, in raw and in normalized text.
    pub fn special_spellings(&self) -> impl Iterator<Item = &str> {
        let special = self.by_id.iter().filter(|(_, token)| token.special);
        special.flat_map(|(id, token)| {
            let normalized = self.normalized.get(id).unwrap_or(&token.content);
            [token.content.as_str(), normalized.as_str()]
        })
    }

    /// Tokens as the file has them, and as they are spelled once normalized.
    pub fn tokens(&self) -> impl Iterator<Item = (&AddedToken, &str)> {
        self.by_id
            .iter()
            .map(|(id, token)| (token, self.normalized.get(id).unwrap_or(&token.content).as_str()))
    }

    /// Whether a special token is looked for in normalized text.
    pub fn has_normalized_specials(&self) -> bool {
        self.by_id.values().any(|token| token.special && token.normalized)
    }

    /// Contents and ids, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.ids.iter().map(|(content, id)| (content.as_str(), *id))
    }

    /// What to look for in raw text, and in normalized text.
    pub fn matchers(&self) -> Result<(AddedMatcher, AddedMatcher), Failure> {
        let mut sorted: Vec<(u32, &AddedToken)> = self.by_id.iter().map(|(i, t)| (*i, t)).collect();
        sorted.sort_unstable_by_key(|(id, _)| *id);
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for (id, token) in sorted {
            if token.normalized {
                let pattern = self.piece(id).unwrap_or_default();
                normalized.push((id, token.clone(), pattern.to_owned()));
            } else {
                raw.push((id, token.clone(), token.content.clone()));
            }
        }
        let matcher = |tokens| AddedMatcher::new(tokens).map_err(Failure::invalid);
        Ok((matcher(raw)?, matcher(normalized)?))
    }
}
