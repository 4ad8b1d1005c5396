//! Constraints of every kind, compiled against a vocabulary.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::{Logger, TokenParser};

use crate::counting::grown;
use crate::fault::{Fault, Refusal};
use crate::gbnf;
use crate::lark;
use crate::matcher::Matcher;
use crate::schema;
use crate::structural_tag;
use crate::vocabulary::Vocabulary;

/// The library walks schemas and rules by recursion, so deep ones get a stack that holds all that
/// the bounds of `schema` and `lark` let through.
const STACK_BYTES: usize = 64 << 20;

const OWN_LEVELS_PER_LEVEL: usize = 4;

/// As `quire::ConstraintKind` numbers them.
pub const JSON_SCHEMA: u8 = 1;
pub const REGEX: u8 = 2;
pub const GBNF: u8 = 3;
pub const JSON_OBJECT: u8 = 4;
pub const CHOICE: u8 = 5;
pub const LARK: u8 = 6;
pub const STRUCTURAL_TAG: u8 = 7;

#[derive(Clone, Copy)]
pub struct Constraint<'c> {
    pub kind: u8,
    pub source: &'c str,
    pub json: schema::Spacing<'c>,
    pub max_depth: usize,
}

pub struct Grammar {
    vocabulary: Arc<Vocabulary>,
    /// At the beginning of a text.
    matcher: Mutex<Matcher>,
    bytes: usize,
}

fn top_level(constraint: &Constraint) -> Result<TopLevelGrammar, Refusal> {
    let depth = constraint.max_depth;
    let source = constraint.source;
    match constraint.kind {
        JSON_SCHEMA => {
            Ok(TopLevelGrammar::from_json_schema(schema::read(source, &constraint.json, depth)?))
        }
        JSON_OBJECT => Ok(TopLevelGrammar::from_json_schema(schema::read(
            r#"{"type":"object"}"#,
            &constraint.json,
            depth,
        )?)),
        REGEX => lark::regex(source, depth).map(TopLevelGrammar::from_lark),
        CHOICE => lark::choice(source).map(TopLevelGrammar::from_lark),
        LARK => lark::checked(source, depth).map(TopLevelGrammar::from_lark),
        GBNF if !source.contains("::=") => {
            lark::checked(source, depth).map(TopLevelGrammar::from_lark)
        }
        GBNF => own(gbnf::to_lark(source, "start", "", depth)?, depth),
        STRUCTURAL_TAG => own(structural_tag::to_lark(source, &constraint.json, depth)?, depth),
        kind => Err(Refusal::of(
            Fault::Unsupported,
            format!(
                "kind {kind}; supported: JSON schema, JSON object, expression, choice, GBNF, Lark, \
                 structural tag"
            ),
        )),
    }
}

/// Lark that this crate has written, which nests a few times as deep as its source.
fn own(lark: String, depth: usize) -> Result<TopLevelGrammar, Refusal> {
    lark::bounded_lark(&lark, OWN_LEVELS_PER_LEVEL * depth + OWN_LEVELS_PER_LEVEL)?;
    Ok(TopLevelGrammar::from_lark(lark))
}

/// Whether some byte may begin the text, whatever tokens there are.
fn writes_something(mut parser: TokenParser) -> bool {
    use llguidance::toktrie::Recognizer;
    let forced = !parser.force_bytes().is_empty();
    forced
        || parser.parser.with_recognizer(|recognizer| {
            (0..=0xfe).any(|byte| {
                let pushed = recognizer.try_push_byte(byte);
                if pushed {
                    recognizer.pop_bytes(1);
                }
                pushed
            })
        })
}

impl Grammar {
    pub fn compile(
        vocabulary: &Arc<Vocabulary>,
        constraint: &Constraint,
        limits: &ParserLimits,
        cancelled: Option<&AtomicBool>,
    ) -> Result<Self, Refusal> {
        let gone = || cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed));
        let give_up = || Err(Refusal::new(Fault::Cancelled, "the caller has given up"));
        if gone() {
            return give_up();
        }
        let (made, bytes) = std::thread::scope(|scope| {
            let work = || grown(|| Self::made(vocabulary, constraint, limits, &gone));
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            match thread.spawn_scoped(scope, work).map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                _ => (Err(Refusal::from_library("panic")), 0),
            }
        });
        if gone() {
            return give_up();
        }
        let matcher = made?;
        // Of the vocabulary nothing is copied, and all else is in the matcher.
        let bytes = bytes.max(0) as usize;
        Ok(Grammar { vocabulary: vocabulary.clone(), matcher: Mutex::new(matcher), bytes })
    }

    fn made(
        vocabulary: &Arc<Vocabulary>,
        constraint: &Constraint,
        limits: &ParserLimits,
        gone: &(dyn Fn() -> bool + Sync),
    ) -> Result<Matcher, Refusal> {
        let grammar = top_level(constraint)?;
        if gone() {
            return Err(Refusal::new(Fault::Cancelled, "the caller has given up"));
        }
        let factory = &vocabulary.factory;
        let parser = factory
            .create_parser_from_init_ext(
                GrammarInit::Serialized(grammar),
                Logger::new(0, 0),
                llguidance::toktrie::InferenceCapabilities {
                    ff_tokens: factory.tok_env().tokenize_is_canonical(),
                    ..Default::default()
                },
                limits.clone(),
            )
            .map_err(|error| Refusal::from_library(&format!("{error:#}")))?;
        let probe = parser.clone();
        let mut matcher = Matcher::new(vocabulary.clone(), llguidance::Matcher::new(Ok(parser)))?;
        matcher.first_mask(|| writes_something(probe))?;
        Ok(matcher)
    }

    pub fn matcher(&self) -> Matcher {
        self.matcher.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fork()
    }

    pub fn bytes(&self) -> usize {
        self.bytes + self.bytes / 8 + std::mem::size_of::<Self>() + self.vocabulary.width / 8
    }
}
