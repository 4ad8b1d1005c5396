//! What a template sees: the messages as `apply_chat_template` hands them over.

use minijinja::value::Value;
use serde_json::{Map, Value as Json};

use crate::marks::{for_each_string, Marks};
use crate::python::{self, JsonStyle};
use crate::template::Request;
use crate::Failure;

/// The names under which a message's reasoning travels. The first is the one that templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Where the text of the last message is to be cut off.
pub struct FinalTag {
    message: String,
}

pub type Variables = Vec<(String, Json)>;

fn parse(text: &str, what: &str) -> Result<Json, Failure> {
    serde_json::from_str(text)
        .map_err(|e| Failure::invalid(format!("{what}: the JSON is malformed: {e}")))
}

/// What becomes of null as the content of an assistant that only calls tools. Clients send null for
/// what they don't mean, and most templates would print it; some compare it with none, and some
/// want a text.
#[derive(Clone, Copy, PartialEq)]
enum NullContent {
    Absent,
    None,
    Empty,
}

/// The shape in which a template gets an assistant's turn.
#[derive(Clone, Copy)]
pub struct Reading {
    null: NullContent,
    arguments_as_text: bool, // of calls: JSON as a text that the template joins to others
}

/// As transformers reads it.
pub const FIRST_READING: Reading = Reading { null: NullContent::Absent, arguments_as_text: false };

fn is_assistant(message: &Map<String, Json>) -> bool {
    message.get("role").is_some_and(|role| role == "assistant")
}

/// The arguments of a message's calls that are not a text.
fn parsed_arguments(message: &mut Map<String, Json>) -> impl Iterator<Item = &mut Json> {
    let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
    let arguments =
        calls.into_iter().flatten().filter_map(|call| call.pointer_mut("/function/arguments"));
    arguments.filter(|arguments| !arguments.is_string())
}

/// What else these messages may be read as, for a template that fails with the first reading: at
/// most four. None for malformed messages.
pub fn other_readings(messages: &str) -> Vec<Reading> {
    let Ok(mut list) = serde_json::from_str::<Vec<Map<String, Json>>>(messages) else {
        return Vec::new();
    };
    let null = |message: &Map<String, Json>| message.get("content").is_some_and(Json::is_null);
    let nulls = list.iter().any(|message| is_assistant(message) && null(message));
    let parsed = list.iter_mut().any(|message| parsed_arguments(message).next().is_some());
    let kept = if nulls { NullContent::None } else { NullContent::Absent };
    let all = [
        (nulls, NullContent::None, false),
        (parsed, kept, true),
        (nulls, NullContent::Empty, false),
        (nulls && parsed, NullContent::Empty, true),
    ];
    let readings = all.into_iter().filter(|(there, ..)| *there);
    readings.map(|(_, null, arguments_as_text)| Reading { null, arguments_as_text }).collect()
}

fn messages(text: &str, reading: Reading) -> Result<Vec<Map<String, Json>>, Failure> {
    let Json::Array(list) = parse(text, "messages")? else {
        return Err(Failure::invalid("messages: must be a list"));
    };
    if list.is_empty() {
        return Err(Failure::invalid("messages: must hold at least one message"));
    }
    let mut out = Vec::with_capacity(list.len());
    for (i, message) in list.into_iter().enumerate() {
        let Json::Object(message) = message else {
            return Err(Failure::invalid(format!("messages[{i}]: must be an object")));
        };
        let kept = reading.null != NullContent::Absent && is_assistant(&message);
        let meant = |name: &str, value: &Json| !value.is_null() || (kept && name == "content");
        let mut message: Map<String, Json> =
            message.into_iter().filter(|(name, value)| meant(name, value)).collect();
        if reading.null == NullContent::Empty {
            if let Some(content @ Json::Null) = message.get_mut("content") {
                *content = Json::String(String::new());
            }
        }
        if reading.arguments_as_text {
            for arguments in parsed_arguments(&mut message) {
                *arguments = Json::String(json_text(arguments)?);
            }
        }
        out.push(alias_reasoning(message));
    }
    Ok(out)
}

/// As json.dumps writes it.
fn json_text(value: &Json) -> Result<String, Failure> {
    python::dumps(&to_value(value), &JsonStyle::new(None))
        .map_err(|e| Failure::invalid(format!("messages: arguments: {e}")))
}

fn alias_reasoning(message: Map<String, Json>) -> Map<String, Json> {
    let Some(reasoning) = REASONING.iter().find_map(|name| message.get(*name)).cloned() else {
        return message;
    };
    let mut out = Map::new();
    out.insert("thinking".to_owned(), reasoning.clone());
    for (name, value) in message {
        out.insert(name, value);
    }
    out.insert("reasoning_content".to_owned(), reasoning);
    out
}

/// The variables of a rendering, and how to cut the text if the last message is to be continued.
pub fn variables(
    request: &Request,
    source: &str,
    marks: Option<Marks>,
    reading: Reading,
) -> Result<(Variables, Option<FinalTag>), Failure> {
    let mut messages = messages(request.messages, reading)?;
    let mut tools = match request.tools {
        "" => Json::Null,
        text => match parse(text, "tools")? {
            tools @ (Json::Null | Json::Array(_)) => tools,
            _ => return Err(Failure::invalid("tools: must be a list")),
        },
    };
    let mut extra = match request.extra {
        "" => Map::new(),
        text => match parse(text, "chat_template_kwargs")? {
            Json::Object(extra) => extra,
            _ => return Err(Failure::invalid("chat_template_kwargs: must be an object")),
        },
    };
    if let Some(Marks { mark, tokenizer }) = marks {
        let mut each = |text: &str| tokenizer.mark(text, mark);
        let values = messages.iter_mut().flat_map(|message| message.values_mut());
        for value in values.chain([&mut tools]).chain(extra.values_mut()) {
            for_each_string(value, &mut each);
        }
    }
    let mut tag = None;
    if request.continue_final_message {
        if request.add_generation_prompt {
            return Err(Failure::invalid(
                "continue_final_message and add_generation_prompt exclude each other",
            ));
        }
        tag = Some(mark_final(&mut messages, source)?);
    }
    let mut out: Variables = vec![("documents".to_owned(), Json::Null)];
    for (name, value) in extra {
        if matches!(name.as_str(), "messages" | "tools" | "add_generation_prompt")
            || name.starts_with('\u{1}')
        {
            return Err(Failure::invalid(format!("chat_template_kwargs: '{name}' is taken")));
        }
        out.push((name, value));
    }
    let list = messages.into_iter().map(Json::Object).collect();
    out.push(("messages".to_owned(), Json::Array(list)));
    out.push(("tools".to_owned(), tools));
    out.push(("add_generation_prompt".to_owned(), Json::Bool(request.add_generation_prompt)));
    Ok((out, tag))
}

fn mark_final(messages: &mut [Map<String, Json>], source: &str) -> Result<FinalTag, Failure> {
    let nothing = || {
        Failure::invalid("continue_final_message: the last message has no text content to continue")
    };
    if !source.contains("content") {
        return Err(Failure::invalid("continue_final_message: the template reads no content"));
    }
    let content = messages.last_mut().and_then(|m| m.get_mut("content")).ok_or_else(nothing)?;
    let text = match content {
        Json::String(text) => text,
        Json::Array(parts) => {
            let part = parts.iter_mut().rev().find_map(|part| part.get_mut("text"));
            match part {
                Some(Json::String(text)) => text,
                _ => return Err(nothing()),
            }
        }
        _ => return Err(nothing()),
    };
    let message = text.clone();
    text.push_str(TAG);
    Ok(FinalTag { message })
}

impl FinalTag {
    pub fn cut(&self, mut text: String) -> Result<String, Failure> {
        let at = text.rfind(TAG.trim_end());
        let said = crate::methods::strip(&self.message, None);
        let Some(at) = at.filter(|_| text.contains(said)) else {
            return Err(Failure::invalid(
                "continue_final_message: the last message does not appear in the rendered chat",
            ));
        };
        let whole = text[at..].starts_with(TAG);
        text.truncate(at);
        if !whole {
            // The template has trimmed the message, so the spaces before the tag go as well.
            let kept = text.trim_end_matches(crate::python::is_space).len();
            text.truncate(kept);
        }
        Ok(text)
    }
}

pub fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => n
            .as_i64()
            .map(Value::from)
            .or_else(|| n.as_u64().map(Value::from))
            .or_else(|| n.as_f64().map(Value::from))
            .unwrap_or_default(),
        Json::String(s) => Value::from(s.as_str()),
        Json::Array(list) => Value::from(list.iter().map(to_value).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(k, v)| (k.as_str(), to_value(v)))),
    }
}
