//! The C functions of constraints: vocabularies, grammars, matchers.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use llguidance::api::ParserLimits;

use crate::constraint::{Constraint, Grammar};
use crate::ffi::{flag, guarded, quiet_panics, QtbBytes, QtbSpan};
use crate::matcher::Matcher;
use crate::schema::Spacing;
use crate::tokenizer::LoadedTokenizer;
use crate::vocabulary::{estimate, Vocabulary};
use crate::Failure;

/// As `quire::grammar::Limits` has them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QtbLimits {
    pub max_grammar_symbols: usize,
    pub max_items_in_row: usize,
    pub initial_lexer_fuel: u64,
    pub step_lexer_fuel: u64,
    pub step_max_items: usize,
    pub max_lexer_states: usize,
    pub max_depth: usize,
}

/// What to compile.
#[repr(C)]
pub struct QtbConstraint {
    pub source: QtbSpan,
    pub whitespace_pattern: QtbSpan,
    pub limits: QtbLimits,
    /// Null, or a flag that another thread sets when it gives up.
    pub cancelled: *const bool,
    pub kind: u8,
    pub compact: u8,
    pub closed: u8,
}

/// SAFETY: `ids` are `size` readable ones that outlive the call.
unsafe fn slice<'a>(ids: *const u32, size: usize) -> &'a [u32] {
    if size == 0 {
        return &[];
    }
    std::slice::from_raw_parts(ids, size)
}

/// # Safety
/// `tokenizer` is alive.
#[no_mangle]
pub unsafe extern "C" fn qtb_vocabulary_estimate(tokenizer: *const LoadedTokenizer) -> usize {
    let tables = &(*tokenizer).tables;
    estimate(tables.flags.len(), tables.bytes.len())
}

#[no_mangle]
pub extern "C" fn qtb_vocabulary_estimate_of(tokens: usize, token_bytes: usize) -> usize {
    estimate(tokens, token_bytes)
}

/// # Safety
/// `tokenizer` is alive, `end_ids` are readable, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_vocabulary_new(
    tokenizer: *const LoadedTokenizer,
    width: usize,
    end_ids: *const u32,
    end_ids_size: usize,
    out: *mut *const Vocabulary,
    error: *mut QtbBytes,
) -> i32 {
    quiet_panics();
    guarded(out, error, || {
        // The vocabulary is one more owner of the tokenizer.
        Arc::increment_strong_count(tokenizer);
        let tokenizer = Arc::from_raw(tokenizer);
        let end_ids = slice(end_ids, end_ids_size);
        Ok(Arc::into_raw(Arc::new(Vocabulary::new(&tokenizer, width, end_ids)?)))
    })
}

/// # Safety
/// `vocabulary` came from `qtb_vocabulary_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_vocabulary_free(vocabulary: *const Vocabulary) {
    if !vocabulary.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Arc::from_raw(vocabulary))));
    }
}

/// # Safety
/// `vocabulary` is alive.
#[no_mangle]
pub unsafe extern "C" fn qtb_vocabulary_bytes(vocabulary: *const Vocabulary) -> usize {
    (*vocabulary).bytes + (*vocabulary).bytes / 8
}

/// # Safety
/// `vocabulary` is alive, all that `constraint` points at is readable, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_grammar_new(
    vocabulary: *const Vocabulary,
    constraint: *const QtbConstraint,
    out: *mut *mut Grammar,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || {
        let wanted = &*constraint;
        Arc::increment_strong_count(vocabulary);
        let vocabulary = Arc::from_raw(vocabulary);
        let limits = ParserLimits {
            max_items_in_row: wanted.limits.max_items_in_row,
            initial_lexer_fuel: wanted.limits.initial_lexer_fuel,
            step_lexer_fuel: wanted.limits.step_lexer_fuel,
            step_max_items: wanted.limits.step_max_items,
            max_lexer_states: wanted.limits.max_lexer_states,
            max_grammar_size: wanted.limits.max_grammar_symbols,
            precompute_large_lexemes: true,
            verbose_errors: false,
        };
        let constraint = Constraint {
            kind: wanted.kind,
            source: wanted.source.text("the constraint")?,
            json: Spacing {
                whitespace_pattern: wanted.whitespace_pattern.text("whitespace_pattern")?,
                compact: wanted.compact != 0,
                closed: wanted.closed != 0,
            },
            max_depth: wanted.limits.max_depth,
        };
        let grammar = Grammar::compile(&vocabulary, &constraint, &limits, flag(wanted.cancelled))?;
        Ok(Box::into_raw(Box::new(grammar)))
    })
}

/// # Safety
/// `grammar` came from `qtb_grammar_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_grammar_free(grammar: *mut Grammar) {
    if !grammar.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(grammar))));
    }
}

/// # Safety
/// `grammar` is alive.
#[no_mangle]
pub unsafe extern "C" fn qtb_grammar_bytes(grammar: *const Grammar) -> usize {
    (*grammar).bytes()
}

/// # Safety
/// `grammar` is alive, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_grammar_matcher(
    grammar: *const Grammar,
    out: *mut *mut Matcher,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || Ok(Box::into_raw(Box::new((*grammar).matcher()))))
}

/// # Safety
/// `matcher` is alive, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_fork(
    matcher: *const Matcher,
    out: *mut *mut Matcher,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || Ok(Box::into_raw(Box::new((*matcher).fork()))))
}

/// # Safety
/// `matcher` came from this bridge and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(matcher))));
    }
}

/// # Safety
/// `matcher` is alive and used by no other thread, `ids` are readable, `error` is writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_accept(
    matcher: *mut Matcher,
    ids: *const u32,
    size: usize,
    error: *mut QtbBytes,
) -> i32 {
    guarded(&mut (), error, || (*matcher).accept(slice(ids, size)).map_err(Failure::from))
}

/// # Safety
/// `matcher` is alive and used by no other thread, `words` has `size`, `error` is writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    size: usize,
    error: *mut QtbBytes,
) -> i32 {
    guarded(&mut (), error, || {
        let words = if size == 0 { &mut [] } else { std::slice::from_raw_parts_mut(words, size) };
        (*matcher).mask(words).map_err(Failure::from)
    })
}

/// # Safety
/// `matcher` is alive and used by no other thread, `out` and `error` are writable. The ids live
/// until the next call.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_forced(
    matcher: *mut Matcher,
    out: *mut *const u32,
    size: *mut usize,
    error: *mut QtbBytes,
) -> i32 {
    guarded(&mut (), error, || {
        let forced = (*matcher).forced()?;
        out.write(forced.as_ptr());
        size.write(forced.len());
        Ok(())
    })
}

/// # Safety
/// `matcher` is alive. Bit 0: finished; bit 1: may end.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_state(matcher: *const Matcher) -> u8 {
    u8::from((*matcher).finished()) | u8::from((*matcher).may_end()) << 1
}

/// # Safety
/// `matcher` is alive.
#[no_mangle]
pub unsafe extern "C" fn qtb_matcher_bytes(matcher: *const Matcher) -> usize {
    (*matcher).bytes()
}
