//! Why a constraint is refused, from what the library says.

use crate::{Failure, CANCELLED, EXHAUSTED, INVALID};

/// As `quire::grammar::Fault` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Malformed = 1,
    Unsupported = 2,
    TooLarge = 3,
    TooDeep = 4,
    TooSlow = 5,
    MatchesNothing = 6,
    MissingToken = 7,
    Cancelled = 8,
}

/// The library's texts are cut here: some repeat what the client sent.
const MAX_MESSAGE_BYTES: usize = 600;
const MAX_PATH_BYTES: usize = 200;
/// A failure's code has its fault above these bits.
pub const FAULT_SHIFT: i32 = 8;

#[derive(Clone, Debug)]
pub struct Refusal {
    pub fault: Fault,
    pub message: String,
}

impl Refusal {
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Refusal { fault, message: shortened(&message.into(), MAX_MESSAGE_BYTES) }
    }

    /// Of a place inside the constraint.
    pub fn at(path: &str, fault: Fault, message: impl AsRef<str>) -> Self {
        let path = if path.is_empty() { "/".to_owned() } else { shortened(path, MAX_PATH_BYTES) };
        Self::new(fault, format!("constraint: {path}: {}", message.as_ref()))
    }

    pub fn of(fault: Fault, message: impl AsRef<str>) -> Self {
        Self::new(fault, format!("constraint: {}", message.as_ref()))
    }

    /// From an error of the library while it compiles.
    pub fn from_library(said: &str) -> Self {
        let line = essence(said);
        if line.starts_with("panic") {
            return Self::of(Fault::Unsupported, "the grammar library cannot compile this");
        }
        Self::of(fault_of(&line), line)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.fault {
            Fault::TooLarge | Fault::TooDeep | Fault::TooSlow => EXHAUSTED,
            Fault::Cancelled => CANCELLED,
            _ => INVALID,
        };
        Failure { code: code | (refusal.fault as i32) << FAULT_SHIFT, message: refusal.message }
    }
}

/// Long texts lose their middle.
fn shortened(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let (mut head, mut tail) = (max / 2, text.len() - max / 2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}…{}", &text[..head], &text[tail..])
}

/// Without the library's own state, stack traces and copies of the source; the reason of an
/// expression's error stands on the last line.
fn essence(said: &str) -> String {
    let end =
        ["<state>", "<non-verbose/>", "<backtrace>"].iter().filter_map(|mark| said.find(mark));
    let said = said[..end.min().unwrap_or(said.len())].trim();
    let first = said.lines().next().unwrap_or_default();
    let reason = said.lines().skip(1).find(|line| line.starts_with("error: "));
    let copied = |line: &&str| line.contains(" | ") || line.trim_start().starts_with('^');
    let rest = said.lines().skip(1).take_while(|line| !copied(line) && reason.is_none());
    let lines = std::iter::once(first).chain(rest).chain(reason).map(str::trim);
    lines.collect::<Vec<_>>().join(" ")
}

/// The first that the text has decides.
const TEXTS: &[(&str, Fault)] = &[
    ("Unsatisfiable schema", Fault::MatchesNothing),
    ("unsatisfiable", Fault::MatchesNothing),
    ("schema is false", Fault::MatchesNothing),
    ("NoExtensionBias", Fault::MissingToken),
    ("initial lexer configuration", Fault::TooSlow),
    ("lexer precomputation failed", Fault::TooSlow),
    ("Too many items", Fault::TooSlow),
    ("too many expressions", Fault::TooSlow),
    ("items; max is", Fault::TooSlow),
    ("fuel", Fault::TooSlow),
    ("LexerTooComplex", Fault::TooSlow),
    ("ParserTooComplex", Fault::TooSlow),
    ("grammar size", Fault::TooLarge),
    ("too deeply nested", Fault::TooDeep),
    ("unknown special token", Fault::MissingToken),
    ("Token range end", Fault::MissingToken),
    ("too large", Fault::TooLarge),
    ("too big", Fault::TooLarge),
    ("too many states", Fault::TooLarge),
    ("too many", Fault::TooLarge),
    ("stack level exceeded", Fault::TooDeep),
    ("maximum number of nested", Fault::TooDeep),
    ("recursion limit", Fault::TooDeep),
    ("Unimplemented keys", Fault::Unsupported),
    ("Unknown format", Fault::Unsupported),
    ("not supported", Fault::Unsupported),
    ("only supported", Fault::Unsupported),
    ("nsupported", Fault::Unsupported),
    ("look-around", Fault::Unsupported),
    ("are not disjoint", Fault::Unsupported),
    ("can't determine", Fault::Unsupported),
];

fn fault_of(line: &str) -> Fault {
    TEXTS.iter().find(|(text, _)| line.contains(text)).map_or(Fault::Malformed, |(_, fault)| *fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_texts_become_one_short_line_with_a_fault() {
        let refusal = Refusal::from_library("Unknown format: byte\n<non-verbose/>");
        assert_eq!(refusal.message, "constraint: Unknown format: byte");
        assert_eq!(refusal.fault, Fault::Unsupported);
        let panic = Refusal::from_library("panic: boom\n<backtrace>\nx\n</backtrace>");
        assert!(!panic.message.contains("boom"));
        let long = Refusal::of(Fault::Malformed, "é".repeat(1000));
        assert!(long.message.len() <= MAX_MESSAGE_BYTES + 3);
    }
}
