//! Regular expressions without look-around, matched by an automaton that counts what it reads.
//!
//! One search reads each byte once. All searches over a text need not: an expression like `.*z|a`
//! reads to the end of the text for each `a`. So every byte that a search reads is charged, and the
//! states that the automaton makes on the way are as well: making one may walk the whole expression.

use std::panic::{RefUnwindSafe, UnwindSafe};

use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::pool::Pool;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};

use crate::work::Work;
use crate::Failure;

/// The compiled expression; those of models in use stay below a fifth of this.
const MAX_EXPRESSION_BYTES: usize = 2 << 20;
/// States that are kept between searches.
const CACHE_BYTES: usize = 4 << 20;
/// What a state takes at least, beside its transitions.
const STATE_BYTES: usize = 16;

type MakeCache = Box<dyn Fn() -> Cache + Send + Sync + UnwindSafe + RefUnwindSafe>;

pub struct Automaton {
    dfa: DFA,
    caches: Pool<Cache, MakeCache>,
    /// Bytes with which a match that isn't empty can start.
    starts: [bool; 256],
    may_be_empty: bool,
    state_bytes: usize,
    steps_per_state: u64,
}

pub struct Found {
    pub start: usize,
    pub end: usize,
    /// Which of the expressions has matched.
    pub pattern: usize,
}

impl Automaton {
    /// One automaton for all expressions, of which the first that matches wins. None: they look
    /// around.
    pub fn new(patterns: &[&str]) -> Result<Option<Self>, String> {
        let dfa = DFA::builder()
            .configure(
                Config::new()
                    .match_kind(MatchKind::LeftmostFirst)
                    .cache_capacity(CACHE_BYTES)
                    .skip_cache_capacity_check(true),
            )
            .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_EXPRESSION_BYTES)))
            .build_many(patterns);
        let dfa = match dfa {
            Ok(dfa) => dfa,
            Err(e) if e.to_string().contains("NFA") => {
                let too_big = thompson::Compiler::new()
                    .configure(thompson::Config::new().nfa_size_limit(Some(MAX_EXPRESSION_BYTES)))
                    .build_many(patterns)
                    .err()
                    .is_some_and(|e| e.size_limit().is_some());
                return if too_big {
                    Err(format!("compiled it has more than {MAX_EXPRESSION_BYTES} bytes"))
                } else {
                    Ok(None)
                };
            }
            Err(_) => return Ok(None),
        };
        if !dfa.get_nfa().look_set_any().is_empty() {
            return Ok(None);
        }
        let mut cache = dfa.create_cache();
        let anchored = start::Config::new().anchored(Anchored::Yes);
        let first = dfa.start_state(&mut cache, &anchored).map_err(|e| e.to_string())?;
        let mut starts = [false; 256];
        for (byte, starts) in (0..=255u8).zip(starts.iter_mut()) {
            let next = dfa.next_state(&mut cache, first, byte).map_err(|e| e.to_string())?;
            *starts = !next.is_dead();
        }
        let for_caches = dfa.clone();
        let make: MakeCache = Box::new(move || for_caches.create_cache());
        Ok(Some(Automaton {
            may_be_empty: dfa.get_nfa().has_empty(),
            state_bytes: (4 << dfa.byte_classes().stride2()) + STATE_BYTES,
            steps_per_state: dfa.get_nfa().memory_usage() as u64 / 8,
            dfa,
            caches: Pool::new(make),
            starts,
        }))
    }

    /// Calls `sink` with the matches, in order, as `find_iter` of the regex crate gives them.
    pub fn for_each(
        &self,
        text: &str,
        work: &Work,
        part: &str,
        mut sink: impl FnMut(&Found) -> Result<usize, Failure>,
    ) -> Result<(), Failure> {
        let mut cache = self.caches.get();
        let mut kept = Kept::of(&cache);
        let (mut at, mut last_end) = (0, None);
        while at <= text.len() {
            let found = self.find(&mut cache, text, at, work, part)?;
            kept.charge(self, &cache, work, part)?;
            let Some(found) = found else { break };
            if found.start == found.end {
                at = found.end + text[found.end..].chars().next().map_or(1, char::len_utf8);
                if last_end == Some(found.end) {
                    continue;
                }
            }
            let end = sink(&found)?;
            if found.start < found.end {
                at = end;
            }
            last_end = Some(end);
        }
        Ok(())
    }

    /// The first match that starts at `at` or later.
    fn find(
        &self,
        cache: &mut Cache,
        text: &str,
        mut at: usize,
        work: &Work,
        part: &str,
    ) -> Result<Option<Found>, Failure> {
        let bytes = text.as_bytes();
        let anchored = start::Config::new().anchored(Anchored::Yes);
        loop {
            if !self.may_be_empty {
                let from = at;
                while at < bytes.len() && !self.starts[bytes[at] as usize] {
                    at += 1;
                }
                work.spend((at - from) as u64, part)?;
            }
            if at > bytes.len() || (at == bytes.len() && !self.may_be_empty) {
                return Ok(None);
            }
            let gave_up = |e: &dyn std::fmt::Display| {
                Failure::invalid(format!("tokenizer.json: {part}: {e}"))
            };
            let mut state = self.dfa.start_state(cache, &anchored).map_err(|e| gave_up(&e))?;
            let mut found = None;
            let mut read = at;
            loop {
                // A state tells of a match one byte after its end.
                state = if read < bytes.len() {
                    self.dfa.next_state(cache, state, bytes[read])
                } else {
                    self.dfa.next_eoi_state(cache, state)
                }
                .map_err(|e| gave_up(&e))?;
                if state.is_tagged() {
                    if state.is_match() {
                        let pattern = self.dfa.match_pattern(cache, state, 0).as_usize();
                        found = Some(Found { start: at, end: read, pattern });
                    } else if state.is_dead() {
                        break;
                    }
                }
                if read == bytes.len() {
                    break;
                }
                read += 1;
            }
            work.spend((read - at + 1) as u64, part)?;
            if found.is_some() {
                return Ok(found);
            }
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
}

/// What a cache held when it was last looked at.
struct Kept {
    bytes: usize,
    clears: usize,
}

impl Kept {
    fn of(cache: &Cache) -> Self {
        Kept { bytes: cache.memory_usage(), clears: cache.clear_count() }
    }

    /// Charges for the states that were made since.
    fn charge(
        &mut self,
        automaton: &Automaton,
        cache: &Cache,
        work: &Work,
        part: &str,
    ) -> Result<(), Failure> {
        let now = Kept::of(cache);
        let made = (now.clears - self.clears) * CACHE_BYTES + now.bytes.saturating_sub(self.bytes);
        *self = now;
        if made == 0 {
            return Ok(());
        }
        let states = (made / automaton.state_bytes + 1) as u64;
        work.build(states.saturating_mul(automaton.steps_per_state), part)
    }
}
