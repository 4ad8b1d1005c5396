//! From text to ids without the library's string bookkeeping: added tokens, normalizer, splitting,
//! words.
//!
//! The library keeps 16 bytes of alignment per byte of text through every step, for offsets that
//! nobody here asks for. This pipeline walks borrowed slices instead, and each step is the same
//! rule as the library's; `reference.rs` offers the library's own path beside it, and tests hold
//! the two together.

use std::borrow::Cow;
use std::sync::LazyLock;

use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder, MatchKind};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::{AddedToken, NormalizedString, Normalizer};
use unicode_normalization_alignments::UnicodeNormalization;

use crate::pattern::{Behavior, SplitPattern};
use crate::words::{Model, Words};

/// A step from raw to normalized text.
pub enum Normal {
    Replace(SplitPattern, String),
    Prepend(String),
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Library(Box<NormalizerWrapper>),
}

impl Normal {
    fn apply<'t>(&self, text: Cow<'t, str>) -> Result<Cow<'t, str>, String> {
        Ok(match self {
            Normal::Replace(pattern, content) => {
                let mut out = String::with_capacity(text.len() + text.len() / 4);
                let mut last = 0;
                pattern.for_each_match(&text, |start, end| {
                    out.push_str(&text[last..start]);
                    out.push_str(content);
                    last = end;
                    Ok(())
                })?;
                if last == 0 && out.is_empty() {
                    return Ok(text);
                }
                out.push_str(&text[last..]);
                Cow::Owned(out)
            }
            Normal::Prepend(prefix) if !text.is_empty() => Cow::Owned(format!("{prefix}{text}")),
            Normal::Prepend(_) => text,
            _ if text.is_ascii() && self.keeps_ascii() => text,
            Normal::Nfc => Cow::Owned(text.nfc().map(|(c, _)| c).collect()),
            Normal::Nfd => Cow::Owned(text.nfd().map(|(c, _)| c).collect()),
            Normal::Nfkc => Cow::Owned(text.nfkc().map(|(c, _)| c).collect()),
            Normal::Nfkd => Cow::Owned(text.nfkd().map(|(c, _)| c).collect()),
            Normal::Lowercase => Cow::Owned(text.chars().flat_map(char::to_lowercase).collect()),
            Normal::Library(normalizer) => {
                let mut whole = NormalizedString::from(text.as_ref());
                normalizer.normalize(&mut whole).map_err(|e| e.to_string())?;
                Cow::Owned(whole.get().to_owned())
            }
        })
    }

    fn keeps_ascii(&self) -> bool {
        matches!(self, Normal::Nfc | Normal::Nfd | Normal::Nfkc | Normal::Nfkd)
    }
}

/// A step from normalized text to pieces.
pub enum Step {
    Split { pattern: SplitPattern, behavior: Behavior, invert: bool },
    ByteLevel { add_prefix_space: bool, split: Option<SplitPattern> },
    Metaspace { mark: char, prepend: Prepend, split: bool },
    Digits { individual: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prepend {
    Always,
    First,
    Never,
}

/// Finds added tokens in text, leftmost-longest.
pub struct AddedMatcher {
    automaton: Option<DoubleArrayAhoCorasick<u32>>,
    tokens: Vec<(u32, AddedToken)>,
}

impl AddedMatcher {
    /// `tokens` are (id, token, the text to look for).
    pub fn new(tokens: Vec<(u32, AddedToken, String)>) -> Result<Self, String> {
        let automaton = if tokens.is_empty() {
            None
        } else {
            let patterns = tokens.iter().enumerate().map(|(i, t)| (t.2.as_str(), i as u32));
            Some(
                DoubleArrayAhoCorasickBuilder::new()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build_with_values(patterns)
                    .map_err(|e| format!("added_tokens: {e}"))?,
            )
        };
        let tokens = tokens.into_iter().map(|(id, token, _)| (id, token)).collect();
        Ok(AddedMatcher { automaton, tokens })
    }

    /// Calls `sink(id, slice)` for added tokens and `sink(None, slice)` for what lies between.
    fn for_each<'t>(
        &self,
        text: &'t str,
        mut sink: impl FnMut(Option<u32>, &'t str) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut last = 0;
        if let Some(automaton) = &self.automaton {
            for found in automaton.leftmost_find_iter(text) {
                let (mut start, mut stop) = (found.start(), found.end());
                let (id, token) = &self.tokens[found.value() as usize];
                if token.single_word
                    && (ends_with_word(&text[..start]) || starts_with_word(&text[stop..]))
                {
                    continue;
                }
                if token.lstrip {
                    start = text[last.min(start)..start].trim_end().len() + last.min(start);
                }
                if token.rstrip {
                    stop = text.len() - text[stop..].trim_start().len();
                }
                if last < start {
                    sink(None, &text[last..start])?;
                }
                // Stripping to the right may have swallowed the start of this match.
                sink(Some(*id), &text[start.min(stop)..stop])?;
                last = stop;
            }
        }
        if last < text.len() {
            sink(None, &text[last..])?;
        }
        Ok(())
    }
}

static WORD: LazyLock<regex::Regex> =
    LazyLock::new(|| regex::Regex::new(r"^\w").expect("a constant expression"));

fn is_word(c: char) -> bool {
    // The library asks the expression \w, whose class holds marks and joiners besides letters.
    if c.is_ascii() {
        return c == '_' || c.is_ascii_alphanumeric();
    }
    WORD.is_match(c.encode_utf8(&mut [0; 4]))
}

fn ends_with_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

fn starts_with_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word)
}

/// The letter that stands for each byte in byte-level vocabularies (GPT-2's table).
pub fn byte_letters() -> [char; 256] {
    let mut letters = ['\0'; 256];
    let mut next = 256u32;
    for byte in 0..=255u8 {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        letters[byte as usize] = if printable {
            byte as char
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or('\0')
        };
    }
    letters
}

pub struct Pipeline {
    pub raw_added: AddedMatcher,
    pub normals: Vec<Normal>,
    pub normalized_added: AddedMatcher,
    pub steps: Vec<Step>,
    pub letters: [char; 256],
    /// Set if no token spans a place where a mark follows another character than these: then long
    /// texts may be cut there.
    pub cut_mark: Option<(char, Vec<char>)>,
}

impl Pipeline {
    pub fn encode(&self, text: &str, model: &Model) -> Result<Vec<u32>, String> {
        let mut words = Words::new(model, text.len() / 4 + 4);
        self.raw_added.for_each(text, |added, slice| {
            if let Some(id) = added {
                words.ids.push(id);
                return Ok(());
            }
            let at_start = slice.as_ptr() == text.as_ptr();
            let mut normal = Cow::Borrowed(slice);
            for step in &self.normals {
                normal = step.apply(normal)?;
            }
            let normal: &str = &normal;
            self.normalized_added.for_each(normal, |added, piece| {
                if let Some(id) = added {
                    words.ids.push(id);
                    return Ok(());
                }
                let first = at_start && piece.as_ptr() == normal.as_ptr();
                self.split(0, piece, first, &mut words)
            })
        })?;
        Ok(words.ids)
    }

    fn split(&self, step: usize, text: &str, first: bool, words: &mut Words) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(rule) = self.steps.get(step) else {
            return self.cut(text, words);
        };
        let next = step + 1;
        match rule {
            Step::Split { pattern, behavior, invert } => {
                pattern.split(text, *behavior, *invert, |piece| {
                    let first = first && piece.as_ptr() == text.as_ptr();
                    self.split(next, piece, first, words)
                })
            }
            Step::ByteLevel { add_prefix_space, split } => {
                let spaced = if *add_prefix_space && !text.starts_with(' ') {
                    Cow::Owned(format!(" {text}"))
                } else {
                    Cow::Borrowed(text)
                };
                let spaced: &str = &spaced;
                let mut letters = String::new();
                let mut each = |piece: &str| {
                    letters.clear();
                    letters.extend(piece.bytes().map(|b| self.letters[b as usize]));
                    let first = first && piece.as_ptr() == spaced.as_ptr();
                    self.split(next, &letters, first, words)
                };
                match split {
                    Some(pattern) => pattern.split(spaced, Behavior::Isolated, false, each),
                    None => each(spaced),
                }
            }
            Step::Metaspace { mark, prepend, split } => {
                let mut marked = text.replace(' ', mark.encode_utf8(&mut [0; 4]));
                let wanted = *prepend == Prepend::Always || (*prepend == Prepend::First && first);
                if wanted && !marked.starts_with(*mark) {
                    marked.insert(0, *mark);
                }
                if !split {
                    return self.split(next, &marked, first, words);
                }
                let pattern = SplitPattern::Literal(mark.to_string());
                pattern.split(&marked, Behavior::MergedWithNext, false, |piece| {
                    let first = first && piece.as_ptr() == marked.as_ptr();
                    self.split(next, piece, first, words)
                })
            }
            Step::Digits { individual } => {
                let mut rest = text;
                while let Some(c) = rest.chars().next() {
                    let numeric = c.is_numeric();
                    let end = if numeric && *individual {
                        c.len_utf8()
                    } else {
                        rest.find(|c: char| c.is_numeric() != numeric).unwrap_or(rest.len())
                    };
                    let first = first && rest.as_ptr() == text.as_ptr();
                    self.split(next, &rest[..end], first, words)?;
                    rest = &rest[end..];
                }
                Ok(())
            }
        }
    }

    /// Hands a text to the model, cut at word marks where that changes nothing: words are then
    /// short, and ones seen before.
    fn cut(&self, text: &str, words: &mut Words) -> Result<(), String> {
        let Some((mark, spanned)) = &self.cut_mark else {
            return words.add(text);
        };
        let mut from = 0;
        let mut previous = *mark;
        for (at, c) in text.char_indices() {
            if c == *mark && previous != *mark && !spanned.contains(&previous) {
                words.add(&text[from..at])?;
                from = at;
            }
            previous = c;
        }
        words.add(&text[from..])
    }
}
