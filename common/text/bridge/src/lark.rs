//! Lark and expressions as they come from clients: bounded before the library reads them, which
//! parses and compiles by recursion. Nothing here recurses.

use std::collections::HashMap;

use serde_json::Value as Json;

use crate::fault::{Fault, Refusal};
use crate::levels::{most_levels, Definition, MAX_LEVELS};
use crate::schema::{prepare, Spacing};

/// Classes of characters in one expression: the library spreads out each, kilobytes of ranges.
const MAX_CLASSES: usize = 2048;
/// Groups in groups of one expression.
const MAX_GROUPS: usize = 100;
/// Brackets in brackets of Lark, as the library has it.
const MAX_BRACKETS: usize = 28;
/// Items of `{m,n}`.
const MAX_REPEATS: u64 = 1 << 16;

/// A text as a string of Lark, which has JSON's escapes.
pub fn quoted(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    quoted.replace('\u{7f}', "\\u007f").replace("\\b", "\\u0008").replace("\\f", "\\u000c")
}

/// Holds an expression's classes, groups and repetitions to their limits.
pub fn bounded_expression(expression: &str) -> Result<(), Refusal> {
    let (mut classes, mut depth, mut in_class, mut escaped) = (0, 0usize, 0usize, false);
    let bytes = expression.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        if escaped {
            escaped = false;
            classes += usize::from(b"wWdDsSpPbB".contains(byte));
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'[' => {
                in_class += 1;
                classes += 1;
            }
            b']' => in_class = in_class.saturating_sub(1),
            _ if in_class > 0 => {}
            b'.' => classes += 1,
            b'(' => {
                depth += 1;
                if depth > MAX_GROUPS {
                    let message = format!("the expression nests deeper than {MAX_GROUPS} groups");
                    return Err(Refusal::of(Fault::TooDeep, message));
                }
            }
            b')' => depth = depth.saturating_sub(1),
            b'{' => repeats(&bytes[at + 1..])?,
            _ => {}
        }
        if in_class > MAX_GROUPS {
            let message = format!("the expression nests deeper than {MAX_GROUPS} classes");
            return Err(Refusal::of(Fault::TooDeep, message));
        }
    }
    if classes > MAX_CLASSES {
        let message =
            format!("the expression has {classes} classes of characters; at most {MAX_CLASSES}");
        return Err(Refusal::of(Fault::TooLarge, message));
    }
    Ok(())
}

/// The numbers behind a `{`.
fn repeats(rest: &[u8]) -> Result<(), Refusal> {
    let inner = rest.split(|byte| *byte == b'}').next().unwrap_or_default();
    for number in inner.split(|byte| *byte == b',') {
        let number = String::from_utf8_lossy(number);
        let number = number.trim();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            let many = number.parse::<u64>().map_or(true, |many| many > MAX_REPEATS);
            if many {
                let message = format!("repeats more than {MAX_REPEATS} times; repeat less");
                return Err(Refusal::of(Fault::TooLarge, message));
            }
        }
    }
    Ok(())
}

/// An expression that matches the whole text.
pub fn regex(source: &str, _max_depth: usize) -> Result<String, Refusal> {
    bounded_expression(source)?;
    if source.is_empty() {
        return Err(Refusal::of(
            Fault::Malformed,
            "the expression is empty; write one like [0-9]+",
        ));
    }
    let mut inner = source.strip_prefix('^').unwrap_or(source);
    if let Some(rest) = inner.strip_suffix('$') {
        let slashes = rest.bytes().rev().take_while(|byte| *byte == b'\\').count();
        inner = if slashes % 2 == 0 { rest } else { inner };
    }
    let inner = llguidance::regex_to_lark(inner, "");
    let inner = if inner.is_empty() { "(?:)".to_owned() } else { inner };
    Ok(format!("start: TEXT\nTEXT: /{inner}/"))
}

/// One of the texts of a JSON list.
pub fn choice(source: &str) -> Result<String, Refusal> {
    let wrong = |message: &str| Refusal::of(Fault::Malformed, message);
    let texts: Vec<String> = serde_json::from_str(source)
        .map_err(|_| wrong("a choice is a JSON list of texts, like [\"yes\", \"no\"]"))?;
    if texts.is_empty() {
        return Err(Refusal::of(
            Fault::MatchesNothing,
            "the list of choices is empty; name at least one text",
        ));
    }
    let mut lark = String::from("start: ");
    lark.push_str(if texts.iter().any(String::is_empty) { "TEXT |\n" } else { "TEXT\n" });
    let texts: Vec<String> =
        texts.iter().filter(|text| !text.is_empty()).map(|text| quoted(text)).collect();
    if texts.is_empty() {
        return Ok("start: \"\"".to_owned());
    }
    lark.push_str("TEXT: ");
    lark.push_str(&texts.join("\n  | "));
    Ok(lark)
}

/// What `checked` keeps of a source while it reads it.
struct Scan<'s> {
    source: &'s str,
    at: usize,
    out: String,
    depth: usize,
    max_depth: usize,
    own: bool,
    line_start: bool,
    definition: usize,
    definitions: Vec<Definition>,
    known: HashMap<&'s str, usize>,
}

/// Lark from a client: its nesting and the depth of its names are bounded, schemas inside it are
/// checked like any other.
pub fn checked(source: &str, max_depth: usize) -> Result<String, Refusal> {
    scanned(source, max_depth, false)
}

/// The same of Lark whose schemas are checked already.
pub fn bounded_lark(source: &str, max_depth: usize) -> Result<(), Refusal> {
    scanned(source, max_depth, true).map(drop)
}

fn scanned(source: &str, max_depth: usize, own: bool) -> Result<String, Refusal> {
    let scan = Scan {
        source,
        at: 0,
        out: String::with_capacity(source.len() + 64),
        depth: 0,
        max_depth,
        own,
        line_start: true,
        definition: 0,
        definitions: vec![Definition::default()],
        known: HashMap::new(),
    };
    scan.run()
}

impl<'s> Scan<'s> {
    fn run(mut self) -> Result<String, Refusal> {
        while self.at < self.source.len() {
            self.step()?;
        }
        let levels = most_levels(&self.definitions);
        if levels > MAX_LEVELS {
            let message = format!(
                "rules name each other {levels} levels deep; at most {MAX_LEVELS} are followed"
            );
            return Err(Refusal::of(Fault::TooDeep, message));
        }
        Ok(self.out)
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// Copies `size` bytes.
    fn copy(&mut self, size: usize) -> &'s str {
        let text = &self.source[self.at..self.at + size];
        self.out.push_str(text);
        self.at += size;
        text
    }

    fn step(&mut self) -> Result<(), Refusal> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(()) };
        if first == '#' || rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            self.copy(end);
            return Ok(());
        }
        let begins_line = self.line_start;
        self.line_start = first == '\n' || (begins_line && (first == ' ' || first == '\t'));
        match first {
            '"' => {
                self.copy(literal(rest, '"'));
            }
            '/' => {
                let text = self.copy(literal(rest, '/'));
                bounded_expression(text.trim_matches('/'))?;
            }
            '<' => {
                let end = rest.find(|c: char| c == '>' || c.is_whitespace()).unwrap_or(0);
                self.copy(end + 1);
            }
            '(' | '[' | '{' => {
                self.copy(1);
                if first == '{' {
                    repeats(self.rest().as_bytes())?;
                }
                self.deeper()?;
            }
            ')' | ']' | '}' => {
                self.copy(1);
                self.depth = self.depth.saturating_sub(1);
            }
            '%' => self.directive(rest)?,
            '_' | 'a'..='z' | 'A'..='Z' | '!' | '?' => self.name(rest, begins_line)?,
            other => {
                self.copy(other.len_utf8());
            }
        }
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), Refusal> {
        self.depth += 1;
        let deepest = &mut self.definitions[self.definition].depth;
        *deepest = self.depth.max(*deepest);
        let most = if self.own { self.max_depth } else { self.max_depth.min(MAX_BRACKETS) };
        if self.depth > most {
            let message = format!("nests deeper than {most} brackets; nest less");
            return Err(Refusal::of(Fault::TooDeep, message));
        }
        Ok(())
    }

    /// A rule's or terminal's name: its definition at the beginning of a line, else a use of it.
    fn name(&mut self, rest: &'s str, begins_line: bool) -> Result<(), Refusal> {
        let plain = rest.trim_start_matches(['!', '?']);
        let marks = rest.len() - plain.len();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let size = plain.find(|c| !part(c)).unwrap_or(plain.len());
        self.copy(marks + size);
        let name = &plain[..size];
        if name.is_empty() {
            return Ok(());
        }
        let next = self.definitions.len();
        let index = *self.known.entry(name).or_insert(next);
        if index == next {
            self.definitions.push(Definition::default());
        }
        if begins_line && self.depth == 0 {
            self.definition = index;
        } else {
            self.definitions[self.definition].names.push((self.depth, index));
        }
        Ok(())
    }

    fn directive(&mut self, rest: &'s str) -> Result<(), Refusal> {
        let word =
            rest[1..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest, |end| &rest[..=end]);
        self.copy(word.len());
        match word {
            "%lark" => Err(Refusal::of(
                Fault::Unsupported,
                "%lark inside Lark is not supported; write its rules beside the others",
            )),
            "%json" | "%llguidance" | "%regex" => {
                let rest = self.rest();
                let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Json>();
                let value = match values.next() {
                    Some(Ok(value)) => value,
                    Some(Err(error)) => {
                        let message = format!("{word}: no JSON: {error}");
                        return Err(Refusal::of(Fault::Malformed, message));
                    }
                    None => {
                        return Err(Refusal::of(Fault::Malformed, format!("{word} needs JSON")))
                    }
                };
                let size = values.byte_offset();
                if word == "%json" && !self.own {
                    let schema = prepare(value, &Spacing::default(), self.max_depth)?;
                    self.out.push_str(&schema.to_string());
                    self.at += size;
                } else {
                    self.copy(size);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The size of a literal that begins and ends with `mark`; to the end of the source if it does not
/// end.
fn literal(rest: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lark_is_copied_whole_but_for_its_schemas() {
        let source = "// x\nstart: a \"(\\\"\" /[(/]/ b # (\na: \"x\"{2,3} <[1-2]>\nb: /\\/(/\n";
        assert_eq!(checked(source, 1).expect("plain"), source);
        let text = checked("start: %json {\"type\": \"null\"} \"x\"", 4).expect("with a schema");
        assert!(text.contains("whitespace_pattern") && text.ends_with(" \"x\""), "{text}");
    }
}
