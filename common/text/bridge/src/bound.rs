//! How much text one token can stand for, proven from the file: a text that has too many tokens for
//! a context, however few it has for its size, is refused without being tokenised.
//!
//! Every byte of a text that weighs is charged to one character of what each step makes of the text
//! (`charges.rs`), and in the end to one token. Where a step can drop characters that weigh, or join
//! any number of them into one token, there is no bound, and `NoBound` says why. White space weighs
//! nothing where some step strips it. Bounds err on the safe side alone: what is charged twice makes
//! tokens look larger.

use ahash::AHashMap;

use crate::added::AddedTokens;
use crate::charges::Charges;
use crate::encode::{byte_letters, Step};
use crate::normal::Normal;
use crate::words::Model;

/// Why one token can stand for any amount of text.
pub type NoBound = &'static str;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// No token stands for more bytes that weigh.
    pub token_bytes: usize,
    /// Whether white space counts.
    pub spaces_weigh: bool,
}

impl Bound {
    /// As many tokens as `text` has, or fewer. `mark` is no text.
    pub fn fewest_tokens(&self, text: &str, mark: Option<char>) -> usize {
        let mut weight = text.len();
        if let Some(mark) = mark {
            weight -= text.matches(mark).count() * mark.len_utf8();
        }
        if !self.spaces_weigh {
            let spaces = text.chars().filter(|c| c.is_whitespace());
            weight -= spaces.map(char::len_utf8).sum::<usize>();
        }
        weight.div_ceil(self.token_bytes)
    }
}

/// The parts of a tokenizer.json that say what becomes of a text.
pub struct Parts<'p> {
    pub added: &'p AddedTokens,
    pub normals: &'p [Normal],
    pub steps: &'p [Step],
    pub model: &'p Model,
}

pub fn bound(parts: &Parts) -> Result<Bound, NoBound> {
    let strips =
        |normal: &Normal| matches!(normal, Normal::Strip { left, right } if *left || *right);
    let added_strips = parts.added.tokens().any(|(token, _)| token.lstrip || token.rstrip);
    let spaces_weigh = !added_strips && !parts.normals.iter().any(strips);
    let mut charges = Charges::new(spaces_weigh);
    for normal in parts.normals {
        charges.normalize(normal)?;
    }
    let mut longest = 0;
    for (token, normalized) in parts.added.tokens() {
        let strips = token.lstrip || token.rstrip;
        if token.normalized {
            longest = longest.max(charges.of_text(normalized));
            if strips && charges.space_is_charged() {
                return Err("an added token strips white space that was other text");
            }
        } else {
            longest = longest.max(token.content.len() as u64);
        }
    }
    let mut byte_level = false;
    for step in parts.steps {
        charges.pre_tokenize(step, byte_level)?;
        byte_level |= matches!(step, Step::ByteLevel { .. });
    }
    longest = longest.max(longest_piece(parts.model, &charges, byte_level)?);
    let token_bytes = usize::try_from(longest).map_err(|_| "a token stands for too much text")?;
    Ok(Bound { token_bytes: token_bytes.max(1), spaces_weigh })
}

fn longest_piece(model: &Model, charges: &Charges, byte_level: bool) -> Result<u64, NoBound> {
    // Merges go by ids: of two pieces with one id either may be what was merged.
    if !model.pieces.ids_are_distinct {
        return Err("two pieces have one id");
    }
    let letters = byte_letters();
    // These bytes are in no UTF-8.
    let in_text = |byte: &u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff);
    let all_letters = (0..=255u8)
        .filter(in_text)
        .all(|byte| model.pieces.id(letters[byte as usize].encode_utf8(&mut [0; 4])).is_some());
    let all_bytes = model.has_byte_tokens(in_text);
    let mut unknown = None;
    if !(all_bytes || (byte_level && all_letters)) {
        unknown = Some(model.unknown_piece().ok_or("the model drops characters")?);
        if model.fuse_unk {
            return Err("the model joins unknown characters");
        }
    }
    // What a byte token or an unknown character may stand for: each has its spelling in the piece.
    let other = charges.most();
    let of_bytes: AHashMap<char, u8> = letters.into_iter().zip(0..=255u8).collect();
    let mut longest = other;
    for (piece, _) in model.pieces.iter() {
        let spelled = if byte_level {
            let bytes: Vec<u8> = piece.chars().filter_map(|c| of_bytes.get(&c).copied()).collect();
            charges.of_bytes(&bytes, other)
        } else {
            charges.of_text(piece)
        };
        let bytes = if model.byte_fallback { piece.matches("<0x").count() } else { 0 };
        let unknowns = unknown.map_or(0, |unknown| piece.matches(unknown).count());
        let others = other.saturating_mul((bytes + unknowns) as u64);
        longest = longest.max(spelled.saturating_add(others));
    }
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::LoadedTokenizer;
    use crate::work::Work;
    use serde_json::{json, Value as Json};

    /// Short and long pieces over characters that normalizers change.
    const PIECES: [&str; 15] = [
        "a",
        "k",
        "K",
        "e",
        ";",
        " ",
        "\u{2581}",
        "\u{e9}",
        "\u{301}",
        "aa",
        "aaaa",
        "\u{2581}k",
        "  ",
        "fi",
        "\u{390}",
    ];
    const MERGES: [&str; 5] = ["a a", "aa aa", "\u{2581} k", "f i", "a k"];
    /// Kelvin and ohm signs, a Greek question mark, spaces, marks, a ligature, Hangul, an emoji.
    const TEXTS: [&str; 27] = [
        "a",
        "aa",
        "aaaa",
        "k",
        "\u{212a}",
        "\u{2126}",
        "\u{37e}",
        " ",
        "  ",
        "\u{3000}",
        "\u{2581}",
        "e",
        "\u{301}",
        "\u{e9}",
        "\u{fb01}",
        "fi",
        "\u{fdfa}",
        "\u{ac01}",
        "\u{1100}\u{1161}\u{11a8}",
        "\u{1f642}",
        "<s>",
        "x",
        "\u{390}",
        "\u{3b9}\u{308}\u{301}",
        "\u{130}",
        "<0x41>",
        "\u{a8}",
    ];

    fn file(normalizer: Json, pre_tokenizer: Json, bytes: bool) -> Json {
        let mut vocab = serde_json::Map::new();
        let mut add = |piece: String| {
            let id = vocab.len();
            vocab.entry(piece).or_insert(json!(id));
        };
        add("<unk>".to_owned());
        PIECES.iter().for_each(|piece| add((*piece).to_owned()));
        add("ak".to_owned());
        add("f".to_owned());
        add("i".to_owned());
        if bytes {
            (0..=255u8).for_each(|byte| add(format!("<{byte:#04X}>")));
        } else {
            byte_letters().iter().for_each(|letter| add(letter.to_string()));
        }
        let token = |content: &str, strip: bool| {
            json!({"id": 0, "content": content, "single_word": false, "lstrip": strip,
                   "rstrip": strip, "normalized": false, "special": true})
        };
        json!({"added_tokens": [token("<s>", false)], "normalizer": normalizer,
               "pre_tokenizer": pre_tokenizer, "decoder": {"type": "Fuse"},
               "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": bytes,
                         "byte_fallback": bytes, "vocab": vocab, "merges": MERGES}})
    }

    fn load(file: &Json) -> LoadedTokenizer {
        LoadedTokenizer::load(&file.to_string(), 10_000).unwrap_or_else(|f| panic!("{}", f.message))
    }

    fn count(tokenizer: &LoadedTokenizer, text: &str, mark: Option<char>) -> usize {
        let ids = tokenizer.encode(text, false, mark, &Work::new(text.len(), None));
        ids.unwrap_or_else(|failure| panic!("{}", failure.message)).len()
    }

    fn byte_level() -> Json {
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
               "use_regex": false})
    }

    fn metaspace() -> Json {
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always",
               "split": true})
    }

    fn replace(from: Json, to: &str) -> Json {
        json!({"type": "Replace", "pattern": from, "content": to})
    }

    fn normalizers() -> Vec<Json> {
        let plain = |kind: &str| json!({"type": kind});
        let literal = |from: &str, to: &str| replace(json!({"String": from}), to);
        let list = |items: Vec<Json>| json!({"type": "Sequence", "normalizers": items});
        let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        let prepend = json!({"type": "Prepend", "prepend": "\u{2581}"});
        vec![
            Json::Null,
            plain("NFC"),
            plain("NFD"),
            plain("NFKC"),
            plain("NFKD"),
            plain("Lowercase"),
            strip.clone(),
            list(vec![prepend, literal(" ", "\u{2581}")]),
            literal("aaaa", "a"),
            list(vec![literal("\u{ac01}", "a"), literal("aa", "a"), plain("NFKC")]),
            list(vec![plain("Lowercase"), plain("NFKD"), plain("NFC")]),
            list(vec![plain("NFC"), strip]),
        ]
    }

    /// Texts of the same parts for every tokenizer: runs, and mixtures from a fixed seed.
    fn texts() -> Vec<String> {
        let mut texts: Vec<String> = TEXTS.iter().map(|part| part.repeat(60)).collect();
        let mut state = 1u64;
        for _ in 0..400 {
            let mut text = String::new();
            for _ in 0..40 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text.push_str(TEXTS[(state >> 33) as usize % TEXTS.len()]);
            }
            texts.push(text);
        }
        texts
    }

    #[test]
    fn no_text_has_fewer_tokens_than_its_bound() {
        let texts = texts();
        for (steps, bytes) in [(byte_level(), false), (metaspace(), true), (Json::Null, true)] {
            for normalizer in normalizers() {
                let tokenizer = load(&file(normalizer.clone(), steps.clone(), bytes));
                let bound = tokenizer.bound.unwrap_or_else(|why| panic!("{normalizer}: {why}"));
                assert!(bound.token_bytes <= 128, "{normalizer}: {bound:?}");
                for text in &texts {
                    let count = count(&tokenizer, text, None);
                    let fewest = tokenizer.fewest_tokens(text, None);
                    assert!(fewest <= count, "{normalizer} {steps}: {text:?} {fewest} > {count}");
                }
            }
        }
    }

    #[test]
    fn a_bound_is_what_some_text_needs() {
        let tokenizer = load(&file(Json::Null, byte_level(), false));
        // The longest piece is "<unk>", as plain text.
        assert_eq!(tokenizer.fewest_tokens(&"aaaa".repeat(100), None), 100 * 4 / 5);
        assert_eq!(tokenizer.fewest_tokens("", None), 0);
        assert_eq!(tokenizer.fewest_tokens("a", None), 1);
        let kelvin = load(&file(json!({"type": "NFC"}), byte_level(), false));
        let signs = "\u{212a}".repeat(100);
        assert_eq!(count(&kelvin, &signs, None), 100);
        assert!(kelvin.fewest_tokens(&signs, None) > 0);
    }

    #[test]
    fn what_weighs_nothing_is_not_counted() {
        let mut stripping = file(Json::Null, byte_level(), false);
        stripping["added_tokens"][0]["rstrip"] = json!(true);
        let tokenizer = load(&stripping);
        let text = format!("<s>{}", " ".repeat(10_000));
        assert_eq!(count(&tokenizer, &text, None), 1);
        assert_eq!(tokenizer.fewest_tokens(&text, None), 1);
        assert!(tokenizer.fewest_tokens(&"a ".repeat(1000), None) >= 100);
        let plain = load(&file(Json::Null, byte_level(), false));
        let marked = "\u{fdd0}".repeat(5000) + "a";
        assert_eq!(count(&plain, &marked, Some('\u{fdd0}')), 1);
        assert_eq!(plain.fewest_tokens(&marked, Some('\u{fdd0}')), 1);
    }

    fn why(file: &Json) -> NoBound {
        load(file).bound.expect_err("there is no bound")
    }

    #[test]
    fn where_there_is_no_bound_the_reason_is_said() {
        let made = |normalizer| file(normalizer, byte_level(), false);
        let literal = |from: &str, to: &str| replace(json!({"String": from}), to);
        assert_eq!(why(&made(literal("a", ""))), "a normalizer takes text away");
        let spaces = replace(json!({"Regex": "\\s+"}), " ");
        assert_eq!(why(&made(spaces)), "a normalizer replaces matches of any length");
        assert_eq!(why(&made(json!({"type": "StripAccents"}))), "a normalizer takes accents away");
        let strip = json!({"type": "Strip", "strip_left": true, "strip_right": false});
        let late = json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, strip]});
        assert_eq!(why(&made(late)), "a normalizer strips white space that was other text");
        let removed = json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"String": "x"}, "behavior": "Removed", "invert": false},
            byte_level()]});
        let removing = file(Json::Null, removed, false);
        assert_eq!(why(&removing), "the pre-tokenizer takes text away");
        let twice = json!({"type": "Sequence", "pretokenizers": [byte_level(), byte_level()]});
        let spelling = file(Json::Null, twice, false);
        assert_eq!(why(&spelling), "the pre-tokenizer changes what stands for bytes");
        let mut fusing = file(Json::Null, metaspace(), false);
        fusing["model"]["fuse_unk"] = json!(true);
        assert_eq!(why(&fusing), "the model joins unknown characters");
        assert_eq!(count(&load(&fusing), &"\u{1f642}".repeat(999), None), 2);
        fusing["model"]["unk_token"] = Json::Null;
        assert_eq!(why(&fusing), "the model drops characters");
        let mut shared = file(Json::Null, byte_level(), false);
        let id = shared["model"]["vocab"]["a"].clone();
        shared["model"]["vocab"]["aa"] = id;
        shared["model"]["merges"] = json!(["a a"]);
        assert_eq!(why(&shared), "two pieces have one id");
        assert_eq!(count(&load(&shared), &"a".repeat(4096), None), 1);
    }
}
