//! From text to ids without the library's string bookkeeping: added tokens, normalizer, splitting,
//! words.
//!
//! The library keeps 16 bytes of alignment per byte of text through every step, for offsets that
//! no caller here needs. This pipeline walks borrowed slices instead, and each step is the same
//! rule as the library's; `reference.rs` offers the library's own path beside it, and tests hold
//! the two together.

use std::borrow::Cow;
use std::sync::LazyLock;

use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder, MatchKind};
use tokenizers::AddedToken;

use crate::normal::Normal;
use crate::pattern::{Behavior, SplitPattern};
use crate::words::{Model, Words};
use crate::work::Work;
use crate::Failure;

/// A step from normalized text to pieces.
pub enum Step {
    Split { pattern: SplitPattern, behavior: Behavior, invert: bool },
    ByteLevel { add_prefix_space: bool, split: Option<SplitPattern> },
    Metaspace { mark: char, prepend: Prepend, split: bool },
    Digits { individual: bool },
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Step::Split { .. } => "pre_tokenizer Split",
            Step::ByteLevel { .. } => "pre_tokenizer ByteLevel",
            Step::Metaspace { .. } => "pre_tokenizer Metaspace",
            Step::Digits { .. } => "pre_tokenizer Digits",
        }
    }
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
    /// After a match the search goes back by less than this many bytes.
    longest: usize,
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
        let longest = tokens.iter().map(|(_, _, text)| text.len()).max().unwrap_or(0);
        let tokens = tokens.into_iter().map(|(id, token, _)| (id, token)).collect();
        Ok(AddedMatcher { automaton, tokens, longest })
    }

    /// Calls `sink(id, slice)` for added tokens and `sink(None, slice)` for what lies between.
    fn for_each<'t>(
        &self,
        text: &'t str,
        work: &Work,
        mut sink: impl FnMut(Option<u32>, &'t str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        const PART: &str = "added_tokens";
        let mut last = 0;
        if let Some(automaton) = &self.automaton {
            work.spend(text.len() as u64, PART)?;
            // White space up to here has been stepped over once, by the token before.
            let mut spaces_end = 0;
            for found in automaton.leftmost_find_iter(text) {
                work.spend(self.longest as u64, PART)?;
                let (mut start, mut stop) = (found.start(), found.end());
                let (id, token) = &self.tokens[found.value() as usize];
                if token.single_word
                    && (ends_with_word(&text[..start]) || starts_with_word(&text[stop..]))
                {
                    continue;
                }
                if token.lstrip {
                    let from = last.min(start);
                    start = last.max(from + text[from..start].trim_end().len());
                }
                if token.rstrip {
                    if stop >= spaces_end {
                        spaces_end = text.len() - text[stop..].trim_start().len();
                    }
                    stop = spaces_end;
                }
                if last < start {
                    sink(None, &text[last..start])?;
                }
                // Stripping to the right may have swallowed the start of this match, or all of it:
                // the library drops what is empty.
                if start < stop {
                    sink(Some(*id), &text[start..stop])?;
                }
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
    /// The ids of `text`, in which `mark` is no text: it keeps added tokens from being found where it
    /// stands.
    pub fn encode(
        &self,
        text: &str,
        model: &Model,
        mark: Option<char>,
        work: &Work,
    ) -> Result<Vec<u32>, Failure> {
        let mut words = Words::new(model, text.len() / 4 + 4);
        self.raw_added.for_each(text, work, |added, slice| {
            if let Some(id) = added {
                words.ids.push(id);
                return Ok(());
            }
            let at_start = slice.as_ptr() == text.as_ptr();
            let normal: &str = &self.normalize(slice, work)?;
            self.normalized_added.for_each(normal, work, |added, piece| {
                if let Some(id) = added {
                    words.ids.push(id);
                    return Ok(());
                }
                let first = at_start && piece.as_ptr() == normal.as_ptr();
                match mark {
                    Some(mark) if piece.contains(mark) => {
                        self.split(0, &piece.replace(mark, ""), first, &mut words, work)
                    }
                    _ => self.split(0, piece, first, &mut words, work),
                }
            })
        })?;
        Ok(words.ids)
    }

    pub fn normalize<'t>(&self, text: &'t str, work: &Work) -> Result<Cow<'t, str>, Failure> {
        let mut normal = Cow::Borrowed(text);
        for step in &self.normals {
            normal = step.apply(normal, work)?;
        }
        Ok(normal)
    }

    fn split(
        &self,
        step: usize,
        text: &str,
        first: bool,
        words: &mut Words,
        work: &Work,
    ) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(rule) = self.steps.get(step) else {
            return self.cut(text, words, work);
        };
        let next = step + 1;
        work.spend(text.len() as u64, rule.name())?;
        match rule {
            Step::Split { pattern, behavior, invert } => {
                pattern.split(text, (*behavior, *invert), work, rule.name(), |piece| {
                    let first = first && piece.as_ptr() == text.as_ptr();
                    self.split(next, piece, first, words, work)
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
                    work.grow(letters.len() - piece.len(), rule.name())?;
                    let first = first && piece.as_ptr() == spaced.as_ptr();
                    self.split(next, &letters, first, words, work)
                };
                match split {
                    Some(pattern) => {
                        pattern.split(spaced, (Behavior::Isolated, false), work, rule.name(), each)
                    }
                    None => each(spaced),
                }
            }
            Step::Metaspace { mark, prepend, split } => {
                let mut marked = text.replace(' ', mark.encode_utf8(&mut [0; 4]));
                let wanted = *prepend == Prepend::Always || (*prepend == Prepend::First && first);
                if wanted && !marked.starts_with(*mark) {
                    marked.insert(0, *mark);
                }
                work.grow(marked.len().saturating_sub(text.len()), rule.name())?;
                if !split {
                    return self.split(next, &marked, first, words, work);
                }
                let pattern = SplitPattern::Literal(mark.to_string());
                let behavior = (Behavior::MergedWithNext, false);
                pattern.split(&marked, behavior, work, rule.name(), |piece| {
                    let first = first && piece.as_ptr() == marked.as_ptr();
                    self.split(next, piece, first, words, work)
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
                    self.split(next, &rest[..end], first, words, work)?;
                    rest = &rest[end..];
                }
                Ok(())
            }
        }
    }

    /// Hands a text to the model, cut at word marks where that changes nothing: words are then
    /// short, and ones seen before.
    fn cut(&self, text: &str, words: &mut Words, work: &Work) -> Result<(), Failure> {
        work.spend(text.len() as u64, "model")?;
        let Some((mark, spanned)) = &self.cut_mark else {
            return words.add(text, work);
        };
        let mut from = 0;
        let mut previous = *mark;
        for (at, c) in text.char_indices() {
            if c == *mark && previous != *mark && !spanned.contains(&previous) {
                words.add(&text[from..at], work)?;
                from = at;
            }
            previous = c;
        }
        words.add(&text[from..], work)
    }
}
