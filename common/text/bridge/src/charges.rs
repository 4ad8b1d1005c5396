//! What becomes of each character of a text in the steps before the model, as far as sizes go: the
//! most bytes of the raw text that one character can stand for afterwards.

use std::sync::LazyLock;

use ahash::AHashMap;
use unicode_normalization_alignments::UnicodeNormalization;

use crate::bound::NoBound;
use crate::encode::Step;
use crate::normal::Normal;
use crate::pattern::{Behavior, SplitPattern};

/// No character from here on changes by normalizing or in lower case, as a test checks.
const FIRST_UNCHANGED: u32 = 0x30000;
/// Bytes of the longest character.
const LONGEST_CHARACTER: u64 = 4;

/// The most bytes of the raw text that one character stands for after the steps so far.
pub struct Charges {
    /// Characters that may stand for more or less than themselves.
    changed: AHashMap<char, u64>,
    spaces_weigh: bool,
}

/// Characters and what becomes of each by itself, where that is something else.
type Changes = Vec<(char, Vec<char>)>;

fn changes<I: Iterator<Item = char>>(change: impl Fn(char) -> I) -> Changes {
    let all = (0..FIRST_UNCHANGED).filter_map(char::from_u32);
    all.map(|c| (c, change(c).collect()))
        .filter(|(c, to): &(char, Vec<char>)| to != &[*c])
        .collect()
}

static DECOMPOSED: LazyLock<Changes> =
    LazyLock::new(|| changes(|c| std::iter::once(c).nfd().map(|(c, _)| c)));
static COMPATIBLE: LazyLock<Changes> =
    LazyLock::new(|| changes(|c| std::iter::once(c).nfkd().map(|(c, _)| c)));
static LOWERED: LazyLock<Changes> = LazyLock::new(|| changes(char::to_lowercase));

impl Charges {
    pub fn new(spaces_weigh: bool) -> Self {
        Charges { changed: AHashMap::new(), spaces_weigh }
    }

    pub fn of(&self, c: char) -> u64 {
        let own = if self.spaces_weigh || !c.is_whitespace() { c.len_utf8() as u64 } else { 0 };
        self.changed.get(&c).copied().unwrap_or(own)
    }

    pub fn of_text(&self, text: &str) -> u64 {
        text.chars().fold(0, |sum, c| sum.saturating_add(self.of(c)))
    }

    /// No character is charged with more.
    pub fn most(&self) -> u64 {
        self.changed.values().copied().max().unwrap_or(0).max(LONGEST_CHARACTER)
    }

    /// A character is charged to the token that has its first byte, with `most` where the others are
    /// not there.
    pub fn of_bytes(&self, mut bytes: &[u8], most: u64) -> u64 {
        let mut sum = 0u64;
        while let Some(first) = bytes.first() {
            let (charge, size) = match first {
                0..=0x7f => (self.of(*first as char), 1),
                0x80..=0xbf => (0, 1),
                _ => {
                    let size = first.leading_ones().min(4) as usize;
                    let whole = bytes.get(..size).and_then(|part| std::str::from_utf8(part).ok());
                    match whole.and_then(|part| part.chars().next()) {
                        Some(c) => (self.of(c), size),
                        None => (most, 1),
                    }
                }
            };
            sum = sum.saturating_add(charge);
            bytes = &bytes[size..];
        }
        sum
    }

    pub fn space_is_charged(&self) -> bool {
        (0..FIRST_UNCHANGED).filter_map(char::from_u32).any(|c| c.is_whitespace() && self.of(c) > 0)
    }

    /// `c` may stand for `charge` too.
    fn raise(&mut self, c: char, charge: u64) {
        let now = self.of(c);
        if charge > now {
            self.changed.insert(c, charge);
        }
    }

    /// What `charge` was for stands in `to` now: each of its characters takes a share by its size.
    fn share(&mut self, charge: u64, to: &[char]) {
        let size: u64 = to.iter().map(|c| c.len_utf8() as u64).sum();
        for c in to {
            self.raise(*c, charge.saturating_mul(c.len_utf8() as u64).div_ceil(size.max(1)));
        }
    }

    /// Each character becomes others, by itself.
    fn map(&mut self, changes: &Changes) {
        let charged: Vec<u64> = changes.iter().map(|(from, _)| self.of(*from)).collect();
        for ((_, to), charge) in changes.iter().zip(charged) {
            self.share(charge, to);
        }
    }

    /// Characters that follow one another become the one that decomposes into them.
    fn compose(&mut self) {
        for (to, from) in DECOMPOSED.iter() {
            let sum = from.iter().fold(0u64, |sum, c| sum.saturating_add(self.of(*c)));
            self.raise(*to, sum);
        }
    }

    pub fn normalize(&mut self, normal: &Normal) -> Result<(), NoBound> {
        match normal {
            Normal::Prepend(_) => {}
            Normal::Nfd => self.map(&DECOMPOSED),
            Normal::Nfkd => self.map(&COMPATIBLE),
            Normal::Nfc => {
                self.map(&DECOMPOSED);
                self.compose();
            }
            Normal::Nfkc => {
                self.map(&COMPATIBLE);
                self.compose();
            }
            Normal::Lowercase => self.map(&LOWERED),
            Normal::Replace(SplitPattern::Literal(from), to) => {
                if from.is_empty() {
                    return Ok(());
                }
                if to.is_empty() {
                    return Err("a normalizer takes text away");
                }
                let to: Vec<char> = to.chars().collect();
                self.share(self.of_text(from), &to);
            }
            Normal::Replace(..) => return Err("a normalizer replaces matches of any length"),
            Normal::Strip { left, right } => {
                if (*left || *right) && self.space_is_charged() {
                    return Err("a normalizer strips white space that was other text");
                }
            }
            Normal::StripAccents => return Err("a normalizer takes accents away"),
        }
        Ok(())
    }

    pub fn pre_tokenize(&mut self, step: &Step, byte_level: bool) -> Result<(), NoBound> {
        match step {
            Step::Split { behavior: Behavior::Removed, .. } => {
                Err("the pre-tokenizer takes text away")
            }
            Step::Split { .. } | Step::Digits { .. } => Ok(()),
            // What follows reads letters that stand for bytes.
            Step::ByteLevel { .. } | Step::Metaspace { .. } if byte_level => {
                Err("the pre-tokenizer changes what stands for bytes")
            }
            Step::ByteLevel { .. } => Ok(()),
            Step::Metaspace { mark, .. } => {
                self.raise(*mark, self.of(' '));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Work;

    #[test]
    fn no_character_past_the_tables_changes() {
        for c in (FIRST_UNCHANGED..=0x10ffff).filter_map(char::from_u32) {
            let one = || std::iter::once(c);
            assert!(one().nfkd().map(|(c, _)| c).eq(one()) && c.to_lowercase().eq(one()), "{c:?}");
        }
        assert!(DECOMPOSED.iter().chain(COMPATIBLE.iter()).all(|(_, to)| !to.is_empty()));
    }

    #[test]
    fn every_character_is_charged_whole() {
        for normal in [Normal::Nfc, Normal::Nfd, Normal::Nfkc, Normal::Nfkd, Normal::Lowercase] {
            let mut charges = Charges::new(true);
            charges.normalize(&normal).unwrap();
            for c in (0..FIRST_UNCHANGED).filter_map(char::from_u32) {
                let text = c.to_string();
                let after = normal.apply(text.as_str().into(), &Work::new(64, None)).unwrap();
                let charged = charges.of_text(&after);
                assert!(charged >= text.len() as u64, "{}: {c:?} {charged}", normal.name());
            }
        }
    }
}
