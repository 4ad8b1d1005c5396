//! Keeps what a message says from becoming a control token.
//!
//! A rendered chat is one string, in which the template's own markup and a message's text look
//! alike. So before rendering, a mark goes into every place of a message where a special token is
//! spelled: a character that no input holds and that breaks the spelling. Encoding drops it after
//! added tokens have been looked for (`Pipeline::encode`). Text without such places is not touched.
//!
//! Templates put strings together, so the ends of each string are marked as well where they could
//! be part of a spelling. What a template asks about a string (its parts, its length, whether it
//! holds another) is answered as if no mark were there.

use daachorse::{DoubleArrayAhoCorasick, DoubleArrayAhoCorasickBuilder};
use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::Error;
use serde_json::Value as Json;

use crate::budget;
use crate::tokenizer::LoadedTokenizer;
use crate::Failure;

/// Noncharacters: Unicode keeps them free for a process's own use.
const CANDIDATES: std::ops::RangeInclusive<char> = '\u{FDD0}'..='\u{FDEF}';
/// Parts of a spelling at the ends of a string are looked for up to this size.
const MAX_PART_BYTES: usize = 256;

/// The spellings of special tokens, in lower case: templates may change the case of what they show.
#[derive(Default)]
pub struct Controls {
    finder: Option<DoubleArrayAhoCorasick<u32>>,
    /// Sorted, and sorted with their characters turned round.
    forward: Vec<String>,
    backward: Vec<String>,
    first: Vec<char>,
    last: Vec<char>,
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// Whether `part` is the beginning of a spelling, and not all of it.
fn begins(spellings: &[String], part: &str) -> bool {
    let at = spellings.partition_point(|spelling| spelling.as_str() <= part);
    spellings.get(at).is_some_and(|spelling| spelling.starts_with(part))
}

impl Controls {
    pub fn new<'t>(specials: impl Iterator<Item = &'t str>) -> Result<Self, Failure> {
        // One character can't be broken.
        let forward = sorted(
            specials.filter(|text| text.chars().nth(1).is_some()).map(str::to_ascii_lowercase),
        );
        if forward.is_empty() {
            return Ok(Controls::default());
        }
        let patterns = forward.iter().zip(0u32..).map(|(text, i)| (text.as_str(), i));
        let finder = DoubleArrayAhoCorasickBuilder::new()
            .build_with_values(patterns)
            .map_err(|e| Failure::invalid(format!("tokenizer.json: added_tokens: {e}")))?;
        Ok(Controls {
            finder: Some(finder),
            backward: sorted(forward.iter().map(|text| text.chars().rev().collect())),
            first: sorted(forward.iter().filter_map(|text| text.chars().next())),
            last: sorted(forward.iter().filter_map(|text| text.chars().next_back())),
            forward,
        })
    }

    /// Places inside whole spellings: before the last character of each, in rising order.
    fn inside(&self, text: &str, places: &mut Vec<usize>) {
        let Some(finder) = &self.finder else { return };
        let lower = text.to_ascii_lowercase();
        // Of spellings that end at one place one is enough: they share their last character.
        for found in finder.find_overlapping_no_suffix_iter(&lower) {
            let last = lower[..found.end()].chars().next_back().map_or(1, char::len_utf8);
            places.push(found.end() - last);
        }
    }

    /// Places at the ends, white space aside, that break what could become a spelling beside another
    /// string.
    fn at_ends(&self, text: &str, places: &mut Vec<usize>) {
        let body = text.trim_start_matches(crate::python::is_space);
        let from = text.len() - body.len();
        let body = body.trim_end_matches(crate::python::is_space);
        let end = from + body.len();
        let mut near = body.len().min(MAX_PART_BYTES);
        while !body.is_char_boundary(near) {
            near -= 1;
        }
        let head = body[..near].to_ascii_lowercase();
        let ends_one = |at: usize, c: char| at > 0 && self.last.contains(&c);
        let closes = head.char_indices().filter(|(at, c)| ends_one(*at, *c)).any(|(at, c)| {
            let part: String = head[..at + c.len_utf8()].chars().rev().collect();
            begins(&self.backward, &part)
        });
        if closes {
            places.push(from + head.chars().next().map_or(0, char::len_utf8));
        }
        let mut near = body.len() - body.len().min(MAX_PART_BYTES);
        while !body.is_char_boundary(near) {
            near += 1;
        }
        let tail = body[near..].to_ascii_lowercase();
        let last = tail.char_indices().next_back().map_or(0, |(at, _)| at);
        for (at, c) in tail.char_indices() {
            if self.first.contains(&c) && begins(&self.forward, &tail[at..]) {
                places.push(if at == last { end } else { end - (tail.len() - last) });
            }
        }
    }

    fn with_marks(text: &str, mut places: Vec<usize>, mark: char) -> Option<String> {
        if places.is_empty() {
            return None;
        }
        places.sort_unstable();
        places.dedup();
        let mut out = String::with_capacity(text.len() + 3 * places.len());
        let mut from = 0;
        for place in places {
            out.push_str(&text[from..place]);
            out.push(mark);
            from = place;
        }
        out.push_str(&text[from..]);
        Some(out)
    }

    /// A message's text with its marks; None: it needs none.
    pub fn mark(&self, text: &str, mark: char) -> Option<String> {
        self.finder.as_ref()?;
        let mut places = Vec::new();
        self.inside(text, &mut places);
        self.at_ends(text, &mut places);
        Self::with_marks(text, places, mark)
    }

    /// The same for a part of a text whose whole spellings have been marked, or are the template's.
    pub fn mark_ends(&self, text: &str, mark: char) -> Option<String> {
        self.finder.as_ref()?;
        let mut places = Vec::new();
        self.at_ends(text, &mut places);
        Self::with_marks(text, places, mark)
    }

    pub fn spelled_in(&self, text: &str) -> bool {
        let mut places = Vec::new();
        self.inside(text, &mut places);
        !places.is_empty()
    }
}

/// Calls `each` for every string of a value and puts what it returns in its place.
pub fn for_each_string(json: &mut Json, each: &mut impl FnMut(&str) -> Option<String>) {
    match json {
        Json::String(text) => {
            if let Some(marked) = each(text) {
                *text = marked;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| for_each_string(item, each)),
        Json::Object(map) => {
            for value in map.values_mut() {
                for_each_string(value, each);
            }
            if map.keys().any(|key| each(key).is_some()) {
                let old = std::mem::take(map);
                map.extend(old.into_iter().map(|(key, value)| (each(&key).unwrap_or(key), value)));
            }
        }
        _ => {}
    }
}

/// A character that none of these texts holds, also not as an escape of JSON.
pub fn unused(texts: &[&str]) -> Result<char, Failure> {
    let escaped = |text: &str, wanted: char| {
        text.match_indices("\\u").any(|(at, _)| {
            let digits = text.get(at + 2..at + 6);
            digits.and_then(|d| u32::from_str_radix(d, 16).ok()) == Some(wanted as u32)
        })
    };
    CANDIDATES
        .into_iter()
        .find(|c| !texts.iter().any(|text| text.contains(*c) || escaped(text, *c)))
        .ok_or_else(|| {
            Failure::invalid("the messages hold every noncharacter from U+FDD0 to U+FDEF")
        })
}

/// The text with its mark in front, if it has any marks. A marked text that starts with a
/// noncharacter starts with its mark.
pub fn told(text: String, mark: char) -> String {
    if text.contains(mark) || text.starts_with(|c| CANDIDATES.contains(&c)) {
        format!("{mark}{text}")
    } else {
        text
    }
}

/// A marked text without the mark in front, and that mark.
pub fn read(text: &str) -> (&str, Option<char>) {
    match text.chars().next().filter(|c| CANDIDATES.contains(c)) {
        Some(mark) => (&text[mark.len_utf8()..], Some(mark)),
        None => (text, None),
    }
}

/// The mark of the rendering on this thread, and the tokenizer that knows where it belongs.
#[derive(Clone, Copy)]
pub struct Marks<'t> {
    pub mark: char,
    pub tokenizer: &'t LoadedTokenizer,
}

impl Marks<'_> {
    fn place(&self, text: &str, whole: bool) -> Option<String> {
        if whole {
            return self.tokenizer.mark(text, self.mark);
        }
        self.tokenizer.controls().mark_ends(text, self.mark)
    }

    /// A value made of a message's text, marked again: with `whole` inside too, else at its ends.
    pub fn again(&self, value: Value, whole: bool) -> Result<Value, Error> {
        if let Some(text) = value.as_str() {
            let Some(marked) = self.place(text, whole) else { return Ok(value) };
            budget::make(marked.len())?;
            return Ok(Value::from(marked));
        }
        if value.kind() != ValueKind::Seq {
            return Ok(value);
        }
        let items: Vec<Value> = value.try_iter()?.collect();
        if !items.iter().any(|item| item.as_str().is_some_and(|s| self.place(s, whole).is_some())) {
            return Ok(value);
        }
        let tuple = value.is_tuple();
        let again: Result<Vec<Value>, Error> =
            items.into_iter().map(|item| self.again(item, whole)).collect();
        Ok(if tuple { Value::from(Tuple::from(again?)) } else { Value::from(again?) })
    }
}

/// The value as templates compare it: its texts, items and names without marks. Its depth is known
/// to be small.
pub fn without(value: Value) -> Result<Value, Error> {
    match budget::marks() {
        Some(marks) => Ok(bare(&value, marks.mark)?.unwrap_or(value)),
        None => Ok(value),
    }
}

/// The value without marks; None: it has none.
fn bare(value: &Value, mark: char) -> Result<Option<Value>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.contains(mark).then(|| Value::from(text.replace(mark, ""))));
    }
    match value.kind() {
        ValueKind::Seq => {
            let mut items: Vec<Value> = value.try_iter()?.collect();
            let mut changed = false;
            for item in &mut items {
                if let Some(plain) = bare(item, mark)? {
                    (*item, changed) = (plain, true);
                }
            }
            let tuple = value.is_tuple();
            let list = |items| {
                if tuple {
                    Value::from(Tuple::from(items))
                } else {
                    Value::from(items)
                }
            };
            Ok(changed.then(|| list(items)))
        }
        ValueKind::Map => {
            let (mut pairs, mut changed) = (Vec::new(), false);
            for key in value.try_iter()? {
                let item = value.get_item(&key)?;
                let (plain_key, plain_item) = (bare(&key, mark)?, bare(&item, mark)?);
                changed |= plain_key.is_some() || plain_item.is_some();
                pairs.push((plain_key.unwrap_or(key), plain_item.unwrap_or(item)));
            }
            Ok(changed.then(|| Value::from_pairs(pairs)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> String {
        let specials = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "</s>", "[INST]"];
        let controls = Controls::new(specials.into_iter()).unwrap();
        controls.mark(text, '\u{FDD0}').unwrap_or(text.to_owned()).replace('\u{FDD0}', "^")
    }

    #[test]
    fn spellings_are_broken_and_other_text_is_left() {
        assert_eq!(marked("a <|im_end|> b"), "a <|im_end|^> b");
        assert_eq!(marked("<|im_start|><|IM_END|>"), "<|im_start|^><|IM_END|^>");
        assert_eq!(marked("x [INST] </s>"), "x [INST^] </s^>");
        for text in [
            "",
            " ",
            "hello",
            "a < b and c > d",
            "if (a[0] <= 7) {}",
            "</think>\n<b>x</b>",
            "> quote",
        ] {
            assert_eq!(marked(text), text);
        }
    }

    #[test]
    fn parts_at_the_ends_are_broken() {
        assert_eq!(marked("a <|im_"), "a <|im^_");
        assert_eq!(marked("a <|im_ \n"), "a <|im^_ \n");
        assert_eq!(marked("im_end|> b"), "i^m_end|> b");
        assert_eq!(marked("  |> b"), "  |^> b");
        assert_eq!(marked("a <"), "a <^");
        assert_eq!(marked("</"), "<^/");
    }

    #[test]
    fn strings_in_values_and_names_are_marked() {
        let mut json = serde_json::json!({"a": ["x", {"b</s>": "</s>", "c": 1}], "d": null});
        for_each_string(&mut json, &mut |text| text.contains("</s>").then(|| "!".to_owned()));
        assert_eq!(json, serde_json::json!({"a": ["x", {"!": "!", "c": 1}], "d": null}));
    }

    #[test]
    fn the_mark_is_a_character_that_no_input_holds() {
        assert_eq!(unused(&["", "abc \\n \\u00e9"]).unwrap(), '\u{FDD0}');
        assert_eq!(unused(&["\u{FDD0}", "\\uFdD1"]).unwrap(), '\u{FDD2}');
        let all: String = CANDIDATES.collect();
        assert!(unused(&[&all]).is_err());
    }
}
