//! Grammars in the notation of llama.cpp, read for the library (`gbnf_writer`).

use std::collections::HashMap;

use crate::fault::{Fault, Refusal};
use crate::gbnf_writer::Writer;

const MAX_REPEATS: u32 = 1 << 16;

pub enum Part {
    Text(String),
    /// An expression for one character.
    Class(String),
    Rule(usize),
    /// A special token, as Lark has it.
    Token(String),
    All(Vec<Part>),
    Any(Vec<Part>),
    Repeat(Box<Part>, u32, Option<u32>),
}

struct Reader<'s> {
    source: &'s str,
    at: usize,
    max_depth: usize,
    names: HashMap<&'s str, usize>,
    rules: Vec<(&'s str, Option<Part>)>,
}

/// Lark whose rule `start` is what `root` is here. `prefix` begins every other name.
pub fn to_lark(
    source: &str,
    start: &str,
    prefix: &str,
    max_depth: usize,
) -> Result<String, Refusal> {
    let mut reader = Reader { source, at: 0, max_depth, names: HashMap::new(), rules: Vec::new() };
    reader.space(true);
    while !reader.rest().is_empty() {
        reader.rule()?;
    }
    let Some(root) = reader.names.get("root").copied() else {
        return Err(Refusal::of(Fault::Malformed, "the grammar has no rule \"root ::= …\""));
    };
    if let Some((name, _)) = reader.rules.iter().find(|(_, body)| body.is_none()) {
        return Err(Refusal::of(Fault::Malformed, format!("rule \"{name}\" is not defined")));
    }
    let bodies = reader.rules.into_iter().filter_map(|(_, body)| body).collect();
    Ok(Writer::new(bodies, prefix).write(root, start))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl<'s> Reader<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn wrong(&self, message: &str) -> Refusal {
        let line = self.source[..self.at].matches('\n').count() + 1;
        Refusal::of(Fault::Malformed, format!("line {line}: {message}"))
    }

    /// Skips white space and comments, and line ends if they mean nothing here.
    fn space(&mut self, lines: bool) {
        loop {
            let rest = self.rest();
            let skipped = rest.trim_start_matches(|c| {
                c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))
            });
            self.at += rest.len() - skipped.len();
            if !skipped.starts_with('#') {
                return;
            }
            self.at += skipped.find(['\n', '\r']).unwrap_or(skipped.len());
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn name(&mut self) -> Result<usize, Refusal> {
        let rest = self.rest();
        let size = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if size == 0 {
            let found: String = rest.chars().take(10).collect();
            return Err(self.wrong(&format!("expects a rule's name, has {found:?}")));
        }
        self.at += size;
        let next = self.rules.len();
        let index = *self.names.entry(&rest[..size]).or_insert(next);
        if index == next {
            self.rules.push((&rest[..size], None));
        }
        Ok(index)
    }

    fn rule(&mut self) -> Result<(), Refusal> {
        let index = self.name()?;
        self.space(false);
        if !self.eat("::=") {
            return Err(self.wrong("expects \"::=\" behind a rule's name"));
        }
        self.space(true);
        let body = self.alternatives(0)?;
        let defined = &mut self.rules[index];
        if defined.1.is_some() {
            let message = format!("rule \"{}\" is defined twice", defined.0);
            return Err(self.wrong(&message));
        }
        defined.1 = Some(body);
        if !self.rest().is_empty() && !self.rest().starts_with(['\n', '\r']) {
            let found: String = self.rest().chars().take(10).collect();
            return Err(self.wrong(&format!("expects a new line, has {found:?}")));
        }
        self.space(true);
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> Result<Part, Refusal> {
        if depth > self.max_depth {
            let message = format!("nests deeper than {} groups; nest less", self.max_depth);
            return Err(Refusal::of(Fault::TooDeep, message));
        }
        let mut all = vec![self.sequence(depth)?];
        while self.eat("|") {
            self.space(true);
            all.push(self.sequence(depth)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Part::Any(all) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Part, Refusal> {
        let mut parts = Vec::new();
        while let Some(first) = self.rest().chars().next() {
            let part = match first {
                '"' => Part::Text(self.text()?),
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Part::Class("(?s:.)".to_owned())
                }
                '(' => {
                    self.at += 1;
                    self.space(true);
                    let group = self.alternatives(depth + 1)?;
                    if !self.eat(")") {
                        return Err(self.wrong("expects \")\""));
                    }
                    group
                }
                '<' => self.token()?,
                '!' => {
                    let message = "\"!\" before a token is not supported; name what may follow";
                    return Err(Refusal::of(Fault::Unsupported, message));
                }
                c if is_word(c) => Part::Rule(self.name()?),
                _ => break,
            };
            self.space(depth > 0);
            parts.push(self.repeated(part, depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Part::All(parts) })
    }

    fn token(&mut self) -> Result<Part, Refusal> {
        let rest = self.rest();
        let end = rest.find('>').ok_or_else(|| self.wrong("expects \">\""))?;
        self.at += end + 1;
        let token = &rest[..=end];
        if token.contains(char::is_whitespace) || token[1..].contains('<') || token.len() < 3 {
            return Err(self.wrong("a token is written like <|name|> or <[id]>"));
        }
        Ok(Part::Token(token.to_owned()))
    }

    fn repeated(&mut self, mut part: Part, depth: usize) -> Result<Part, Refusal> {
        let mut operators = 0;
        loop {
            let (least, most) = match self.rest().as_bytes().first() {
                Some(b'*') => (0, None),
                Some(b'+') => (1, None),
                Some(b'?') => (0, Some(1)),
                Some(b'{') => (0, Some(0)),
                _ => return Ok(part),
            };
            let braces = most == Some(0);
            self.at += 1;
            operators += 1;
            if operators > self.max_depth {
                return Err(Refusal::of(Fault::TooDeep, "too many repetitions of repetitions"));
            }
            let (least, most) = if braces { self.braces()? } else { (least, most) };
            part = Part::Repeat(Box::new(part), least, most);
            self.space(depth > 0);
        }
    }

    /// Behind a `{`.
    fn braces(&mut self) -> Result<(u32, Option<u32>), Refusal> {
        self.space(false);
        let least = self.number()?.ok_or_else(|| self.wrong("expects a number behind \"{\""))?;
        self.space(false);
        let most = if self.eat(",") {
            self.space(false);
            self.number()?
        } else {
            Some(least)
        };
        self.space(false);
        if !self.eat("}") {
            return Err(self.wrong("expects \"}\" behind a repetition's numbers"));
        }
        if most.is_some_and(|most| most < least) {
            return Err(self.wrong("a repetition's second number is below its first"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<u32>, Refusal> {
        let rest = self.rest();
        let size = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += size;
        if size == 0 {
            return Ok(None);
        }
        match rest[..size].parse::<u32>().ok().filter(|number| *number <= MAX_REPEATS) {
            Some(number) => Ok(Some(number)),
            None => {
                let message = format!("repeats more than {MAX_REPEATS} times; repeat less");
                Err(Refusal::of(Fault::TooLarge, message))
            }
        }
    }

    /// One character of a text or class, escapes read.
    fn character(&mut self) -> Result<char, Refusal> {
        let mut rest = self.rest().chars();
        let first = rest.next().ok_or_else(|| self.wrong("ends inside a text or class"))?;
        self.at += first.len_utf8();
        if first != '\\' {
            return Ok(first);
        }
        let escape = rest.next().ok_or_else(|| self.wrong("ends behind a backslash"))?;
        self.at += escape.len_utf8();
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'n' => return Ok('\n'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(escape),
            _ => return Err(self.wrong(&format!("the escape \\{escape} is unknown"))),
        };
        let number = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        self.at += if number.is_some() { digits } else { 0 };
        number
            .and_then(char::from_u32)
            .ok_or_else(|| self.wrong(&format!("\\{escape} needs {digits} digits of a character")))
    }

    fn text(&mut self) -> Result<String, Refusal> {
        self.at += 1;
        let mut text = String::new();
        while !self.eat("\"") {
            text.push(self.character()?);
        }
        Ok(text)
    }

    fn class(&mut self) -> Result<Part, Refusal> {
        self.at += 1;
        let mut class = String::from(if self.eat("^") { "[^" } else { "[" });
        let empty = class.len();
        while !self.eat("]") {
            let first = self.character()?;
            let range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let last = if range {
                self.at += 1;
                self.character()?
            } else {
                first
            };
            if last < first {
                return Err(self.wrong("a class has a range whose end is before its beginning"));
            }
            class.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", first as u32, last as u32));
        }
        match (class.len() == empty, empty) {
            (true, 1) => Err(self.wrong("a class without characters matches nothing")),
            (true, _) => Ok(Part::Class("(?s:.)".to_owned())),
            _ => Ok(Part::Class(class + "]")),
        }
    }
}
