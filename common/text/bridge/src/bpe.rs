//! The model of a tokenizer.json, read in one pass: every piece is copied once into one string, and
//! merges become pairs of ids as they are read.

use std::fmt;

use ahash::{AHashMap, RandomState};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Room for this many merges at most is made before they are read.
const MAX_RESERVED: usize = 1 << 20;
const NO_ENTRY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    size: u32,
    id: u32,
}

/// Pieces and their ids. The hash is keyed at random, so no file can make its pieces collide.
#[derive(Default)]
pub struct Pieces {
    text: String,
    entries: Vec<Entry>,
    /// Open addressing: part of the hash and an index into `entries`.
    slots: Vec<(u32, u32)>,
    hasher: RandomState,
    /// The entry of each id; filled by `index_ids`.
    by_id: Vec<u32>,
    pub ids_are_distinct: bool,
}

impl Pieces {
    fn spelling(&self, entry: &Entry) -> &str {
        &self.text[entry.start as usize..(entry.start + entry.size) as usize]
    }

    fn append(&mut self, piece: &str) -> (u32, u32) {
        let start = self.text.len() as u32;
        self.text.push_str(piece);
        (start, piece.len() as u32)
    }

    /// Where the piece is, or the free slot where it would be.
    fn probe(&self, piece: &str) -> (u32, Result<u32, usize>) {
        let hash = self.hasher.hash_one(piece);
        let tag = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (other, index) = self.slots[at];
            if index == NO_ENTRY {
                return (tag, Err(at));
            }
            if other == tag && self.spelling(&self.entries[index as usize]) == piece {
                return (tag, Ok(index));
            }
            at = (at + 1) & mask;
        }
    }

    /// Makes pieces findable. Of equal pieces the last one's id counts, as in a map.
    fn index(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        self.entries.reserve_exact(entries.len());
        self.slots = vec![(0, NO_ENTRY); (entries.len() * 2).next_power_of_two().max(2)];
        for entry in entries {
            match self.probe(self.spelling(&entry)) {
                (_, Ok(index)) => self.entries[index as usize].id = entry.id,
                (tag, Err(slot)) => {
                    self.slots[slot] = (tag, self.entries.len() as u32);
                    self.entries.push(entry);
                }
            }
        }
    }

    /// Makes ids findable. `size` is over every id.
    pub fn index_ids(&mut self, size: usize) {
        self.by_id = vec![NO_ENTRY; size];
        self.ids_are_distinct = true;
        for (index, entry) in self.entries.iter().enumerate() {
            let slot = &mut self.by_id[entry.id as usize];
            self.ids_are_distinct &= *slot == NO_ENTRY;
            *slot = index as u32;
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn id(&self, piece: &str) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.probe(piece).1.ok().map(|index| self.entries[index as usize].id)
    }

    pub fn piece(&self, id: u32) -> Option<&str> {
        let index = *self.by_id.get(id as usize)?;
        self.entries.get(index as usize).map(|entry| self.spelling(entry))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.entries.iter().map(|entry| (self.spelling(entry), entry.id))
    }
}

/// Rank and new id of each pair of ids.
pub type Merges = AHashMap<u64, (u32, u32)>;

pub fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The member `model` as it is spelled. `pieces` and `merges` are None if they are missing or of
/// another model's form.
#[derive(Default)]
pub struct ModelFile {
    pub kind: Option<String>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub dropout: Option<f64>,
    pub unk_token: Option<String>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
    pub pieces: Option<Pieces>,
    pub merges: Option<Merges>,
}

impl<'de> Deserialize<'de> for ModelFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

/// A merge that stands before the vocabulary in its file.
#[derive(Deserialize)]
#[serde(untagged)]
enum EarlyMerge {
    List(String, String),
    Line(String),
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = ModelFile;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelFile, A::Error> {
        let mut model = ModelFile::default();
        let mut early: Option<Vec<EarlyMerge>> = None;
        while let Some(key) = map.next_key::<String>()? {
            let other = model.kind.as_deref().is_some_and(|kind| kind != "BPE");
            match key.as_str() {
                "type" => model.kind = map.next_value()?,
                "continuing_subword_prefix" => {
                    model.continuing_subword_prefix = map.next_value()?
                }
                "end_of_word_suffix" => model.end_of_word_suffix = map.next_value()?,
                "dropout" => model.dropout = map.next_value()?,
                "unk_token" => model.unk_token = map.next_value()?,
                "fuse_unk" => model.fuse_unk = map.next_value::<Option<_>>()?.unwrap_or(false),
                "byte_fallback" => {
                    model.byte_fallback = map.next_value::<Option<_>>()?.unwrap_or(false)
                }
                "ignore_merges" => {
                    model.ignore_merges = map.next_value::<Option<_>>()?.unwrap_or(false)
                }
                "vocab" if model.pieces.is_some() => {
                    return Err(A::Error::duplicate_field("vocab"));
                }
                "vocab" if !other => model.pieces = map.next_value_seed(VocabSeed)?,
                "merges" if !other => match &model.pieces {
                    Some(pieces) => {
                        model.merges = Some(map.next_value_seed(MergeList::new(pieces))?);
                        early = None;
                    }
                    None => early = Some(map.next_value()?),
                },
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if let (Some(pieces), Some(early)) = (&model.pieces, early) {
            let mut list = MergeList::new(pieces);
            for merge in &early {
                let added = match merge {
                    EarlyMerge::List(left, right) => list.add_list(left, right),
                    EarlyMerge::Line(line) => list.add_line(line),
                };
                added.map_err(A::Error::custom)?;
            }
            model.merges = Some(list.finish().map_err(A::Error::custom)?);
        }
        Ok(model)
    }
}

struct VocabSeed;

impl<'de> DeserializeSeed<'de> for VocabSeed {
    type Value = Option<Pieces>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for VocabSeed {
    type Value = Option<Pieces>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    // Other models list their pieces; their type is reported, not their vocabulary.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pieces = Pieces::default();
        while let Some((start, size)) = map.next_key_seed(PieceSeed(&mut pieces))? {
            let id = map.next_value()?;
            pieces.entries.push(Entry { start, size, id });
        }
        pieces.index();
        Ok(Some(pieces))
    }
}

struct PieceSeed<'p>(&'p mut Pieces);

impl<'de> DeserializeSeed<'de> for PieceSeed<'_> {
    type Value = (u32, u32);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for PieceSeed<'_> {
    type Value = (u32, u32);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a piece")
    }

    fn visit_str<E: Error>(self, piece: &str) -> Result<Self::Value, E> {
        Ok(self.0.append(piece))
    }
}

/// Merges as they are read: "left right", or lists of two, one spelling in one file.
struct MergeList<'p> {
    pieces: &'p Pieces,
    merges: Merges,
    read: u32,
    lists: bool,
    lines: bool,
    joined: String,
}

impl<'p> MergeList<'p> {
    fn new(pieces: &'p Pieces) -> Self {
        let merges = Merges::with_capacity((pieces.len() * 2).min(MAX_RESERVED));
        let joined = String::new();
        MergeList { pieces, merges, read: 0, lists: false, lines: false, joined }
    }

    fn id(&self, piece: &str) -> Result<u32, String> {
        let id = self.pieces.id(piece);
        id.ok_or_else(|| format!("model.merges: '{piece}' is not in the vocabulary"))
    }

    fn add(&mut self, left: &str, right: &str) -> Result<(), String> {
        self.joined.clear();
        self.joined.push_str(left);
        self.joined.push_str(right);
        let key = pair(self.id(left)?, self.id(right)?);
        self.merges.insert(key, (self.read, self.id(&self.joined)?));
        self.read += 1;
        Ok(())
    }

    fn add_list(&mut self, left: &str, right: &str) -> Result<(), String> {
        self.lists = true;
        self.add(left, right)
    }

    fn add_line(&mut self, line: &str) -> Result<(), String> {
        self.lines = true;
        if line.starts_with("#version") {
            return Ok(());
        }
        match line.split_once(' ') {
            Some((left, right)) if !right.contains(' ') => self.add(left, right),
            _ => Err("model.merges: an entry is not two pieces with a space between".to_owned()),
        }
    }

    fn finish(self) -> Result<Merges, String> {
        if self.lists && self.lines {
            return Err("model.merges mixes strings and lists".to_owned());
        }
        Ok(self.merges)
    }
}

impl<'de> DeserializeSeed<'de> for MergeList<'_> {
    type Value = Merges;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergeList<'_> {
    type Value = Merges;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Merges, A::Error> {
        while list.next_element_seed(MergeSeed(&mut self))?.is_some() {}
        self.finish().map_err(A::Error::custom)
    }
}

struct MergeSeed<'m, 'p>(&'m mut MergeList<'p>);

impl<'de> DeserializeSeed<'de> for MergeSeed<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MergeSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge: two pieces")
    }

    fn visit_str<E: Error>(self, line: &str) -> Result<(), E> {
        self.0.add_line(line).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let (Some(Text(left)), Some(Text(right)), None) = (
            list.next_element::<Text>()?,
            list.next_element::<Text>()?,
            list.next_element::<IgnoredAny>()?,
        ) else {
            return Err(A::Error::custom("model.merges: an entry is not a list of two pieces"));
        };
        self.0.add_list(&left, &right).map_err(A::Error::custom)
    }
}

/// A string that is borrowed from the file where it holds no escapes.
struct Text<'t>(std::borrow::Cow<'t, str>);

impl<'de: 't, 't> Deserialize<'de> for Text<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a piece")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(text.into()))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}
