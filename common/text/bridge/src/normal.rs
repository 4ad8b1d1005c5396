//! From raw to normalized text, each step bounded in what it adds.

use std::borrow::Cow;

use unicode_normalization_alignments::char::is_combining_mark;
use unicode_normalization_alignments::UnicodeNormalization;

use crate::pattern::SplitPattern;
use crate::work::Work;
use crate::Failure;

/// A step from raw to normalized text.
pub enum Normal {
    Replace(SplitPattern, String),
    Prepend(String),
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Strip { left: bool, right: bool },
    StripAccents,
}

impl Normal {
    pub fn name(&self) -> &'static str {
        match self {
            Normal::Replace(..) => "normalizer Replace",
            Normal::Prepend(_) => "normalizer Prepend",
            Normal::Nfc => "normalizer NFC",
            Normal::Nfd => "normalizer NFD",
            Normal::Nfkc => "normalizer NFKC",
            Normal::Nfkd => "normalizer NFKD",
            Normal::Lowercase => "normalizer Lowercase",
            Normal::Strip { .. } => "normalizer Strip",
            Normal::StripAccents => "normalizer StripAccents",
        }
    }

    pub fn apply<'t>(&self, text: Cow<'t, str>, work: &Work) -> Result<Cow<'t, str>, Failure> {
        let name = self.name();
        work.spend(text.len() as u64, name)?;
        let before = text.len();
        let after = match self {
            Normal::Replace(pattern, content) => return replace(pattern, content, text, work),
            Normal::Prepend(_) if text.is_empty() => return Ok(text),
            Normal::Prepend(prefix) => {
                work.grow(prefix.len(), name)?;
                return Ok(Cow::Owned(format!("{prefix}{text}")));
            }
            _ if text.is_ascii() && self.keeps_ascii() => return Ok(text),
            // A character becomes 18 at most.
            Normal::Nfc => text.nfc().map(|(c, _)| c).collect::<String>(),
            Normal::Nfd => text.nfd().map(|(c, _)| c).collect(),
            Normal::Nfkc => text.nfkc().map(|(c, _)| c).collect(),
            Normal::Nfkd => text.nfkd().map(|(c, _)| c).collect(),
            Normal::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Normal::Strip { left, right } => {
                let kept = if *left { text.trim_start() } else { &text };
                let kept = if *right { kept.trim_end() } else { kept };
                if kept.len() == text.len() {
                    return Ok(text);
                }
                kept.to_owned()
            }
            Normal::StripAccents => text.chars().filter(|c| !is_combining_mark(*c)).collect(),
        };
        work.grow(after.len().saturating_sub(before), name)?;
        work.spend(after.len() as u64, name)?;
        Ok(Cow::Owned(after))
    }

    fn keeps_ascii(&self) -> bool {
        matches!(
            self,
            Normal::Nfc | Normal::Nfd | Normal::Nfkc | Normal::Nfkd | Normal::StripAccents
        )
    }
}

fn replace<'t>(
    pattern: &SplitPattern,
    content: &str,
    text: Cow<'t, str>,
    work: &Work,
) -> Result<Cow<'t, str>, Failure> {
    const PART: &str = "normalizer Replace";
    let limit = text.len().saturating_add(work.growth_left());
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let (mut last, mut found) = (0, false);
    pattern.for_each_match(&text, work, PART, |start, end| {
        out.push_str(&text[last..start]);
        out.push_str(content);
        (last, found) = (end, true);
        // What is left of the text can't make up for what is over: it only adds to it.
        if out.len() <= limit {
            return Ok(());
        }
        work.grow(out.len(), PART)
    })?;
    if !found {
        return Ok(text);
    }
    out.push_str(&text[last..]);
    work.grow(out.len().saturating_sub(text.len()), PART)?;
    work.spend(out.len() as u64, PART)?;
    Ok(Cow::Owned(out))
}
