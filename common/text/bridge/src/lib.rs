//! Tokenizers, chat templates and constraints for C++, behind `quire_text_bridge.h`.
//!
//! Every entry catches panics: a hostile file may confuse a library, it must not take the process
//! down. Objects are immutable once made and may be used by any number of threads.

mod added;
mod automaton;
mod backtrack;
mod bound;
mod bpe;
mod budget;
mod charges;
mod constraint;
mod conversation;
mod counting;
mod encode;
mod fault;
mod ffi;
mod filters;
mod gbnf;
mod gbnf_writer;
mod grammar_ffi;
mod guard;
mod lark;
mod levels;
mod marks;
mod matcher;
#[cfg(test)]
mod memory;
mod merge;
mod methods;
mod nesting;
mod normal;
mod pattern;
mod program;
mod python;
mod reference;
mod schema;
mod schema_walk;
mod slices;
mod strftime;
mod structural_tag;
mod tables;
mod template;
mod tokenizer;
mod vocabulary;
mod words;
mod work;

/// Why a call failed, as the C side sees it: a code and a one-line message.
#[derive(Debug)]
pub struct Failure {
    pub code: i32,
    pub message: String,
}

pub const OK: i32 = 0;
pub const INVALID: i32 = 1;
pub const EXHAUSTED: i32 = 2;
pub const INTERNAL: i32 = 3;
pub const CANCELLED: i32 = 4;

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure { code: INVALID, message: message.into() }
    }

    pub fn cancelled() -> Self {
        Failure { code: CANCELLED, message: "the caller has given up".to_owned() }
    }

    pub fn exhausted(message: impl Into<String>) -> Self {
        Failure { code: EXHAUSTED, message: message.into() }
    }
}
