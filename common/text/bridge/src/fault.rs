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
/// A failure's code has its fault above these bits.
pub const FAULT_SHIFT: i32 = 8;

#[derive(Clone, Debug)]
pub struct Refusal {
    pub fault: Fault,
    pub message: String,
}

impl Refusal {
    pub fn new(fault: Fault, message: impl Into<String>) -> Self {
        Refusal { fault, message: shortened(message.into()) }
    }

    /// Of a place inside the constraint.
    pub fn at(path: &str, fault: Fault, message: impl AsRef<str>) -> Self {
        let path = if path.is_empty() { "/" } else { path };
        Self::new(fault, format!("constraint: {path}: {}", message.as_ref()))
    }

    pub fn of(fault: Fault, message: impl AsRef<str>) -> Self {
        Self::new(fault, format!("constraint: {}", message.as_ref()))
    }

    /// From an error of the library while it compiles.
    pub fn from_library(said: &str) -> Self {
        let line = first_part(said);
        if line.starts_with("panic") {
            return Self::of(Fault::Unsupported, "the grammar library cannot compile this");
        }
        Self::of(fault_of(line), line)
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

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Without the library's own state and stack traces.
fn first_part(said: &str) -> &str {
    let end = ["\n<state>", "\n<non-verbose/>", "<non-verbose/>", "\n<backtrace>"]
        .iter()
        .filter_map(|mark| said.find(mark))
        .min();
    said[..end.unwrap_or(said.len())].trim()
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
    ("fuel", Fault::TooSlow),
    ("LexerTooComplex", Fault::TooSlow),
    ("ParserTooComplex", Fault::TooSlow),
    ("grammar size", Fault::TooLarge),
    ("too large", Fault::TooLarge),
    ("too big", Fault::TooLarge),
    ("too many states", Fault::TooLarge),
    ("too many", Fault::TooLarge),
    ("stack level exceeded", Fault::TooDeep),
    ("maximum number of nested", Fault::TooDeep),
    ("recursion limit", Fault::TooDeep),
    ("unknown special token", Fault::MissingToken),
    ("Token range end", Fault::MissingToken),
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
