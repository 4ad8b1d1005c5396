//! A tokenizer.json, read as hostile input: what it may contain, and the tables that encoding and
//! decoding need.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value as Json;
use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedToken, Encoding, Model, ModelWrapper, NormalizedString, Normalizer, Token, Tokenizer,
};

use crate::encode::{byte_letters, AddedMatcher, Normal, Pipeline, Prepend, Step};
use crate::pattern::{Behavior, SplitPattern};
use crate::Failure;

const MAX_STEPS: usize = 32;
const MAX_ADDED_TOKENS: usize = 100_000;
const MAX_PIECE_BYTES: usize = 4096;
const MAX_SPECIALS_AROUND: usize = 16;

pub const FLAG_EXISTS: u8 = 1;
pub const FLAG_SPECIAL: u8 = 2;
pub const FLAG_BYTE: u8 = 4;

/// The parts that decide what is supported, read before the library sees the file.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    #[serde(default)]
    decoder: Json,
    model: ModelOutline,
}

#[derive(Deserialize)]
struct ModelOutline {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    dropout: Option<f64>,
}

/// What each id adds to a text.
#[derive(Default)]
pub struct Tables {
    pub bytes: Vec<u8>,
    /// One more than ids: id `i` owns bytes[offsets[i]..offsets[i + 1]].
    pub offsets: Vec<u32>,
    pub flags: Vec<u8>,
}

#[derive(Default)]
pub struct DecodeRules {
    pub byte_fallback: bool,
    pub strip_leading_spaces: u32,
    pub strip_first_token_spaces: bool,
    byte_level: bool,
    replaces: Vec<(String, String)>,
}

pub struct LoadedTokenizer {
    pub library: Tokenizer,
    pub pipeline: Pipeline,
    pub tables: Tables,
    pub rules: DecodeRules,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::invalid(message)
}

impl LoadedTokenizer {
    pub fn load(json: &[u8], max_vocab: usize) -> Result<Self, Failure> {
        let outline: Outline = serde_json::from_slice(json)
            .map_err(|e| invalid(format!("tokenizer.json is malformed: {e}")))?;
        check_model(&outline.model)?;
        let normals = normals(&outline.normalizer)?;
        let steps = steps(&outline.pre_tokenizer)?;
        let rules = decode_rules(&outline.decoder)?;
        check_post_processor(&outline.post_processor)?;

        let mut library = Tokenizer::from_bytes(json)
            .map_err(|e| invalid(format!("tokenizer.json is malformed: {e}")))?;
        library.with_padding(None);
        library.with_truncation(None).map_err(|e| invalid(e.to_string()))?;
        let size = vocab_size(&library, max_vocab)?;
        let (raw_added, normalized_added) = added_matchers(&library)?;
        let ModelWrapper::BPE(bpe) = library.get_model() else {
            return Err(invalid("tokenizer.json: model must be of type BPE"));
        };
        let letters = byte_letters();
        let byte_level = steps.iter().any(|s| matches!(s, Step::ByteLevel { .. }));
        let cut_mark = if byte_level { None } else { cut_mark(bpe) };
        let tables = tables(&library, size, &rules, &letters)?;
        let (prefix, suffix) = specials_around(&library)?;
        let pipeline = Pipeline { raw_added, normals, normalized_added, steps, letters, cut_mark };
        Ok(LoadedTokenizer { library, pipeline, tables, rules, prefix, suffix })
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Failure> {
        let mut ids = self.pipeline.encode(text, self.library.get_model()).map_err(invalid)?;
        if add_special_tokens {
            ids.extend_from_slice(&self.suffix);
            if !self.prefix.is_empty() {
                ids.splice(0..0, self.prefix.iter().copied());
            }
        }
        Ok(ids)
    }

    pub fn encode_by_reference(&self, text: &str, specials: bool) -> Result<Vec<u32>, Failure> {
        let encoding = self.library.encode_fast(text, specials);
        Ok(encoding.map_err(|e| invalid(e.to_string()))?.get_ids().to_vec())
    }
}

fn check_model(model: &ModelOutline) -> Result<(), Failure> {
    if !matches!(model.kind.as_deref(), None | Some("BPE")) {
        let kind = model.kind.as_deref().unwrap_or("");
        return Err(invalid(format!(
            "tokenizer.json: model type '{kind}' is not supported; supported: BPE"
        )));
    }
    // The library glues pieces by byte counts of this prefix, so only the empty one is let through.
    if model.continuing_subword_prefix.as_deref().unwrap_or("") != "" {
        return Err(invalid("tokenizer.json: model.continuing_subword_prefix must be empty"));
    }
    if model.end_of_word_suffix.as_deref().unwrap_or("") != "" {
        return Err(invalid("tokenizer.json: model.end_of_word_suffix must be empty"));
    }
    if model.dropout.unwrap_or(0.0) != 0.0 {
        return Err(invalid("tokenizer.json: model.dropout must be null: ids would be random"));
    }
    Ok(())
}

fn kind_of(json: &Json) -> &str {
    json.get("type").and_then(Json::as_str).unwrap_or("")
}

/// The members of a Sequence, or the value itself, nested sequences flattened.
fn flatten<'j>(json: &'j Json, member: &str, what: &str) -> Result<Vec<&'j Json>, Failure> {
    let mut out = Vec::new();
    let mut open = vec![json];
    while let Some(next) = open.pop() {
        if next.is_null() {
            continue;
        }
        if kind_of(next) == "Sequence" {
            let list = next.get(member).and_then(Json::as_array);
            let list = list.ok_or_else(|| {
                invalid(format!("tokenizer.json: {what}.{member} must be a list"))
            })?;
            open.extend(list.iter().rev());
        } else {
            out.push(next);
        }
        if out.len() + open.len() > MAX_STEPS {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: {what} has more than {MAX_STEPS} steps"
            )));
        }
    }
    Ok(out)
}

fn flag(json: &Json, name: &str, default: bool) -> bool {
    json.get(name).and_then(Json::as_bool).unwrap_or(default)
}

fn text<'j>(json: &'j Json, name: &str, what: &str) -> Result<&'j str, Failure> {
    json.get(name)
        .and_then(Json::as_str)
        .ok_or_else(|| invalid(format!("tokenizer.json: {what}.{name} must be a string")))
}

fn pattern(json: &Json, what: &str) -> Result<SplitPattern, Failure> {
    let pattern = &json["pattern"];
    if let Some(literal) = pattern.get("String").and_then(Json::as_str) {
        return Ok(SplitPattern::literal(literal));
    }
    if let Some(source) = pattern.get("Regex").and_then(Json::as_str) {
        return SplitPattern::regex(source)
            .map_err(|e| invalid(format!("tokenizer.json: {what}.pattern: {e}")));
    }
    Err(invalid(format!("tokenizer.json: {what}.pattern must be a String or a Regex")))
}

fn normals(json: &Json) -> Result<Vec<Normal>, Failure> {
    let mut out = Vec::new();
    for step in flatten(json, "normalizers", "normalizer")? {
        out.push(match kind_of(step) {
            "Replace" => Normal::Replace(
                pattern(step, "normalizer")?,
                text(step, "content", "normalizer")?.to_owned(),
            ),
            "Prepend" => Normal::Prepend(text(step, "prepend", "normalizer")?.to_owned()),
            "NFC" => Normal::Nfc,
            "NFD" => Normal::Nfd,
            "NFKC" => Normal::Nfkc,
            "NFKD" => Normal::Nfkd,
            "Lowercase" => Normal::Lowercase,
            "Strip" | "StripAccents" => {
                let library = serde_json::from_value(step.clone())
                    .map_err(|e| invalid(format!("tokenizer.json: normalizer: {e}")))?;
                Normal::Library(Box::new(library))
            }
            other => {
                return Err(invalid(format!(
                    "tokenizer.json: normalizer type '{other}' is not supported; supported: \
                     Sequence, Replace, Prepend, NFC, NFD, NFKC, NFKD, Lowercase, Strip, \
                     StripAccents"
                )))
            }
        });
    }
    Ok(out)
}

/// The expression that ByteLevel splits by when it is asked to.
const BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

fn steps(json: &Json) -> Result<Vec<Step>, Failure> {
    let mut out = Vec::new();
    for step in flatten(json, "pretokenizers", "pre_tokenizer")? {
        out.push(match kind_of(step) {
            "Split" => Step::Split {
                pattern: pattern(step, "pre_tokenizer")?,
                behavior: behavior(text(step, "behavior", "pre_tokenizer")?)?,
                invert: flag(step, "invert", false),
            },
            "ByteLevel" => Step::ByteLevel {
                add_prefix_space: flag(step, "add_prefix_space", true),
                split: if flag(step, "use_regex", true) {
                    Some(SplitPattern::regex(BYTE_LEVEL).map_err(invalid)?)
                } else {
                    None
                },
            },
            "Metaspace" => metaspace(step)?,
            "Digits" => Step::Digits { individual: flag(step, "individual_digits", false) },
            other => {
                return Err(invalid(format!(
                    "tokenizer.json: pre_tokenizer type '{other}' is not supported; supported: \
                     Sequence, Split, ByteLevel, Metaspace, Digits"
                )))
            }
        });
    }
    Ok(out)
}

fn behavior(name: &str) -> Result<Behavior, Failure> {
    Ok(match name {
        "Removed" => Behavior::Removed,
        "Isolated" => Behavior::Isolated,
        "MergedWithPrevious" => Behavior::MergedWithPrevious,
        "MergedWithNext" => Behavior::MergedWithNext,
        "Contiguous" => Behavior::Contiguous,
        other => {
            return Err(invalid(format!("tokenizer.json: pre_tokenizer.behavior '{other}'")));
        }
    })
}

fn mark(json: &Json, what: &str) -> Result<char, Failure> {
    let mut chars = text(json, "replacement", what)?.chars();
    match (chars.next(), chars.next()) {
        (Some(mark), None) => Ok(mark),
        _ => Err(invalid(format!("tokenizer.json: {what}.replacement must be one character"))),
    }
}

fn prepend_scheme(json: &Json) -> Prepend {
    if json.get("add_prefix_space").and_then(Json::as_bool) == Some(false) {
        return Prepend::Never;
    }
    match json.get("prepend_scheme").and_then(Json::as_str) {
        Some("never") => Prepend::Never,
        Some("first") => Prepend::First,
        _ => Prepend::Always,
    }
}

fn metaspace(json: &Json) -> Result<Step, Failure> {
    Ok(Step::Metaspace {
        mark: mark(json, "pre_tokenizer")?,
        prepend: prepend_scheme(json),
        split: flag(json, "split", true),
    })
}

fn decode_rules(json: &Json) -> Result<DecodeRules, Failure> {
    let mut rules = DecodeRules::default();
    let (mut fused, mut spoken) = (false, false);
    for step in flatten(json, "decoders", "decoder")? {
        let kind = kind_of(step);
        let late = fused || spoken;
        match kind {
            "ByteLevel" if !late && rules.replaces.is_empty() => {
                rules.byte_level = true;
                spoken = true;
            }
            "Metaspace" if !late => {
                let from = mark(step, "decoder")?.to_string();
                rules.strip_first_token_spaces = prepend_scheme(step) != Prepend::Never;
                rules.replaces.push((from, " ".to_owned()));
            }
            "Replace" if !late => {
                let from = step["pattern"].get("String").and_then(Json::as_str);
                let from = from.filter(|f| !f.is_empty()).ok_or_else(|| {
                    invalid("tokenizer.json: decoder.pattern must be a String that isn't empty")
                })?;
                let to = text(step, "content", "decoder")?;
                rules.replaces.push((from.to_owned(), to.to_owned()));
            }
            "ByteFallback" if !late => {
                rules.byte_fallback = true;
                spoken = true;
            }
            "Fuse" => fused = true,
            "Strip" if fused && step["content"] == " " && step["stop"] == 0 => {
                let start = step.get("start").and_then(Json::as_u64).unwrap_or(0);
                rules.strip_leading_spaces = start.min(1024) as u32;
            }
            _ => {
                return Err(invalid(format!(
                    "tokenizer.json: decoder type '{kind}' is not supported here; supported: \
                     ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse and \
                     a Strip of leading spaces"
                )))
            }
        }
    }
    if json.is_null() {
        return Err(invalid(
            "tokenizer.json: decoder is missing; supported: ByteLevel, Metaspace, \
                            or a Sequence",
        ));
    }
    Ok(rules)
}

fn check_post_processor(json: &Json) -> Result<(), Failure> {
    for step in flatten(json, "processors", "post_processor")? {
        let kind = kind_of(step);
        if !matches!(
            kind,
            "ByteLevel" | "TemplateProcessing" | "RobertaProcessing" | "BertProcessing"
        ) {
            return Err(invalid(format!(
                "tokenizer.json: post_processor type '{kind}' is not supported; supported: \
                 Sequence, ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing"
            )));
        }
    }
    Ok(())
}

fn vocab_size(library: &Tokenizer, max_vocab: usize) -> Result<usize, Failure> {
    let mut size = 0usize;
    let mut count = 0usize;
    for (piece, id) in library.get_vocab(true) {
        size = size.max(id as usize + 1);
        count += 1;
        if piece.len() > MAX_PIECE_BYTES {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: the token with id {id} is longer than {MAX_PIECE_BYTES} bytes"
            )));
        }
    }
    if size > max_vocab || count > max_vocab {
        return Err(Failure::exhausted(format!(
            "tokenizer.json: {count} tokens with ids up to {} are over the limit of {max_vocab}",
            size.saturating_sub(1)
        )));
    }
    if size == 0 {
        return Err(invalid("tokenizer.json: the vocabulary is empty"));
    }
    Ok(size)
}

fn added_matchers(library: &Tokenizer) -> Result<(AddedMatcher, AddedMatcher), Failure> {
    let mut added: Vec<(u32, AddedToken)> =
        library.get_added_tokens_decoder().into_iter().collect();
    if added.len() > MAX_ADDED_TOKENS {
        return Err(Failure::exhausted(format!(
            "tokenizer.json: more than {MAX_ADDED_TOKENS} added tokens"
        )));
    }
    added.sort_by_key(|a| a.0);
    let (mut raw, mut normalized) = (Vec::new(), Vec::new());
    for (id, token) in added {
        let mut pattern = token.content.clone();
        if !token.normalized {
            raw.push((id, token, pattern));
            continue;
        }
        if let Some(normalizer) = library.get_normalizer() {
            let mut content = NormalizedString::from(token.content.as_str());
            normalizer.normalize(&mut content).map_err(|e| invalid(e.to_string()))?;
            pattern = content.get().to_owned();
        }
        normalized.push((id, token, pattern));
    }
    Ok((AddedMatcher::new(raw).map_err(invalid)?, AddedMatcher::new(normalized).map_err(invalid)?))
}

/// The word mark of SentencePiece, and the characters that some token holds directly before it.
/// None if cutting before marks could change ids.
fn cut_mark(bpe: &BPE) -> Option<(char, Vec<char>)> {
    const MARK: char = '\u{2581}';
    if bpe.ignore_merges {
        return None;
    }
    let vocab = bpe.get_vocab();
    let bytes = (0..=255u8).all(|b| vocab.contains_key(&format!("<{b:#04X}>")));
    if bpe.unk_token.is_some() && bpe.fuse_unk && !(bpe.byte_fallback && bytes) {
        return None;
    }
    let mut spanned = HashSet::new();
    for piece in vocab.keys() {
        let mut previous = MARK;
        for c in piece.chars() {
            if c == MARK && previous != MARK {
                spanned.insert(previous);
            }
            previous = c;
        }
    }
    let mut spanned: Vec<char> = spanned.into_iter().collect();
    spanned.sort_unstable();
    (spanned.len() <= 64).then_some((MARK, spanned))
}

fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

fn tables(
    library: &Tokenizer,
    size: usize,
    rules: &DecodeRules,
    letters: &[char; 256],
) -> Result<Tables, Failure> {
    let added = library.get_added_vocabulary();
    let mut byte_of = std::collections::HashMap::new();
    for (byte, letter) in letters.iter().enumerate() {
        byte_of.insert(*letter, byte as u8);
    }
    let mut tables = Tables { offsets: vec![0], ..Default::default() };
    for id in 0..size as u32 {
        let piece = added.simple_id_to_token(id).or_else(|| library.get_model().id_to_token(id));
        let mut flags = 0;
        if let Some(mut piece) = piece {
            flags |= FLAG_EXISTS;
            if added.is_special_token(&piece) {
                flags |= FLAG_SPECIAL;
            }
            for (from, to) in &rules.replaces {
                piece = piece.replace(from.as_str(), to);
            }
            let byte = if rules.byte_fallback { byte_token(&piece) } else { None };
            if let Some(byte) = byte {
                flags |= FLAG_BYTE;
                tables.bytes.push(byte);
            } else if rules.byte_level {
                let bytes: Option<Vec<u8>> =
                    piece.chars().map(|c| byte_of.get(&c).copied()).collect();
                tables.bytes.extend(bytes.unwrap_or_else(|| piece.into_bytes()));
            } else {
                tables.bytes.extend_from_slice(piece.as_bytes());
            }
        }
        let end = u32::try_from(tables.bytes.len())
            .map_err(|_| Failure::exhausted("tokenizer.json: the tokens are over 4 GiB"))?;
        tables.offsets.push(end);
        tables.flags.push(flags);
    }
    Ok(tables)
}

/// What the post-processor puts before and after a text, learnt from one sentinel token.
fn specials_around(library: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>), Failure> {
    let sentinel = u32::MAX;
    let token = Token::new(sentinel, "x".to_owned(), (0, 1));
    let encoding = Encoding::from_tokens(vec![token], 0);
    let processed = library
        .post_process(encoding, None, true)
        .map_err(|e| invalid(format!("tokenizer.json: post_processor: {e}")))?;
    let ids = processed.get_ids();
    if ids.len() > MAX_SPECIALS_AROUND || ids.iter().filter(|id| **id == sentinel).count() != 1 {
        return Err(invalid("tokenizer.json: post_processor must keep the text exactly once"));
    }
    let at = ids.iter().position(|id| *id == sentinel).unwrap_or(0);
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}
