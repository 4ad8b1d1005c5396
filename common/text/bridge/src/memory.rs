//! What encoding and rendering take of memory for each byte of their input, measured: the bounds that
//! callers charge before a call (tokenizer.h, chat_template.h) are held against what an allocator
//! counts, over tokenizers and templates of models in use and texts of every kind. Lists double as
//! they grow, so that lengths just past a power of two take most.

use crate::counting::peak;
use crate::template::{LoadedTemplate, Request};
use crate::tokenizer::LoadedTokenizer;
use crate::work::Work;

/// As in tokenizer.h and chat_template.h.
const ENCODE_BYTES_PER_BYTE: usize = 42;
const RENDER_BYTES_PER_BYTE: usize = 8;
const RENDER_BYTES_PER_TREE_BYTE: usize = 3;
/// Charged, too, and left out here: it would hide what grows with a text.
const BASE_BYTES: usize = 64 << 10;

const TEXT_BYTES: usize = (1 << 20) + 4096;
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.cache/npm-tokenizers");

fn random(bytes: usize, letters: &[char]) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::new();
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(letters[(state >> 33) as usize % letters.len()]);
    }
    text
}

fn texts() -> Vec<(&'static str, String)> {
    let ascii: Vec<char> = (' '..='~').collect();
    let lower: Vec<char> = ('a'..='z').collect();
    let symbols: Vec<char> = ('!'..='/').collect();
    let wide: Vec<char> = ('\u{4e00}'..'\u{9fa5}').collect();
    let any: Vec<char> = ('\u{a0}'..'\u{ffff}').collect();
    let plain = "The quick brown fox jumps over the lazy dog, and then it rests for 12 minutes. ";
    let of = |part: &str| part.repeat(TEXT_BYTES / part.len());
    vec![
        ("plain", of(plain)),
        ("one letter", of("a")),
        ("two letters", of("ab")),
        ("spaces", of(" ")),
        ("lines", of("\n")),
        ("digits", of("7")),
        ("commas", of(",")),
        ("words of one letter", of("x ")),
        ("accents", of("e\u{301}")),
        ("zero bytes", of("\0")),
        ("faces", of("\u{1f600}")),
        ("random letters", random(TEXT_BYTES, &lower)),
        ("random ascii", random(TEXT_BYTES, &ascii)),
        ("random symbols", random(TEXT_BYTES, &symbols)),
        ("random ideographs", random(TEXT_BYTES, &wide)),
        ("random characters", random(TEXT_BYTES, &any)),
    ]
}

#[test]
fn encoding_takes_no_more_than_is_charged_for_each_byte() {
    for name in ["llama3", "qwen3", "gemma3", "gptoss", "deepseek_v3"] {
        let Ok(json) = std::fs::read_to_string(format!("{FOLDER}/{name}/tokenizer.json")) else {
            continue; // not fetched
        };
        let tokenizer = LoadedTokenizer::load(&json, 2_000_000).expect("a tokenizer in use");
        let first = "Once, for tables that are made at first use.";
        let _ = tokenizer.encode(first, true, None, &Work::new(first.len(), None));
        for (what, text) in texts() {
            let work = Work::new(text.len(), None);
            let most = peak(|| drop(tokenizer.encode(&text, true, None, &work)));
            assert!(
                most <= BASE_BYTES + ENCODE_BYTES_PER_BYTE * text.len(),
                "{name}, {what}: {most} bytes for {} of text",
                text.len()
            );
        }
    }
}

/// Messages as JSON, of about CHAT_BYTES.
const CHAT_BYTES: usize = (1 << 17) + 512;

fn conversations() -> Vec<(&'static str, String)> {
    let user = |content: &str| format!(r#"{{"role":"user","content":{content}}}"#);
    let list = |part: String| {
        let count = CHAT_BYTES / (part.len() + 1);
        format!("[{}]", vec![part; count].join(","))
    };
    let pairs = |content: &str| {
        let answer = format!(r#"{{"role":"assistant","content":{content}}}"#);
        list(format!("{},{answer}", user(content)))
    };
    let inside = |values: &str, count: usize| {
        let all = vec![values; count].join(",");
        format!(r#"[{{"role":"user","content":"x","more":[{all}]}}]"#)
    };
    vec![
        ("one message", format!("[{}]", user(&format!("\"{}\"", "x".repeat(CHAT_BYTES))))),
        ("escapes", format!("[{}]", user(&format!("\"{}\"", "\\n".repeat(CHAT_BYTES / 2))))),
        (
            "special tokens",
            format!("[{}]", user(&format!("\"{}\"", "<|im_end|>".repeat(CHAT_BYTES / 10)))),
        ),
        ("many messages", pairs("\"x\"")),
        ("numbers", inside("0", CHAT_BYTES / 2)),
        ("empty lists", inside("[]", CHAT_BYTES / 3)),
        ("empty texts", inside("\"\"", CHAT_BYTES / 3)),
        ("members", inside(r#"{"a":0}"#, CHAT_BYTES / 8)),
    ]
}

/// As json::Measure has it for these texts, whose strings hold nothing that looks like JSON.
fn tree_bytes(json: &str) -> usize {
    let count = |letters: &[u8]| json.bytes().filter(|byte| letters.contains(byte)).count();
    80 * count(b",[{") + 140 * count(b":") + 24 * count(b"\"") + json.len()
}

#[test]
fn rendering_takes_no_more_than_is_charged_for_each_byte() {
    for name in ["llama3", "qwen3", "gemma3", "deepseek_v3"] {
        let read = |file: &str| std::fs::read_to_string(format!("{FOLDER}/{name}/{file}"));
        let (Ok(json), Ok(config)) = (read("tokenizer.json"), read("tokenizer_config.json")) else {
            continue; // not fetched
        };
        let tokenizer = LoadedTokenizer::load(&json, 2_000_000).expect("a tokenizer in use");
        let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
        let source = config["chat_template"].as_str().expect("a template");
        let template = LoadedTemplate::load(source).expect("a template in use");
        for (what, messages) in conversations() {
            let request = Request {
                messages: &messages,
                tools: "",
                extra: "",
                special_tokens: vec![("bos_token", "<s>"), ("eos_token", "</s>")],
                add_generation_prompt: true,
                continue_final_message: false,
                now: 0,
                max_output: 64 << 20,
                cancelled: None,
                tokenizer: Some(&tokenizer),
            };
            let most = peak(|| drop(template.render(&request)));

            assert!(
                most <= BASE_BYTES
                    + RENDER_BYTES_PER_BYTE * messages.len()
                    + RENDER_BYTES_PER_TREE_BYTE * tree_bytes(&messages),
                "{name}, {what}: {most} bytes for {} of messages",
                messages.len()
            );
        }
    }
}
