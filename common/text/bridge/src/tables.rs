//! What each id adds to a text, as decoding reads it.

use std::borrow::Cow;

use crate::added::AddedTokens;
use crate::bpe::Pieces;
use crate::encode::byte_letters;
use crate::tokenizer::DecodeRules;
use crate::Failure;

/// The text of one token, and of all of them.
const MAX_TOKEN_TEXT_BYTES: usize = 4096;
const MAX_TABLE_BYTES: usize = 128 << 20;

pub const FLAG_EXISTS: u8 = 1;
pub const FLAG_SPECIAL: u8 = 2;
pub const FLAG_BYTE: u8 = 4;

/// What each id adds to a text.
#[derive(Default)]
pub struct Tables {
    pub bytes: Vec<u8>,
    /// One more than ids: id `i` owns bytes[offsets[i]..offsets[i + 1]].
    pub offsets: Vec<u32>,
    pub flags: Vec<u8>,
}

fn byte_token(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The piece as the decoder's replacements spell it.
fn replaced<'p>(id: u32, piece: &'p str, rules: &DecodeRules) -> Result<Cow<'p, str>, Failure> {
    let mut piece = Cow::Borrowed(piece);
    for (from, to) in &rules.replaces {
        let found = piece.matches(from.as_str()).count();
        if found == 0 {
            continue;
        }
        let size = piece.len() - found * from.len() + found.saturating_mul(to.len());
        if size > piece.len().max(MAX_TOKEN_TEXT_BYTES) {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: decoder Replace makes the token with id {id} longer than \
                 {MAX_TOKEN_TEXT_BYTES} bytes"
            )));
        }
        piece = Cow::Owned(piece.replace(from.as_str(), to));
    }
    Ok(piece)
}

/// The tables of all ids below `size`.
pub fn tables(
    pieces: &Pieces,
    added: &AddedTokens,
    size: usize,
    rules: &DecodeRules,
) -> Result<Tables, Failure> {
    let mut byte_of = std::collections::HashMap::new();
    for (byte, letter) in byte_letters().iter().enumerate() {
        byte_of.insert(*letter, byte as u8);
    }
    let mut tables = Tables { offsets: vec![0], ..Default::default() };
    for id in 0..size as u32 {
        let mut flags = 0;
        if let Some(spelled) = added.piece(id).or_else(|| pieces.piece(id)) {
            flags |= FLAG_EXISTS;
            if added.is_special(spelled) {
                flags |= FLAG_SPECIAL;
            }
            let piece = replaced(id, spelled, rules)?;
            let byte = if rules.byte_fallback { byte_token(&piece) } else { None };
            let start = tables.bytes.len();
            if let Some(byte) = byte {
                flags |= FLAG_BYTE;
                tables.bytes.push(byte);
            } else if rules.byte_level {
                tables.bytes.extend(piece.chars().map_while(|c| byte_of.get(&c).copied()));
                if tables.bytes.len() - start < piece.chars().count() {
                    // Spelled as plain text.
                    tables.bytes.truncate(start);
                    tables.bytes.extend_from_slice(piece.as_bytes());
                }
            } else {
                tables.bytes.extend_from_slice(piece.as_bytes());
            }
        }
        if tables.bytes.len() > MAX_TABLE_BYTES {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: the tokens decode to more than {MAX_TABLE_BYTES} bytes"
            )));
        }
        tables.offsets.push(tables.bytes.len() as u32);
        tables.flags.push(flags);
    }
    Ok(tables)
}
