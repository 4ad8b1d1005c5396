//! How Python spells values: str(), repr(), json.dumps(), str.strip().

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::budget::{self, MAX_DEPTH};

/// Python's str.isspace: Unicode white space and the four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

fn is_mark(c: char) -> bool {
    budget::marks().is_some_and(|marks| marks.mark == c)
}

fn unprintable(c: char) -> bool {
    // str.isprintable is false for the categories C and Z other than the space; assigned characters
    // are told apart by the classes of the expression engine.
    thread_local! {
        static CLASS: regex::Regex =
            regex::Regex::new(r"^[\p{C}\p{Z}]").expect("a constant expression");
    }
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    CLASS.with(|class| class.is_match(c.encode_utf8(&mut [0; 4])))
}

/// float.__repr__: the shortest digits that read back equal, with an exponent below 1e-4 and from
/// 1e16 on.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

pub fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_repr)
}

/// str(value), as Jinja prints it.
pub fn str_of(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        budget::make(text.len())?;
        return Ok(text.to_owned());
    }
    let mut out = String::new();
    if !value.is_undefined() {
        repr(value, 0, &mut out)?;
    }
    Ok(out)
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(budget::over("nesting"));
    }
    let before = out.len();
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => repr_string(value.as_str().unwrap_or(""), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                repr(&item, depth + 1, out)?;
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    budget::make(out.len() - before)
}

fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if unprintable(c) && !is_mark(c) => {
                let code = c as u32;
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// The arguments of json.dumps that templates may give.
pub struct JsonStyle {
    pub ensure_ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl JsonStyle {
    pub fn new(indent: Option<String>) -> Self {
        let item = if indent.is_some() { "," } else { ", " };
        JsonStyle {
            ensure_ascii: false,
            indent,
            item_separator: item.to_owned(),
            key_separator: ": ".to_owned(),
            sort_keys: false,
        }
    }
}

/// json.dumps(value).
pub fn dumps(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    dump(value, style, 0, &mut out)?;
    Ok(out)
}

fn new_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn dump(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(budget::over("nesting"));
    }
    let before = out.len();
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&json_number(value)),
        ValueKind::String => quote(value.as_str().unwrap_or(""), style.ensure_ascii, out),
        ValueKind::Seq => dump_list(value, style, depth, out)?,
        ValueKind::Map => dump_map(value, style, depth, out)?,
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("Object of type {kind} is not JSON serializable"),
            ))
        }
    }
    budget::make(out.len() - before)
}

fn dump_list(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    out.push('[');
    let mut empty = true;
    for item in value.try_iter()? {
        if !empty {
            out.push_str(&style.item_separator);
        }
        empty = false;
        new_line(style, depth + 1, out);
        dump(&item, style, depth + 1, out)?;
    }
    if !empty {
        new_line(style, depth, out);
    }
    out.push(']');
    Ok(())
}

fn dump_map(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    let mut keys: Vec<Value> = value.try_iter()?.collect();
    if style.sort_keys {
        keys.sort();
    }
    out.push('{');
    for (i, key) in keys.iter().enumerate() {
        if i > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(style, depth + 1, out);
        match key.kind() {
            ValueKind::String => quote(key.as_str().unwrap_or(""), style.ensure_ascii, out),
            ValueKind::None => out.push_str("\"null\""),
            ValueKind::Bool => {
                out.push_str(if key.is_true() { "\"true\"" } else { "\"false\"" });
            }
            ValueKind::Number => {
                out.push('"');
                out.push_str(&json_number(key));
                out.push('"');
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("keys must be str, int, float, bool or None, not {kind}"),
                ))
            }
        }
        out.push_str(&style.key_separator);
        dump(&value.get_item(key)?, style, depth + 1, out)?;
    }
    if !keys.is_empty() {
        new_line(style, depth, out);
    }
    out.push('}');
    Ok(())
}

fn json_number(value: &Value) -> String {
    match number_text(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        text => text.to_owned(),
    }
}

fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ensure_ascii && !(' '..='~').contains(&c) && !is_mark(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
