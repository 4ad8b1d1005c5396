//! A tokenizer.json, read as hostile input: what it may contain, and the tables that encoding and
//! decoding need.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::Deserialize;
use serde_json::Value as Json;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{DecoderWrapper, Encoding, PostProcessor, PreTokenizerWrapper, Token};

use crate::added::{AddedTokenFile, AddedTokens};
use crate::bound::{bound, Bound, NoBound, Parts};
use crate::bpe::{ModelFile, Pieces};
use crate::encode::{byte_letters, Pipeline, Prepend, Step};
use crate::marks::Controls;
use crate::normal::Normal;
use crate::pattern::{Behavior, SplitPattern};
use crate::tables::{tables, Tables};
use crate::words::Model;
use crate::work::Work;
use crate::Failure;

const MAX_STEPS: usize = 32;
const MAX_PIECE_BYTES: usize = 4096;
const MAX_SPECIALS_AROUND: usize = 16;

/// The file as it is spelled.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<AddedTokenFile>,
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    #[serde(default)]
    decoder: Json,
    model: ModelFile,
}

#[derive(Default)]
pub struct DecodeRules {
    pub byte_fallback: bool,
    pub strip_leading_spaces: u32,
    pub strip_first_token_spaces: bool,
    pub byte_level: bool,
    pub replaces: Vec<(String, String)>,
}

pub struct LoadedTokenizer {
    model: Model,
    added: AddedTokens,
    controls: Controls,
    pipeline: Pipeline,
    pub tables: Tables,
    pub rules: DecodeRules,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    /// How much text a token can stand for.
    pub bound: Result<Bound, NoBound>,
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::invalid(message)
}

impl LoadedTokenizer {
    pub fn load(json: &str, max_vocab: usize) -> Result<Self, Failure> {
        let mut outline: Outline = serde_json::from_str(json)
            .map_err(|e| invalid(format!("tokenizer.json is malformed: {e}")))?;
        if let Some(version) = outline.version.filter(|version| version != "1.0") {
            return Err(invalid(format!("tokenizer.json: unknown version '{version}'")));
        }
        check_model(&outline.model)?;
        let normals = normals(&outline.normalizer)?;
        let steps = steps(&outline.pre_tokenizer)?;
        let rules = decode_rules(&outline.decoder)?;
        check_post_processor(&outline.post_processor)?;
        part::<NormalizerWrapper>(outline.normalizer, "normalizer")?;
        part::<PreTokenizerWrapper>(outline.pre_tokenizer, "pre_tokenizer")?;
        part::<DecoderWrapper>(outline.decoder, "decoder")?;
        let (prefix, suffix) = specials_around(part(outline.post_processor, "post_processor")?)?;

        let pieces = outline.model.pieces.get_or_insert_with(Pieces::default);
        let added = AddedTokens::new(outline.added_tokens, pieces, &normals)?;
        let size = vocab_size(pieces, &added, max_vocab)?;
        let (raw_added, normalized_added) = added.matchers()?;
        let controls = Controls::new(added.special_spellings())?;
        let model = Model::new(outline.model, size)?;
        let parts = Parts { added: &added, normals: &normals, steps: &steps, model: &model };
        let bound = bound(&parts);
        let letters = byte_letters();
        let byte_level = steps.iter().any(|s| matches!(s, Step::ByteLevel { .. }));
        let cut_mark = if byte_level { None } else { cut_mark(&model) };
        let tables = tables(&model.pieces, &added, size, &rules)?;
        let pipeline = Pipeline { raw_added, normals, normalized_added, steps, letters, cut_mark };
        Ok(LoadedTokenizer {
            model,
            added,
            controls,
            pipeline,
            tables,
            rules,
            prefix,
            suffix,
            bound,
        })
    }

    pub fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        mark: Option<char>,
        work: &Work,
    ) -> Result<Vec<u32>, Failure> {
        let mut ids = self.pipeline.encode(text, &self.model, mark, work)?;
        if add_special_tokens {
            ids.extend_from_slice(&self.suffix);
            if !self.prefix.is_empty() {
                ids.splice(0..0, self.prefix.iter().copied());
            }
        }
        Ok(ids)
    }

    /// A message's text with marks that keep it from becoming special tokens; None: it needs none.
    pub fn mark(&self, text: &str, mark: char) -> Option<String> {
        let marked = self.controls.mark(text, mark);
        if self.added.has_normalized_specials() {
            // What normalizing turns into a spelling is broken at every character.
            let now = marked.as_deref().unwrap_or(text);
            let normal = self.pipeline.normalize(now, &Work::new(now.len(), None));
            if normal.map_or(true, |normal| self.controls.spelled_in(&normal)) {
                return Some(text.chars().flat_map(|c| [c, mark]).collect());
            }
        }
        marked
    }

    /// As many tokens as `text` has, or fewer, found without tokenising it; 0 where nothing is known.
    pub fn fewest_tokens(&self, text: &str, mark: Option<char>) -> usize {
        self.bound.map_or(0, |bound| bound.fewest_tokens(text, mark))
    }

    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    pub fn piece(&self, id: u32) -> Option<&str> {
        self.added.piece(id).or_else(|| self.model.pieces.piece(id))
    }

    pub fn id(&self, piece: &str) -> Option<u32> {
        self.added.id(piece).or_else(|| self.model.pieces.id(piece))
    }
}

/// A part in the library's own reading, which is stricter than ours about missing members.
fn part<T: DeserializeOwned>(json: Json, what: &str) -> Result<Option<T>, Failure> {
    serde_json::from_value(json).map_err(|e| invalid(format!("tokenizer.json: {what}: {e}")))
}

fn check_model(model: &ModelFile) -> Result<(), Failure> {
    if !matches!(model.kind.as_deref(), None | Some("BPE")) {
        let kind = model.kind.as_deref().unwrap_or("");
        return Err(invalid(format!(
            "tokenizer.json: model type '{kind}' is not supported; supported: BPE"
        )));
    }
    // The library glues pieces by byte counts of this prefix, so only the empty one is let through.
    if model.continuing_subword_prefix.as_deref().is_some_and(|s| !s.is_empty()) {
        return Err(invalid("tokenizer.json: model.continuing_subword_prefix must be empty"));
    }
    if model.end_of_word_suffix.as_deref().is_some_and(|s| !s.is_empty()) {
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
            "Strip" => Normal::Strip {
                left: flag(step, "strip_left", false),
                right: flag(step, "strip_right", false),
            },
            "StripAccents" => Normal::StripAccents,
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

fn vocab_size(pieces: &Pieces, added: &AddedTokens, max_vocab: usize) -> Result<usize, Failure> {
    let mut size = 0usize;
    let mut count = 0usize;
    let new = added.iter().filter(|(content, _)| pieces.id(content).is_none());
    for (piece, id) in pieces.iter().chain(new) {
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

/// The word mark of SentencePiece, and the characters that some token holds directly before it.
/// None if cutting before marks could change ids.
fn cut_mark(model: &Model) -> Option<(char, Vec<char>)> {
    const MARK: char = '\u{2581}';
    if model.ignore_merges || model.fuses_unknowns() {
        return None;
    }
    let mut spanned = HashSet::new();
    for (piece, _) in model.pieces.iter() {
        for (at, _) in piece.match_indices(MARK) {
            spanned.extend(piece[..at].chars().next_back().filter(|c| *c != MARK));
        }
    }
    let mut spanned: Vec<char> = spanned.into_iter().collect();
    spanned.sort_unstable();
    (spanned.len() <= 64).then_some((MARK, spanned))
}

/// What the post-processor puts before and after a text, learnt from one sentinel token.
fn specials_around(
    processor: Option<PostProcessorWrapper>,
) -> Result<(Vec<u32>, Vec<u32>), Failure> {
    let Some(processor) = processor else { return Ok((Vec::new(), Vec::new())) };
    let sentinel = u32::MAX;
    let token = Token::new(sentinel, "x".to_owned(), (0, 1));
    let encoding = Encoding::from_tokens(vec![token], 0);
    let processed = processor
        .process(encoding, None, true)
        .map_err(|e| invalid(format!("tokenizer.json: post_processor: {e}")))?;
    let ids = processed.get_ids();
    if ids.len() > MAX_SPECIALS_AROUND || ids.iter().filter(|id| **id == sentinel).count() != 1 {
        return Err(invalid("tokenizer.json: post_processor must keep the text exactly once"));
    }
    let at = ids.iter().position(|id| *id == sentinel).unwrap_or(0);
    Ok((ids[..at].to_vec(), ids[at + 1..].to_vec()))
}
