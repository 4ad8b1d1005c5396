//! Splitting text by the regular expressions of a tokenizer.json, its work counted.
//!
//! Nearly every byte-level tokenizer ends its expression in `|\s+(?!\S)|\s+`: a run of white space
//! leaves its last character to the word that follows. The look-ahead is the only part that needs
//! backtracking, so it is taken off and computed here, and the rest runs on an automaton. Other
//! expressions with look-around run on a backtracking engine. What both do is charged to the text
//! (`Work`); running out is an error, never a silent difference.

use crate::automaton::Automaton;
use crate::backtrack::Backtracker;
use crate::work::Work;
use crate::Failure;

/// The tail that `SplitPattern` computes itself.
const SPACE_TAIL: &str = r"|\s+(?!\S)|\s+";

/// A match is the byte range of a piece; text between matches is a piece of its own.
pub enum SplitPattern {
    /// A plain string.
    Literal(String),
    /// No look-around: one automaton.
    Automaton(Box<Automaton>),
    /// An automaton over two patterns, the head and `\s+`; a match of the second needs the
    /// look-ahead.
    SpaceTail(Box<Automaton>),
    /// Whatever else: backtracking.
    Backtracking(Backtracker),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

impl SplitPattern {
    pub fn literal(text: &str) -> Self {
        SplitPattern::Literal(text.to_owned())
    }

    pub fn regex(source: &str) -> Result<Self, String> {
        let what = |e| format!("the regular expression can't be used: {e}");
        if let Some(head) = source.strip_suffix(SPACE_TAIL) {
            // The head must stand alone: an open group or class would change what the tail means,
            // and then the head doesn't compile. Of two patterns that match at one place the first
            // wins, as in an alternation.
            if let Some(automaton) = Automaton::new(&[head, r"\s+"]).map_err(what)? {
                return Ok(SplitPattern::SpaceTail(Box::new(automaton)));
            }
        }
        if let Some(automaton) = Automaton::new(&[source]).map_err(what)? {
            return Ok(SplitPattern::Automaton(Box::new(automaton)));
        }
        Ok(SplitPattern::Backtracking(Backtracker::new(source).map_err(what)?))
    }

    /// Calls `sink(start, end)` for each match, in order. `part` of the file pays for the search.
    pub fn for_each_match(
        &self,
        text: &str,
        work: &Work,
        part: &str,
        mut sink: impl FnMut(usize, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            SplitPattern::Literal(literal) => {
                if literal.is_empty() {
                    return Ok(());
                }
                work.spend(text.len() as u64, part)?;
                for (start, found) in text.match_indices(literal.as_str()) {
                    sink(start, start + found.len())?;
                }
                Ok(())
            }
            SplitPattern::Automaton(automaton) => automaton.for_each(text, work, part, |found| {
                sink(found.start, found.end)?;
                Ok(found.end)
            }),
            SplitPattern::SpaceTail(automaton) => automaton.for_each(text, work, part, |found| {
                let mut end = found.end;
                if found.pattern == 1 && end < text.len() {
                    // `\s+(?!\S)` leaves the last character of the run; if that was the only one,
                    // it doesn't match and plain `\s+` takes it.
                    let run = &text[found.start..end];
                    let last = run.char_indices().next_back().map_or(0, |(i, _)| i);
                    if last > 0 {
                        end = found.start + last;
                    }
                }
                sink(found.start, end)?;
                Ok(end)
            }),
            SplitPattern::Backtracking(backtracker) => backtracker.for_each(text, work, part, sink),
        }
    }

    /// Calls `sink(piece)` for each piece that splitting leaves, empty ones left out. With `invert`
    /// what lies between matches counts as the match.
    pub fn split<'t>(
        &self,
        text: &'t str,
        (behavior, invert): (Behavior, bool),
        work: &Work,
        part: &str,
        mut sink: impl FnMut(&'t str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut merger = Merger { behavior, pending: None };
        let mut each = |start: usize, end: usize, is_match: bool| {
            // Isolated pieces need no look at their neighbours, and are what long prompts meet.
            if behavior == Behavior::Isolated {
                return if start < end { sink(&text[start..end]) } else { Ok(()) };
            }
            match merger.next(start, end, is_match) {
                Some((start, end)) if start < end => sink(&text[start..end]),
                _ => Ok(()),
            }
        };
        let mut last = 0;
        self.for_each_match(text, work, part, |start, end| {
            if last < start {
                each(last, start, invert)?;
            }
            each(start, end, !invert)?;
            last = end;
            Ok(())
        })?;
        if last < text.len() {
            each(last, text.len(), invert)?;
        }
        match merger.pending {
            Some((start, end, _)) if start < end => sink(&text[start..end]),
            _ => Ok(()),
        }
    }
}

/// Joins spans (start, end, is a match) as they come, by the rules of Hugging Face `tokenizers`.
struct Merger {
    behavior: Behavior,
    /// The last span, still open to the next one.
    pending: Option<(usize, usize, bool)>,
}

impl Merger {
    /// Takes a span and gives back the piece that it ends.
    fn next(&mut self, start: usize, end: usize, is_match: bool) -> Option<(usize, usize)> {
        let Some((from, to, matched)) = self.pending else {
            if self.behavior != Behavior::Removed || !is_match {
                self.pending = Some((start, end, is_match));
            }
            return None;
        };
        let joined = match self.behavior {
            Behavior::Contiguous => is_match == matched,
            Behavior::MergedWithPrevious => is_match && !matched,
            // Of matches in a row the last one goes with the text after them.
            Behavior::MergedWithNext => matched && !is_match,
            Behavior::Removed | Behavior::Isolated => false,
        };
        if joined && self.behavior == Behavior::MergedWithNext {
            self.pending = None;
            return Some((from, end));
        }
        if joined {
            self.pending = Some((from, end, is_match));
            return None;
        }
        let dropped = self.behavior == Behavior::Removed && is_match;
        self.pending = if dropped { None } else { Some((start, end, is_match)) };
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pattern: &SplitPattern, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let work = Work::new(text.len(), None);
        pattern
            .split(text, (Behavior::Isolated, false), &work, "x", |p| {
                out.push(p.to_owned());
                Ok(())
            })
            .unwrap();
        out
    }

    #[test]
    fn the_space_tail_equals_the_look_ahead() {
        let head = r"'s|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
        let source = &format!("{head}{SPACE_TAIL}");
        let fast = SplitPattern::regex(source).unwrap();
        assert!(matches!(fast, SplitPattern::SpaceTail(..)));
        let slow = SplitPattern::Backtracking(Backtracker::new(source).unwrap());
        for text in [
            "",
            " ",
            "  ",
            "a  b",
            "a   ",
            "\u{3000}\u{3000}x",
            "a \t\n  b",
            "x\n\n  \n y",
            "  1234  ",
            "it's  ok",
            "\u{a0}\u{a0}\u{a0}.",
            "\r\n \r\n  a",
            "a\u{2028}\u{2028}b",
        ] {
            assert_eq!(pieces(&fast, text), pieces(&slow, text), "{text:?}");
        }
    }
}
