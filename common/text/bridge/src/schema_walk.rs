//! The schemas inside a client's schema, each visited once: how deep they nest, what they say that the
//! library does not compile, and where. Nothing here recurses.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::fault::{Fault, Refusal};
use crate::levels::{most_levels, Definition, MAX_LEVELS};
use crate::schema::too_deep;

/// The library copies strings into each alternative: at most so many bytes of them, of so many
/// alternatives as it makes at most.
const MAX_COPIED_BYTES: usize = 128 << 20;
const MOST_ALTERNATIVES: usize = 50_000;

const SUPPORTED: &str = "type, enum, const, properties, required, additionalProperties, \
    patternProperties, minProperties, maxProperties, items, prefixItems, minItems, maxItems, \
    minLength, maxLength, pattern, format, minimum, maximum, exclusiveMinimum, exclusiveMaximum, \
    multipleOf, anyOf, oneOf, allOf, $ref";
const FORMATS: [&str; 11] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "unknown",
];
/// Known to every draft in use, and not compiled.
const UNSUPPORTED: [&str; 8] =
    ["not", "uniqueItems", "dependencies", "if", "then", "else", "contains", "propertyNames"];
const NEWER_UNSUPPORTED: [&str; 9] = [
    "dependentRequired",
    "dependentSchemas",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$recursiveRef",
    "$dynamicRef",
    "$dynamicAnchor",
];

pub const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
pub const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
pub const MAPS: [&str; 2] = ["properties", "patternProperties"];
pub const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// A schema inside the source. Paths are written for errors alone.
struct Place<'s> {
    schema: &'s Json,
    depth: usize,
    definition: usize,
    parent: Option<usize>,
    step: &'s str,
    more: Option<String>,
}

/// Visits each schema that the library compiles: from the root, and from what references name.
pub struct Walk<'s> {
    root: &'s Json,
    lenient: bool,
    newer: bool,
    has_ids: bool,
    max_depth: usize,
    places: Vec<Place<'s>>,
    definitions: Vec<Definition>,
    known: HashMap<String, usize>,
    unresolved: usize,
    alternatives: usize,
    longest: usize,
}

impl<'s> Walk<'s> {
    pub fn new(root: &'s Json, lenient: bool, max_depth: usize) -> Self {
        let draft = root.get("$schema").and_then(Json::as_str).unwrap_or("2020-12");
        Walk {
            root,
            lenient,
            newer: draft.contains("2020-12") || draft.contains("2019-09"),
            has_ids: has_ids(root),
            max_depth,
            places: Vec::new(),
            definitions: Vec::new(),
            known: HashMap::new(),
            unresolved: 0,
            alternatives: 1,
            longest: 0,
        }
    }

    pub fn run(mut self) -> Result<(), Refusal> {
        self.define("#".to_owned(), self.root, None);
        let mut at = 0;
        while at < self.places.len() {
            self.visit(at)?;
            at += 1;
        }
        if self.alternatives.saturating_mul(self.longest) > MAX_COPIED_BYTES {
            let message = format!(
                "{} alternatives with strings of up to {} bytes need more than {} MiB; use fewer \
                 or shorter ones",
                self.alternatives,
                self.longest,
                MAX_COPIED_BYTES >> 20
            );
            return Err(Refusal::at("", Fault::TooLarge, message));
        }
        // What cannot be resolved here may be any place of the source.
        let unresolved = self.unresolved * (self.max_depth + 1);
        let levels = most_levels(&self.definitions) + unresolved;
        if levels > MAX_LEVELS {
            let message =
                format!("references nest {levels} levels deep; at most {MAX_LEVELS} are followed");
            return Err(Refusal::at("", Fault::TooDeep, message));
        }
        Ok(())
    }

    /// What a reference names; it is visited later.
    fn define(&mut self, name: String, schema: &'s Json, parent: Option<usize>) -> usize {
        if let Some(index) = self.known.get(&name) {
            return *index;
        }
        let definition = self.definitions.len();
        self.known.insert(name, definition);
        self.definitions.push(Definition::default());
        let step = if parent.is_some() { "$ref" } else { "" };
        self.places.push(Place { schema, depth: 0, definition, parent, step, more: None });
        definition
    }

    fn add(&mut self, schema: &'s Json, parent: usize, step: &'s str, more: Option<String>) {
        let Place { depth, definition, .. } = self.places[parent];
        let place =
            Place { schema, depth: depth + 1, definition, parent: Some(parent), step, more };
        self.places.push(place);
    }

    fn visit(&mut self, at: usize) -> Result<(), Refusal> {
        let Place { schema, depth, definition, .. } = self.places[at];
        let deepest = &mut self.definitions[definition].depth;
        *deepest = depth.max(*deepest);
        if depth > self.max_depth {
            return Err(too_deep(&self.path(at), self.max_depth));
        }
        let map = match schema {
            Json::Object(map) => map,
            Json::Bool(_) => return Ok(()),
            _ => {
                return Err(self.refuse(at, Fault::Malformed, "a schema is an object or a boolean"))
            }
        };
        if let Some(key) = map.keys().find(|key| self.is_unsupported(key)) {
            let path = format!("{}/{}", self.path(at), escaped(key));
            let message = format!("is not supported; supported: {SUPPORTED}");
            return Err(Refusal::at(&path, Fault::Unsupported, message));
        }
        self.weigh(at, map)?;
        self.follow(at, map)?;
        for (key, value) in map {
            let name = key.as_str();
            match value {
                Json::Object(inner) if MAPS.contains(&name) => {
                    for (more, schema) in inner {
                        self.add(schema, at, name, Some(more.clone()));
                    }
                }
                Json::Array(inner) if LISTS.contains(&name) => {
                    for (index, schema) in inner.iter().enumerate() {
                        self.add(schema, at, name, Some(index.to_string()));
                    }
                }
                value if ONE.contains(&name) => self.add(value, at, name, None),
                _ => {}
            }
        }
        Ok(())
    }

    fn is_unsupported(&self, key: &str) -> bool {
        let newer = self.newer && NEWER_UNSUPPORTED.contains(&key);
        !self.lenient && (newer || UNSUPPORTED.contains(&key))
    }

    /// What the library copies, and expressions that it would spread out.
    fn weigh(&mut self, at: usize, map: &'s Map<String, Json>) -> Result<(), Refusal> {
        let applies = ["allOf", "anyOf", "oneOf"].map(|key| map.get(key).and_then(Json::as_array));
        let others = map.keys().filter(|key| *key != "title" && *key != "description").count();
        for list in applies.into_iter().flatten() {
            if others > 1 || map.contains_key("allOf") {
                let product = self.alternatives.saturating_mul(list.len().max(1));
                self.alternatives = product.min(MOST_ALTERNATIVES);
            }
        }
        for key in ["const", "enum"] {
            let values = match map.get(key) {
                Some(Json::Array(values)) if key == "enum" => values.as_slice(),
                Some(value) => std::slice::from_ref(value),
                None => &[],
            };
            let text =
                |value: &Json| value.as_str().map_or_else(|| value.to_string().len(), str::len);
            self.longest = values.iter().map(text).max().unwrap_or(0).max(self.longest);
        }
        let patterns = map.get("patternProperties").and_then(Json::as_object);
        let names = patterns.into_iter().flat_map(|patterns| patterns.keys());
        let pattern = map.get("pattern").and_then(Json::as_str);
        for pattern in pattern.into_iter().chain(names.map(String::as_str)) {
            self.longest = self.longest.max(pattern.len());
            if let Err(refusal) = crate::lark::bounded_expression(pattern) {
                let message = refusal.message.trim_start_matches("constraint: ");
                return Err(self.refuse(at, refusal.fault, message));
            }
        }
        let format = map.get("format").and_then(Json::as_str);
        if let Some(format) = format.filter(|name| !self.lenient && !FORMATS.contains(name)) {
            let message = format!(
                "format '{}' is not supported; supported: {}",
                format.chars().take(40).collect::<String>(),
                FORMATS[..FORMATS.len() - 1].join(", ")
            );
            return Err(self.refuse(at, Fault::Unsupported, &message));
        }
        Ok(())
    }

    fn follow(&mut self, at: usize, map: &'s Map<String, Json>) -> Result<(), Refusal> {
        let Some(reference) = map.get("$ref") else { return Ok(()) };
        let Some(name) = reference.as_str() else {
            return Err(self.refuse(at, Fault::Malformed, "$ref must be a text"));
        };
        let target = match name.strip_prefix('#') {
            _ if self.has_ids => None, // relative to what the source calls itself
            None => {
                let message =
                    "$ref into another document is never fetched; put what it names into \
                               $defs and use \"#/$defs/NAME\"";
                return Err(self.refuse(at, Fault::Unsupported, message));
            }
            Some(pointer) => self.root.pointer(&decoded(pointer)),
        };
        match target {
            Some(schema) => {
                let target = self.define(name.to_owned(), schema, Some(at));
                let Place { depth, definition, .. } = self.places[at];
                self.definitions[definition].names.push((depth, target));
            }
            None if self.has_ids => {
                if self.known.insert(format!("?{name}"), usize::MAX).is_none() {
                    self.unresolved += 1;
                }
            }
            None => {
                let name: String = name.chars().take(80).collect();
                let message = format!("$ref \"{name}\" names nothing in the schema");
                return Err(self.refuse(at, Fault::Malformed, &message));
            }
        }
        Ok(())
    }

    fn refuse(&self, at: usize, fault: Fault, message: &str) -> Refusal {
        Refusal::at(&self.path(at), fault, message)
    }

    fn path(&self, at: usize) -> String {
        let mut steps = Vec::new();
        let mut next = Some(at);
        while let Some(index) = next {
            let place = &self.places[index];
            if !place.step.is_empty() {
                let more = place.more.as_ref().map(|more| format!("/{}", escaped(more)));
                steps.push(format!("/{}{}", place.step, more.unwrap_or_default()));
            }
            next = place.parent;
        }
        steps.reverse();
        steps.concat()
    }
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

/// Without percent escapes.
fn decoded(pointer: &str) -> String {
    let bytes = pointer.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = pointer.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether references may be relative to something else than the root.
fn has_ids(root: &Json) -> bool {
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Json::Object(map) => {
                let named = ["$id", "id", "$anchor", "$dynamicAnchor"];
                if named.iter().any(|key| map.get(*key).is_some_and(Json::is_string)) {
                    return true;
                }
                open.extend(map.values());
            }
            Json::Array(items) => open.extend(items),
            _ => {}
        }
    }
    false
}
