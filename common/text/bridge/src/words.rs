//! From a word to ids by byte-pair merges.
//!
//! Same ids as the library's BPE: pairs are merged by rank and then from the left (Sennrich et al.,
//! "Neural Machine Translation of Rare Words with Subword Units"). Short words scan an array; long
//! ones, which hostile texts and languages without spaces bring, go through a queue.

use ahash::AHashMap;

use crate::bpe::{pair, Merges, ModelFile, Pieces};
use crate::merge::MergeQueue;
use crate::work::Work;
use crate::Failure;

const SHORT_WORD: usize = 48;
const MAX_CACHED_BYTES: usize = 64;
const MAX_CACHED_WORDS: usize = 1 << 16;
/// Marks the end of the chain, and a symbol that was merged away; no id is that high.
const NONE: u32 = u32::MAX;
const PART: &str = "model";

pub struct Model {
    pub pieces: Pieces,
    merges: Merges,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
    byte_ids: Vec<Option<u32>>,
}

impl Model {
    /// `size` is over every id.
    pub fn new(file: ModelFile, size: usize) -> Result<Self, Failure> {
        let (Some(mut pieces), Some(merges)) = (file.pieces, file.merges) else {
            return Err(Failure::invalid("tokenizer.json: model needs vocab and merges"));
        };
        pieces.index_ids(size);
        let byte_ids = (0..=255u8).map(|byte| pieces.id(&format!("<{byte:#04X}>"))).collect();
        Ok(Model {
            unk_id: file.unk_token.as_deref().and_then(|unk| pieces.id(unk)),
            pieces,
            merges,
            unk_token: file.unk_token,
            fuse_unk: file.fuse_unk,
            byte_fallback: file.byte_fallback,
            ignore_merges: file.ignore_merges,
            byte_ids,
        })
    }

    /// Whether unknown characters of neighbouring words could become one token.
    pub fn fuses_unknowns(&self) -> bool {
        let all_bytes = self.byte_fallback && self.byte_ids.iter().all(Option::is_some);
        self.unk_token.is_some() && self.fuse_unk && !all_bytes
    }

    /// Whether every byte that `needed` wants has a token of its own for unknown characters.
    pub fn has_byte_tokens(&self, needed: impl Fn(&u8) -> bool) -> bool {
        self.byte_fallback
            && (0..=255u8).filter(needed).all(|byte| self.byte_ids[byte as usize].is_some())
    }

    pub fn unknown_piece(&self) -> Option<&str> {
        self.unk_token.as_deref()
    }

    fn merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        self.merges.get(&pair(left, right)).copied()
    }

    fn unknown(&self) -> Result<Option<u32>, Failure> {
        match (&self.unk_token, self.unk_id) {
            (None, _) => Ok(None),
            (_, Some(id)) => Ok(Some(id)),
            (Some(unk), None) => Err(Failure::invalid(format!(
                "tokenizer.json: model.unk_token '{unk}' is not in the vocabulary"
            ))),
        }
    }

    /// The ids of the word's characters.
    fn spell(&self, word: &str, ids: &mut Vec<u32>) -> Result<(), Failure> {
        let mut pending = None;
        for c in word.chars() {
            let mut buffer = [0; 4];
            let character: &str = c.encode_utf8(&mut buffer);
            if let Some(id) = self.pieces.id(character) {
                ids.extend(pending.take());
                ids.push(id);
                continue;
            }
            let byte_id = |byte: u8| self.byte_ids[byte as usize];
            if self.byte_fallback && character.bytes().all(|byte| byte_id(byte).is_some()) {
                // An unknown character before these bytes comes out after them, as in the library.
                ids.extend(character.bytes().filter_map(byte_id));
                continue;
            }
            if let Some(unknown) = self.unknown()? {
                if !self.fuse_unk {
                    ids.extend(pending);
                }
                pending = Some(unknown);
            }
        }
        ids.extend(pending);
        Ok(())
    }
}

/// The words of one text and their ids so far.
pub struct Words<'m> {
    model: &'m Model,
    pub ids: Vec<u32>,
    /// Where the ids of a word stand in `ids` already.
    seen: AHashMap<Box<str>, (u32, u32)>,
    symbols: Vec<u32>,
    pairs: Vec<(u32, u32)>,
}

impl<'m> Words<'m> {
    pub fn new(model: &'m Model, capacity: usize) -> Self {
        Words {
            model,
            ids: Vec::with_capacity(capacity),
            seen: AHashMap::new(),
            symbols: Vec::new(),
            pairs: Vec::new(),
        }
    }

    pub fn add(&mut self, word: &str, work: &Work) -> Result<(), Failure> {
        if word.is_empty() {
            return Ok(());
        }
        if self.model.ignore_merges {
            if let Some(id) = self.model.pieces.id(word) {
                self.ids.push(id);
                return Ok(());
            }
        }
        if let Some((start, count)) = self.seen.get(word) {
            let start = *start as usize;
            self.ids.extend_from_within(start..start + *count as usize);
            return Ok(());
        }
        let start = self.ids.len();
        self.symbols.clear();
        self.model.spell(word, &mut self.symbols)?;
        // Only where each id is one piece do both ways see the same pairs as equal.
        if self.symbols.len() <= SHORT_WORD && self.model.pieces.ids_are_distinct {
            self.merge_short(work)?;
        } else {
            self.merge_long(work)?;
        }
        if word.len() <= MAX_CACHED_BYTES && self.seen.len() < MAX_CACHED_WORDS {
            let count = self.ids.len() - start;
            if let (Ok(start), Ok(count)) = (u32::try_from(start), u32::try_from(count)) {
                self.seen.insert(word.into(), (start, count));
            }
        }
        Ok(())
    }

    fn merge_short(&mut self, work: &Work) -> Result<(), Failure> {
        let (model, symbols, pairs) = (self.model, &mut self.symbols, &mut self.pairs);
        let none = (NONE, NONE);
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|w| model.merge(w[0], w[1]).unwrap_or(none)));
        let mut looks = 0;
        loop {
            looks += pairs.len() as u64;
            let mut best = none;
            let mut at = 0;
            for (i, pair) in pairs.iter().enumerate() {
                if pair.0 < best.0 {
                    (best, at) = (*pair, i);
                }
            }
            if best == none {
                break;
            }
            symbols[at] = best.1;
            symbols.remove(at + 1);
            pairs.remove(at);
            if at > 0 {
                pairs[at - 1] = model.merge(symbols[at - 1], symbols[at]).unwrap_or(none);
            }
            if at < pairs.len() {
                pairs[at] = model.merge(symbols[at], symbols[at + 1]).unwrap_or(none);
            }
        }
        self.ids.extend_from_slice(symbols);
        work.spend(looks, PART)
    }

    fn merge_long(&mut self, work: &Work) -> Result<(), Failure> {
        let model = self.model;
        let count = u32::try_from(self.symbols.len()).unwrap_or(NONE);
        if count == NONE {
            return Err(Failure::exhausted("a word has over 4 billion characters"));
        }
        let mut chain = Chain::new(&self.symbols);
        let mut queue = MergeQueue::default();
        for (at, w) in self.symbols.windows(2).enumerate() {
            if let Some((rank, new_id)) = model.merge(w[0], w[1]) {
                queue.push(rank, new_id, at as u32);
            }
        }
        while let Some(candidate) = queue.pop() {
            work.spend(1, PART)?;
            let at = candidate.position;
            let Some((left, right)) = chain.pair_at(at) else { continue };
            if model.merge(left, right).is_none_or(|(_, new_id)| new_id != candidate.new_id) {
                continue;
            }
            chain.merge(at, candidate.new_id);
            for start in [chain.links[at as usize].previous, at] {
                if start == NONE {
                    continue;
                }
                let Some((left, right)) = chain.pair_at(start) else { continue };
                if let Some((rank, new_id)) = model.merge(left, right) {
                    queue.push(rank, new_id, start);
                }
            }
        }
        self.ids.extend(chain.links.iter().map(|link| link.id).filter(|id| *id != NONE));
        Ok(())
    }
}

struct Link {
    id: u32,
    previous: u32,
    next: u32,
}

/// The symbols of a word as a chain in one array, so that merging moves nothing.
struct Chain {
    links: Vec<Link>,
}

impl Chain {
    fn new(symbols: &[u32]) -> Self {
        let last = symbols.len().saturating_sub(1);
        let link = |(at, id): (usize, &u32)| Link {
            id: *id,
            previous: if at == 0 { NONE } else { at as u32 - 1 },
            next: if at == last { NONE } else { at as u32 + 1 },
        };
        Chain { links: symbols.iter().enumerate().map(link).collect() }
    }

    /// The symbol at `at` and the one after it, if both stand.
    fn pair_at(&self, at: u32) -> Option<(u32, u32)> {
        let link = &self.links[at as usize];
        if link.id == NONE || link.next == NONE {
            return None;
        }
        Some((link.id, self.links[link.next as usize].id))
    }

    /// Joins the symbol at `at`, which has a next one, with that.
    fn merge(&mut self, at: u32, id: u32) {
        let next = self.links[at as usize].next;
        let after = self.links[next as usize].next;
        self.links[next as usize].id = NONE;
        self.links[at as usize].id = id;
        self.links[at as usize].next = after;
        if after != NONE {
            self.links[after as usize].previous = at;
        }
    }
}
