//! The library's own path from a tokenizer.json to ids. Tests hold ours against it; nothing that
//! serves calls it.

use tokenizers::Tokenizer;

use crate::Failure;

pub fn encode(json: &[u8], text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Failure> {
    let mut library = Tokenizer::from_bytes(json).map_err(|e| Failure::invalid(e.to_string()))?;
    library.with_padding(None);
    library.with_truncation(None).map_err(|e| Failure::invalid(e.to_string()))?;
    let encoding = library.encode_fast(text, add_special_tokens);
    Ok(encoding.map_err(|e| Failure::invalid(e.to_string()))?.get_ids().to_vec())
}
