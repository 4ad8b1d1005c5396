//! Methods of Python's str, dict and list, as templates call them.

use minijinja::value::{from_args, Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use crate::budget;
use crate::marks::without;
use crate::python::{is_space, str_of};

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// `value.name(args)`.
pub fn call(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let result = match value.kind() {
        ValueKind::String => {
            budget::touch(value.as_str().map_or(0, str::len))?;
            text_method(state, value, name, args)?
        }
        ValueKind::Map => match dict(value, name, args)? {
            Some(result) => result,
            None => value.call_method(state, name, args)?,
        },
        ValueKind::Seq => match list(value, name, args)? {
            Some(result) => result,
            None => value.call_method(state, name, args)?,
        },
        ValueKind::Undefined => return Err(Error::from(ErrorKind::UndefinedError)),
        _ => value.call_method(state, name, args)?,
    };
    budget::make(budget::shallow(&result))?;
    Ok(result)
}

/// Methods that cut a text: what becomes an end of a part was none before.
const CUTTING: [&str; 11] = [
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "splitlines",
    "replace",
    "removeprefix",
    "removesuffix",
    "strip",
    "lstrip",
    "rstrip",
];

/// A method of str, which sees no marks and leaves them where they belong.
fn text_method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let mut call =
        |value: &Value, args: &[Value]| match string(value.as_str().unwrap_or(""), name, args)? {
            Some(result) => Ok(result),
            None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
        };
    let Some(marks) = budget::marks() else { return call(value, args) };
    let text = value.as_str().unwrap_or("");
    if text.contains(marks.mark) {
        let args: Result<Vec<Value>, Error> = args.iter().cloned().map(without).collect();
        let result = call(&without(value.clone())?, &args?)?;
        return marks.again(result, true);
    }
    let result = call(value, args)?;
    if !CUTTING.contains(&name) {
        return Ok(result);
    }
    // Leaving something out may join what stood around it.
    let joins = name == "replace"
        && args.get(1).and_then(|to| to.as_str()) == Some("")
        && !marks.tokenizer.controls().spelled_in(text);
    marks.again(result, joins)
}

fn strip_set<'s>(text: &'s str, set: Option<&str>, left: bool, right: bool) -> &'s str {
    let member = |c: char| match set {
        Some(set) => set.contains(c),
        None => is_space(c),
    };
    let text = if left { text.trim_start_matches(member) } else { text };
    if right {
        text.trim_end_matches(member)
    } else {
        text
    }
}

pub fn strip<'s>(text: &'s str, set: Option<&str>) -> &'s str {
    strip_set(text, set, true, true)
}

/// str.replace, its result bounded before it is made.
pub fn replace(text: &str, from: &str, to: &str, count: Option<i64>) -> Result<String, Error> {
    let limit = match count {
        Some(count) if count >= 0 => count as usize,
        _ => usize::MAX,
    };
    let found = text.matches(from).take(limit).count();
    let size = text.len() + found.saturating_mul(to.len());
    budget::make(size)?;
    Ok(text.replacen(from, to, limit))
}

/// separator.join(items).
pub fn join(separator: &str, items: &Value) -> Result<String, Error> {
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        if i > 0 {
            budget::make(separator.len())?;
            out.push_str(separator);
        }
        match item.as_str() {
            Some(text) => {
                budget::make(text.len())?;
                out.push_str(text);
            }
            None => out.push_str(&str_of(&item)?),
        }
        if out.len() > budget::MAX_STRING_BYTES {
            return Err(budget::over("bytes in one value"));
        }
    }
    Ok(out)
}

fn strings(parts: impl Iterator<Item = impl AsRef<str>>) -> Result<Value, Error> {
    let mut out = Vec::new();
    for part in parts {
        budget::make(part.as_ref().len() + 16)?;
        out.push(Value::from(part.as_ref()));
    }
    Ok(Value::from(out))
}

fn split(text: &str, separator: Option<&str>, max: i64, from_right: bool) -> Result<Value, Error> {
    let limit = if max < 0 { usize::MAX } else { max as usize };
    if let Some(separator) = separator {
        if separator.is_empty() {
            return Err(wrong("empty separator"));
        }
        if from_right {
            let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
            parts.reverse();
            return strings(parts.into_iter());
        }
        return strings(text.splitn(limit.saturating_add(1), separator));
    }
    // White space in runs, none at the ends; what is left after `max` cuts stays whole.
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = strip(text, None);
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(cut) = cut.filter(|_| parts.len() < limit) else {
            parts.push(rest);
            break;
        };
        if from_right {
            let width = rest[cut..].chars().next().map_or(1, char::len_utf8);
            parts.push(&rest[cut + width..]);
            rest = rest[..cut].trim_end_matches(is_space);
        } else {
            parts.push(&rest[..cut]);
            rest = rest[cut..].trim_start_matches(is_space);
        }
        budget::make(16)?;
    }
    if from_right {
        parts.reverse();
    }
    strings(parts.into_iter())
}

fn split_lines(text: &str, keep_ends: bool) -> Result<Value, Error> {
    let ends = |c: char| {
        matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}')
            || matches!(c, '\u{2028}' | '\u{2029}')
    };
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(ends) else {
            parts.push(rest);
            break;
        };
        let width = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        parts.push(&rest[..if keep_ends { at + width } else { at }]);
        rest = &rest[at + width..];
    }
    strings(parts.into_iter())
}

fn position(text: &str, found: Option<usize>) -> i64 {
    found.map_or(-1, |at| text[..at].chars().count() as i64)
}

/// maxsplit and sep come by place or by name.
fn split_args(args: &[Value]) -> Result<(Option<String>, i64), Error> {
    let (places, names): (Rest<Value>, Kwargs) = from_args(args)?;
    let mut separator = places.first().cloned();
    if separator.is_none() {
        separator = names.get::<Option<Value>>("sep")?;
    }
    let max = match places.get(1) {
        Some(max) => i64::try_from(max.clone())?,
        None => names.get::<Option<i64>>("maxsplit")?.unwrap_or(-1),
    };
    names.assert_all_used()?;
    let separator = match separator {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => match value.as_str() {
            Some(text) => Some(text.to_owned()),
            None => return Err(wrong("the separator must be a string")),
        },
    };
    Ok((separator, max))
}

fn string(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<Value>,) = from_args(args)?;
            let set = set.filter(|s| !s.is_none());
            let set = set.as_ref().and_then(|s| s.as_str());
            Value::from(strip_set(text, set, name != "rstrip", name != "lstrip"))
        }
        "replace" => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(args)?;
            Value::from(replace(text, from, to, count)?)
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            Value::from(join(text, items)?)
        }
        "split" | "rsplit" => {
            let (separator, max) = split_args(args)?;
            split(text, separator.as_deref(), max, name == "rsplit")?
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            split_lines(text, keep.unwrap_or(false))?
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let last = name == "rpartition";
            let found = if last { text.rsplit_once(separator) } else { text.split_once(separator) };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if last => ["", "", text],
                None => [text, "", ""],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "find" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(position(text, text.find(what)))
        }
        "index" => {
            let (what,): (&str,) = from_args(args)?;
            let at = position(text, text.find(what));
            if at < 0 {
                return Err(wrong("substring not found"));
            }
            Value::from(at)
        }
        "format" => {
            check_widths(text)?;
            return Ok(None);
        }
        "zfill" | "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            let fill = fill.unwrap_or(if name == "zfill" { "0" } else { " " });
            Value::from(pad(text, width, fill, name)?)
        }
        _ => return Ok(None),
    }))
}

fn pad(text: &str, width: usize, fill: &str, name: &str) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    budget::make(missing.saturating_mul(fill.len()).saturating_add(text.len()))?;
    if fill.chars().count() != 1 {
        return Err(wrong("the fill character must be exactly one character long"));
    }
    Ok(match name {
        "ljust" => format!("{text}{}", fill.repeat(missing)),
        "center" => {
            let left = missing / 2 + (missing & width & 1);
            format!("{}{text}{}", fill.repeat(left), fill.repeat(missing - left))
        }
        "zfill" if text.starts_with(['+', '-']) => {
            format!("{}{}{}", &text[..1], fill.repeat(missing), &text[1..])
        }
        _ => format!("{}{text}", fill.repeat(missing)),
    })
}

/// Format strings may ask for widths of their own: none of more than four digits.
pub fn check_widths(format: &str) -> Result<(), Error> {
    let mut digits = 0;
    for c in format.chars() {
        digits = if c.is_ascii_digit() { digits + 1 } else { 0 };
        if digits > 4 {
            return Err(budget::over("characters in a format"));
        }
    }
    Ok(())
}

fn pairs(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    let mut out = Vec::new();
    for key in value.try_iter()? {
        budget::make(48)?;
        let item = value.get_item(&key)?;
        out.push((key, item));
    }
    Ok(out)
}

fn dict(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "items" => {
            let () = from_args(args)?;
            let tuples = pairs(value)?;
            tuples.into_iter().map(|(k, v)| Value::from(Tuple::from([k, v]))).collect()
        }
        "keys" => {
            let () = from_args(args)?;
            pairs(value)?.into_iter().map(|(k, _)| k).collect()
        }
        "values" => {
            let () = from_args(args)?;
            pairs(value)?.into_iter().map(|(_, v)| v).collect()
        }
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            match value.get_item(key) {
                Ok(found) if !found.is_undefined() => found,
                _ => default.unwrap_or_else(|| Value::from(())),
            }
        }
        "copy" => {
            let () = from_args(args)?;
            Value::from_pairs(pairs(value)?)
        }
        "update" | "pop" | "setdefault" | "clear" | "popitem" => {
            return Err(wrong(format!("'{name}' would change a value; templates can't")));
        }
        _ => return Ok(None),
    }))
}

fn list(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "index" | "count" => {
            let (what,): (&Value,) = from_args(args)?;
            budget::weigh(value)?;
            let mut found = value.try_iter()?.enumerate().filter(|(_, item)| item == what);
            if name == "count" {
                return Ok(Some(Value::from(found.count())));
            }
            match found.next() {
                Some((at, _)) => Value::from(at),
                None => return Err(wrong("the value is not in the list")),
            }
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => {
            return Err(wrong(format!("'{name}' would change a value; templates can't")));
        }
        _ => return Ok(None),
    }))
}
