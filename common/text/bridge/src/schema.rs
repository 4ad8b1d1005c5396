//! A JSON schema as it comes from a client: bounded, checked and completed before the library reads
//! it. Nothing here recurses.

use serde::Deserialize;
use serde_json::{json, Map, Value as Json};

use crate::fault::{Fault, Refusal};
use crate::schema_walk::{Walk, DEFINITIONS, LISTS, MAPS, ONE};

/// White space between the parts of an answer: bounded, so that a model cannot write it for ever.
/// Eight levels of indentation by eight fit.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";
/// A level of a schema is up to four of JSON.
const JSON_LEVELS_PER_LEVEL: usize = 4;
const MAX_SEPARATOR_BYTES: usize = 16;

/// How the JSON is written.
#[derive(Clone, Copy, Default)]
pub struct Spacing<'c> {
    pub whitespace_pattern: &'c str,
    pub compact: bool,
    /// Objects that say nothing of other properties have none.
    pub closed: bool,
}

/// The text of one JSON value with at most `max` levels, which may not repeat.
pub fn parse(text: &str, max: usize) -> Result<Json, Refusal> {
    bounded(text.as_bytes(), max)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit(); // the stack of `constraint` holds what `bounded` lets through
    let value = Json::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| Refusal::of(Fault::Malformed, format!("no JSON: {error}")))
}

fn bounded(text: &[u8], max: usize) -> Result<(), Refusal> {
    let (mut depth, mut string, mut escaped) = (0usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if string => escaped = true,
            b'"' => string = !string,
            b'[' | b'{' if !string => depth += 1,
            b']' | b'}' if !string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            return Err(too_deep("", max));
        }
    }
    Ok(())
}

pub fn too_deep(path: &str, max: usize) -> Refusal {
    Refusal::at(path, Fault::TooDeep, format!("nests deeper than {max} levels; nest less"))
}

/// The schema as the library takes it.
pub fn read(source: &str, spacing: &Spacing, max_depth: usize) -> Result<Json, Refusal> {
    let value = parse(source, JSON_LEVELS_PER_LEVEL * max_depth + 8)?;
    prepare(value, spacing, max_depth)
}

pub fn prepare(value: Json, spacing: &Spacing, max_depth: usize) -> Result<Json, Refusal> {
    let mut schema = match value {
        Json::Bool(true) => Json::Object(Map::new()),
        Json::Bool(false) => {
            return Err(Refusal::at("", Fault::MatchesNothing, "the schema false matches nothing"))
        }
        Json::Object(map) => Json::Object(map),
        _ => return Err(Refusal::at("", Fault::Malformed, "a schema is an object or a boolean")),
    };
    let options = options(&mut schema, spacing)?;
    let lenient = options["lenient"] == json!(true);
    Walk::new(&schema, lenient, max_depth).run()?;
    if spacing.closed {
        close(&mut schema);
    }
    if let Json::Object(map) = &mut schema {
        map.insert("x-guidance".to_owned(), options);
    }
    Ok(schema)
}

/// What the client says under "x-guidance", checked, under what the request says.
fn options(schema: &mut Json, spacing: &Spacing) -> Result<Json, Refusal> {
    let client = match schema.as_object_mut().and_then(|map| map.remove("x-guidance")) {
        None => Map::new(),
        Some(Json::Object(map)) => map,
        Some(_) => {
            return Err(Refusal::at("/x-guidance", Fault::Malformed, "options are an object"));
        }
    };
    let mut options = Map::new();
    let mut compact = spacing.compact;
    let mut pattern = spacing.whitespace_pattern.to_owned();
    for (key, value) in client {
        let wrong = |what: &str| {
            Refusal::at(&format!("/x-guidance/{key}"), Fault::Malformed, format!("must be {what}"))
        };
        let text = value.as_str().filter(|text| text.len() <= MAX_SEPARATOR_BYTES);
        match key.as_str() {
            "lenient" | "coerce_one_of" | "json_allow_general_unicode_escapes" => {
                value.as_bool().ok_or_else(|| wrong("true or false"))?;
                options.insert(key, value);
            }
            "whitespace_flexible" => {
                compact |= !value.as_bool().ok_or_else(|| wrong("true or false"))?;
            }
            "whitespace_pattern" if pattern.is_empty() && !value.is_null() => {
                let text = value.as_str().filter(|text| text.len() <= 256);
                pattern = text.ok_or_else(|| wrong("an expression of at most 256 bytes"))?.into();
            }
            "whitespace_pattern" => {}
            "item_separator" | "key_separator" => {
                let text = text.ok_or_else(|| wrong("a text of at most 16 bytes"))?;
                let mark = if key == "item_separator" { ',' } else { ':' };
                if text.trim() != mark.to_string() {
                    return Err(wrong(&format!("'{mark}', with or without white space")));
                }
                options.insert(key, json!(text));
            }
            _ => {
                return Err(Refusal::at(
                    &format!("/x-guidance/{key}"),
                    Fault::Unsupported,
                    "is no option; supported: lenient, coerce_one_of, whitespace_flexible, \
                     whitespace_pattern, item_separator, key_separator, \
                     json_allow_general_unicode_escapes",
                ));
            }
        }
    }
    options.insert("whitespace_flexible".to_owned(), json!(!compact));
    if !compact {
        let pattern = if pattern.is_empty() { WHITE_SPACE } else { &pattern };
        crate::lark::bounded_expression(pattern)?;
        options.insert("whitespace_pattern".to_owned(), json!(pattern));
    }
    Ok(Json::Object(options))
}

/// An object that says what its properties are, or that it is one, takes no others.
fn close(schema: &mut Json) {
    let mut open = vec![schema];
    while let Some(each) = open.pop() {
        let Json::Object(map) = each else { continue };
        let is_object = |kind: &Json| kind == "object";
        let typed = map.get("type").is_some_and(|kind| {
            is_object(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_object))
        });
        let says = typed || MAPS.iter().any(|key| map.contains_key(*key));
        if says && !map.contains_key("additionalProperties") {
            map.insert("additionalProperties".to_owned(), Json::Bool(false));
        }
        for (key, value) in map.iter_mut() {
            let key = key.as_str();
            let one = ONE.contains(&key) && !value.is_array();
            match value {
                value if one => open.push(value),
                Json::Object(inner) if MAPS.contains(&key) || DEFINITIONS.contains(&key) => {
                    open.extend(inner.values_mut());
                }
                Json::Array(inner) if LISTS.contains(&key) => open.extend(inner.iter_mut()),
                _ => {}
            }
        }
    }
}
