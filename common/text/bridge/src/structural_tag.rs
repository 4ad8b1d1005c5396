//! Structural tags, as vLLM and xgrammar have them, as Lark: text with parts in it whose form is given.
//!
//! Free text ends where the first of its marks is complete, so that no mark passes as text.

use serde_json::Value as Json;

use crate::fault::{Fault, Refusal};
use crate::gbnf;
use crate::lark::{bounded_expression, quoted};
use crate::schema::{parse, prepare, Spacing};

const JSON_LEVELS_PER_LEVEL: usize = 4;
const SUPPORTED: &str = "const_string, json_schema, grammar, regex, any_text, sequence, or, \
    optional, star, plus, tag, triggered_tags, tags_with_separator";
const MAX_MARKS: usize = 256;

struct Tags<'c> {
    spacing: &'c Spacing<'c>,
    max_depth: usize,
    definitions: String,
    count: usize,
}

pub fn to_lark(source: &str, spacing: &Spacing, max_depth: usize) -> Result<String, Refusal> {
    let value = parse(source, JSON_LEVELS_PER_LEVEL * max_depth + 8)?;
    let mut tags = Tags { spacing, max_depth, definitions: String::new(), count: 0 };
    let start = match (value.get("format"), value.get("structures")) {
        (Some(format), None) => tags.format(format, "/format", 0)?,
        (None, Some(structures)) => tags.structures(structures, value.get("triggers"))?,
        _ => {
            let message =
                "a structural tag has either \"format\", or \"structures\" and \"triggers\"";
            return Err(Refusal::at("", Fault::Malformed, message));
        }
    };
    Ok(format!("start: {start}\n{}", tags.definitions))
}

fn wrong(path: &str, message: &str) -> Refusal {
    Refusal::at(path, Fault::Malformed, message)
}

fn list<'v>(value: &'v Json, key: &str, path: &str) -> Result<&'v Vec<Json>, Refusal> {
    let items = value.get(key).and_then(Json::as_array).filter(|items| !items.is_empty());
    items.ok_or_else(|| wrong(&format!("{path}/{key}"), "must be a list with an item or more"))
}

fn text<'v>(value: &'v Json, key: &str, path: &str) -> Result<&'v str, Refusal> {
    let text = value.get(key).and_then(Json::as_str);
    text.ok_or_else(|| wrong(&format!("{path}/{key}"), "must be a text"))
}

/// A list of texts; a text is a list of one.
fn texts(value: Option<&Json>, path: &str) -> Result<Vec<String>, Refusal> {
    let bad = || wrong(path, "must be a list of texts that are not empty");
    let items = match value {
        None | Some(Json::Null) => return Ok(Vec::new()),
        Some(Json::Array(items)) => items.as_slice(),
        Some(item) => std::slice::from_ref(item),
    };
    if items.len() > MAX_MARKS {
        let message = format!("has {} marks; at most {MAX_MARKS}", items.len());
        return Err(Refusal::at(path, Fault::TooLarge, message));
    }
    let text = |item: &Json| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    items.iter().map(|item| text(item).ok_or_else(bad)).collect()
}

fn flag(value: &Json, key: &str) -> bool {
    value.get(key).and_then(Json::as_bool).unwrap_or(false)
}

fn any_of(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("({})", quoted.join(" | "))
}

impl Tags<'_> {
    fn name(&mut self, first: char) -> String {
        self.count += 1;
        format!("{first}{}", self.count)
    }

    fn define(&mut self, first: char, body: &str) -> String {
        let name = self.name(first);
        self.definitions.push_str(&format!("{name}: {body}\n"));
        name
    }

    /// Text without any of `marks`; may be empty.
    fn free(&mut self, marks: &[String]) -> String {
        let body = if marks.is_empty() {
            "/(?s:.+)/".to_owned()
        } else {
            format!("/(?s:.+)/ & ~(/(?s:.*)/ {} /(?s:.*)/)", any_of(marks))
        };
        format!("{}?", self.define('F', &body))
    }

    /// Text up to and with `mark`, the first of `marks` in it.
    fn up_to(&mut self, mark: &[String], marks: &[String]) -> String {
        let body =
            format!("(/(?s:.*)/ {}) & ~(/(?s:.*)/ {} /(?s:.+)/)", any_of(mark), any_of(marks));
        self.define('U', &body)
    }

    fn schema(&mut self, schema: &Json, path: &str) -> Result<String, Refusal> {
        let prepared =
            prepare(schema.clone(), self.spacing, self.max_depth).map_err(|refusal| {
                let inner = refusal.message.trim_start_matches("constraint: ");
                let inner =
                    inner.strip_prefix("/: ").map_or(inner.to_owned(), |rest| format!(": {rest}"));
                Refusal::of(refusal.fault, format!("{path}{inner}"))
            })?;
        Ok(self.define('j', &format!("%json {prepared}")))
    }

    fn structures(
        &mut self,
        structures: &Json,
        triggers: Option<&Json>,
    ) -> Result<String, Refusal> {
        let triggers = texts(triggers, "/triggers")?;
        let empty = Vec::new();
        let structures = structures.as_array().unwrap_or(&empty);
        let mut tags = Vec::new();
        for (index, each) in structures.iter().enumerate() {
            let path = format!("/structures/{index}");
            let schema = each.get("schema").unwrap_or(&Json::Bool(true));
            let content = self.schema(schema, &format!("{path}/schema"))?;
            let end = quoted(text(each, "end", &path)?);
            tags.push((text(each, "begin", &path)?.to_owned(), format!("{content} {end}")));
        }
        self.triggered(&triggers, &tags, &[], "")
    }

    /// Free text in which each trigger begins one of the tags.
    fn triggered(
        &mut self,
        triggers: &[String],
        tags: &[(String, String)],
        excludes: &[String],
        path: &str,
    ) -> Result<String, Refusal> {
        let (call, tail) = self.calls(triggers, tags, excludes, path)?;
        Ok(format!("({call})* {tail}"))
    }

    fn calls(
        &mut self,
        triggers: &[String],
        tags: &[(String, String)],
        excludes: &[String],
        path: &str,
    ) -> Result<(String, String), Refusal> {
        if triggers.is_empty() || tags.is_empty() {
            return Err(wrong(path, "needs triggers and tags, one of each or more"));
        }
        let marks = [triggers, excludes].concat();
        let mut calls = Vec::new();
        for (begin, _) in tags {
            if !triggers.iter().any(|trigger| begin.starts_with(trigger.as_str())) {
                let message = format!("the tag that begins {begin:?} begins with no trigger");
                return Err(wrong(path, &message));
            }
        }
        for trigger in triggers {
            let mut options = Vec::new();
            for (begin, rest) in tags {
                match begin.strip_prefix(trigger.as_str()) {
                    Some("") => options.push(rest.clone()),
                    Some(more) => options.push(format!("{} {rest}", quoted(more))),
                    None => {}
                }
            }
            if options.is_empty() {
                let message = format!("no tag begins with the trigger {trigger:?}");
                return Err(wrong(path, &message));
            }
            let head = self.up_to(std::slice::from_ref(trigger), &marks);
            calls.push(format!("{head} ({})", options.join(" | ")));
        }
        let tail = self.free(&marks);
        Ok((self.define('c', &calls.join(" | ")), tail))
    }

    /// One format as an expression of Lark.
    fn format(&mut self, format: &Json, path: &str, depth: usize) -> Result<String, Refusal> {
        if depth > self.max_depth {
            let message = format!("nests deeper than {} levels; nest less", self.max_depth);
            return Err(Refusal::at(path, Fault::TooDeep, message));
        }
        match text(format, "type", path)? {
            "const_string" => Ok(quoted(text(format, "value", path)?)),
            "json_schema" => {
                let schema = format.get("json_schema").unwrap_or(&Json::Null);
                self.schema(schema, &format!("{path}/json_schema"))
            }
            "regex" => {
                let pattern = text(format, "pattern", path)?;
                bounded_expression(pattern)?;
                let pattern = llguidance::regex_to_lark(pattern, "");
                Ok(self.define('R', &format!("/{pattern}/")))
            }
            "grammar" => {
                let start = self.name('g');
                let prefix = format!("{start}_");
                let lark =
                    gbnf::to_lark(text(format, "grammar", path)?, &start, &prefix, self.max_depth)?;
                self.definitions.push_str(&lark);
                Ok(start)
            }
            "any_text" => {
                let excludes = texts(format.get("excludes"), &format!("{path}/excludes"))?;
                Ok(self.free(&excludes))
            }
            "sequence" => self.sequence(list(format, "elements", path)?, path, depth),
            "or" => {
                let options = self.each(list(format, "elements", path)?, path, depth)?;
                Ok(format!("({})", options.join(" | ")))
            }
            "optional" => self.repeated(format, path, depth, "?"),
            "star" => self.repeated(format, path, depth, "*"),
            "plus" => self.repeated(format, path, depth, "+"),
            "tag" => {
                let (begin, rest) = self.tag(format, path, depth)?;
                Ok(format!("{} {rest}", quoted(&begin)))
            }
            "triggered_tags" => self.triggered_tags(format, path, depth),
            "tags_with_separator" => self.separated(format, path, depth),
            other => {
                let other: String = other.chars().take(40).collect();
                let message = format!("type '{other}' is not supported; supported: {SUPPORTED}");
                Err(Refusal::at(path, Fault::Unsupported, message))
            }
        }
    }

    fn each(&mut self, items: &[Json], path: &str, depth: usize) -> Result<Vec<String>, Refusal> {
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            out.push(self.format(item, &format!("{path}/elements/{index}"), depth + 1)?);
        }
        Ok(out)
    }

    fn repeated(
        &mut self,
        format: &Json,
        path: &str,
        depth: usize,
        mark: &str,
    ) -> Result<String, Refusal> {
        let content = format.get("content").unwrap_or(&Json::Null);
        let inner = self.format(content, &format!("{path}/content"), depth + 1)?;
        Ok(format!("({inner}){mark}"))
    }

    /// Free text inside it ends with the constant text behind it.
    fn sequence(&mut self, items: &[Json], path: &str, depth: usize) -> Result<String, Refusal> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < items.len() {
            let here = format!("{path}/elements/{at}");
            let free = items[at].get("type").is_some_and(|kind| kind == "any_text");
            let next = items.get(at + 1);
            if let Some(next) = next.filter(|_| free) {
                let end = next.get("value").and_then(Json::as_str).filter(|text| {
                    !text.is_empty() && next.get("type").is_some_and(|kind| kind == "const_string")
                });
                let Some(end) = end else {
                    let message = "any_text in a sequence is supported at its end or before a \
                                   const_string";
                    return Err(Refusal::at(&here, Fault::Unsupported, message));
                };
                let mut marks = texts(items[at].get("excludes"), &format!("{here}/excludes"))?;
                marks.push(end.to_owned());
                out.push(self.up_to(&marks[marks.len() - 1..], &marks));
                at += 2;
                continue;
            }
            out.push(self.format(&items[at], &here, depth + 1)?);
            at += 1;
        }
        Ok(format!("({})", out.join(" ")))
    }

    /// Its beginning, and the rest as Lark.
    fn tag(&mut self, tag: &Json, path: &str, depth: usize) -> Result<(String, String), Refusal> {
        let begin = text(tag, "begin", path)?.to_owned();
        let content = tag.get("content").unwrap_or(&Json::Null);
        let ends: Vec<String> = match tag.get("end") {
            Some(Json::String(end)) if end.is_empty() => Vec::new(),
            end => texts(end, &format!("{path}/end"))?,
        };
        let inside = format!("{path}/content");
        if content.get("type").is_some_and(|kind| kind == "any_text") && !ends.is_empty() {
            let mut marks = texts(content.get("excludes"), &format!("{inside}/excludes"))?;
            marks.extend(ends.iter().cloned());
            return Ok((begin, self.up_to(&ends, &marks)));
        }
        let content = self.format(content, &inside, depth + 1)?;
        let end = if ends.is_empty() { String::new() } else { format!(" {}", any_of(&ends)) };
        Ok((begin, format!("({content}){end}")))
    }

    fn tags(
        &mut self,
        format: &Json,
        path: &str,
        depth: usize,
    ) -> Result<Vec<(String, String)>, Refusal> {
        let mut tags = Vec::new();
        for (index, tag) in list(format, "tags", path)?.iter().enumerate() {
            tags.push(self.tag(tag, &format!("{path}/tags/{index}"), depth + 1)?);
        }
        Ok(tags)
    }

    fn triggered_tags(
        &mut self,
        format: &Json,
        path: &str,
        depth: usize,
    ) -> Result<String, Refusal> {
        let triggers = texts(format.get("triggers"), &format!("{path}/triggers"))?;
        let excludes = texts(format.get("excludes"), &format!("{path}/excludes"))?;
        let tags = self.tags(format, path, depth)?;
        let (call, tail) = self.calls(&triggers, &tags, &excludes, path)?;
        Ok(match (flag(format, "at_least_one"), flag(format, "stop_after_first")) {
            (false, false) => format!("(({call})* {tail})"),
            (true, false) => format!("(({call})+ {tail})"),
            (false, true) => format!("({call} | {tail})"),
            (true, true) => format!("({call})"),
        })
    }

    fn separated(&mut self, format: &Json, path: &str, depth: usize) -> Result<String, Refusal> {
        let separator = quoted(text(format, "separator", path)?);
        let tags: Vec<String> = self
            .tags(format, path, depth)?
            .iter()
            .map(|(begin, rest)| format!("{} {rest}", quoted(begin)))
            .collect();
        let tag = self.define('t', &tags.join(" | "));
        let some = match flag(format, "stop_after_first") {
            true => tag,
            false => format!("({tag} ({separator} {tag})*)"),
        };
        Ok(if flag(format, "at_least_one") { some } else { format!("({some})?") })
    }
}
