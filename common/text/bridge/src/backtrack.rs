//! Regular expressions with look-around, matched by backtracking that counts its steps.
//!
//! The expression is read by `fancy_regex`; its own matcher bounds the branches of one match and not
//! what each of them reads, so this one runs it instead: a program in which every instruction looks
//! at one character, and is one step.

use regex_automata::util::look::LookMatcher;

use crate::program::{compile, Instruction, Instruction as I};
use crate::work::Work;
use crate::Failure;

const MAX_BRANCHES: usize = 1 << 20;
/// Steps are charged in portions of this many.
const PORTION: u64 = 256;

pub struct Backtracker {
    program: Vec<Instruction>,
    slots: usize,
    look: LookMatcher,
}

impl Backtracker {
    pub fn new(source: &str) -> Result<Self, String> {
        let (program, slots) = compile(source)?;
        Ok(Backtracker { program, slots, look: LookMatcher::new() })
    }

    /// Calls `sink(start, end)` for the matches, in order, as `find_iter` of fancy_regex gives them.
    pub fn for_each(
        &self,
        text: &str,
        work: &Work,
        part: &str,
        mut sink: impl FnMut(usize, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut run = Run {
            of: self,
            text,
            slots: vec![usize::MAX; self.slots],
            branches: Vec::new(),
            steps: 0,
            work,
            part,
        };
        let (mut at, mut last_end) = (0, None);
        while at <= text.len() {
            let next = at + text[at..].chars().next().map_or(1, char::len_utf8);
            run.slots.fill(usize::MAX);
            run.spend(self.slots as u64)?;
            let Some(end) = run.run(0, at)? else {
                at = next;
                continue;
            };
            let start = at;
            at = if end == start { next } else { end };
            if end == start && last_end == Some(end) {
                continue;
            }
            last_end = Some(end);
            sink(start, end)?;
        }
        run.pay()
    }
}

/// What is left to try, and what to put back before trying it.
enum Branch {
    At { pc: usize, at: usize },
    Slot { slot: usize, value: usize },
}

struct Run<'r> {
    of: &'r Backtracker,
    text: &'r str,
    slots: Vec<usize>,
    branches: Vec<Branch>,
    /// Not paid yet.
    steps: u64,
    work: &'r Work<'r>,
    part: &'r str,
}

impl Run<'_> {
    fn pay(&mut self) -> Result<(), Failure> {
        self.work.spend(std::mem::take(&mut self.steps), self.part)
    }

    fn spend(&mut self, steps: u64) -> Result<(), Failure> {
        self.steps += steps;
        if self.steps < PORTION {
            return Ok(());
        }
        self.pay()
    }

    fn branch(&mut self, branch: Branch) -> Result<(), Failure> {
        if self.branches.len() >= MAX_BRANCHES {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: {} has more than {MAX_BRANCHES} branches open",
                self.part
            )));
        }
        self.branches.push(branch);
        Ok(())
    }

    fn set(&mut self, slot: usize, value: usize) -> Result<(), Failure> {
        let old = std::mem::replace(&mut self.slots[slot], value);
        self.branch(Branch::Slot { slot, value: old })
    }

    /// Drops the branches above `base`. With `keep` the slots stay as they are and can still be put
    /// back by a branch below.
    fn cut(&mut self, base: usize, keep: bool) -> Result<(), Failure> {
        self.spend((self.branches.len() - base) as u64)?;
        let mut kept = base;
        for i in base..self.branches.len() {
            if keep && matches!(self.branches[i], Branch::Slot { .. }) {
                self.branches.swap(kept, i);
                kept += 1;
            }
        }
        if !keep {
            while self.branches.len() > base {
                if let Some(Branch::Slot { slot, value }) = self.branches.pop() {
                    self.slots[slot] = value;
                }
            }
        }
        self.branches.truncate(kept);
        Ok(())
    }

    /// Where the program from `pc` ends when it starts at `at`. Recurses once for each look-around
    /// that holds another: as deep as the expression nests, which its parser bounds.
    fn run(&mut self, mut pc: usize, mut at: usize) -> Result<Option<usize>, Failure> {
        let base = self.branches.len();
        let of = self.of;
        loop {
            self.spend(1)?;
            let next = match &of.program[pc] {
                I::Match => {
                    self.cut(base, true)?;
                    return Ok(Some(at));
                }
                I::Char(c) => self.text[at..].starts_with(*c).then(|| (pc + 1, at + c.len_utf8())),
                I::Class(ranges) => {
                    let c = self.text[at..].chars().next();
                    c.filter(|c| holds(ranges, *c)).map(|c| (pc + 1, at + c.len_utf8()))
                }
                I::Split(first, second) => {
                    self.branch(Branch::At { pc: *second, at })?;
                    Some((*first, at))
                }
                I::Jump(to) => Some((*to, at)),
                I::Look(look) => {
                    of.look.matches(*look, self.text.as_bytes(), at).then_some((pc + 1, at))
                }
                I::Save(slot) | I::Round(slot) => {
                    self.set(*slot, at)?;
                    Some((pc + 1, at))
                }
                I::EndEmptyRound(slot, out) => {
                    Some((if self.slots[*slot] == at { *out } else { pc + 1 }, at))
                }
                I::Backref(slot) => self.backref(*slot, at)?.map(|end| (pc + 1, end)),
                I::Around { back, wanted, next } => {
                    self.around(pc, at, *back, *wanted)?.then_some((*next, at))
                }
                I::Atomic { next } => self.run(pc + 1, at)?.map(|end| (*next, end)),
            };
            (pc, at) = match next {
                Some(next) => next,
                None => match self.resume(base) {
                    Some(branch) => branch,
                    None => return Ok(None),
                },
            };
        }
    }

    /// The last branch that is open above `base`.
    fn resume(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.branches.len() > base {
            match self.branches.pop()? {
                Branch::At { pc, at } => return Some((pc, at)),
                Branch::Slot { slot, value } => self.slots[slot] = value,
            }
        }
        None
    }

    fn backref(&mut self, slot: usize, at: usize) -> Result<Option<usize>, Failure> {
        let (from, to) = (self.slots[slot], self.slots[slot + 1]);
        if from == usize::MAX || to == usize::MAX || from > to {
            return Ok(None);
        }
        self.spend((to - from) as u64)?;
        let said = &self.text[from..to];
        Ok(self.text[at..].starts_with(said).then_some(at + said.len()))
    }

    fn around(
        &mut self,
        pc: usize,
        at: usize,
        back: Option<usize>,
        wanted: bool,
    ) -> Result<bool, Failure> {
        let mut from = at;
        for _ in 0..back.unwrap_or(0) {
            self.spend(1)?;
            match self.text[..from].chars().next_back() {
                Some(c) => from -= c.len_utf8(),
                None => return Ok(!wanted),
            }
        }
        let base = self.branches.len();
        let found = self.run(pc + 1, from)?;
        if !wanted {
            self.cut(base, false)?;
        }
        Ok(found.is_some() == wanted)
    }
}

fn holds(ranges: &[(char, char)], c: char) -> bool {
    let at = ranges.partition_point(|(_, last)| *last < c);
    ranges.get(at).is_some_and(|(first, _)| *first <= c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(source: &str, text: &str) -> Result<Vec<(usize, usize)>, Failure> {
        let mut out = Vec::new();
        let work = Work::new(text.len(), None);
        Backtracker::new(source).unwrap().for_each(text, &work, "x", |start, end| {
            out.push((start, end));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn matches_are_those_of_fancy_regex() {
        let sources = [
            r"(?=a)\w+|.",
            r"\w+(?!\d)",
            r"(?<=a)b+",
            r"(?<!\S)\S+",
            r"(\w)\1",
            r"(a|ab)(c|bcd)(d*)",
            r"(?i:'s|'re)|\p{L}+|\s+(?!\S)|\s+",
            r"\d{1,3}(?=(?:\d{3})*\b)",
            r"(?>a+)b|a",
            r"(?:a*)*b",
            r"x*?y(?=z)|\s",
            r"^\w|\w$(?=)",
            r"(?m)^.(?=b)",
            r"\b\w(?=\w)",
            r"(?=(\d+))\1",
            r"(a|b)*(?=c)",
            r"(?<=é)\w",
            r"a{2,4}?(?=a)",
            r"[^\s\p{L}](?=.)",
            r"(?:a?){3}(?!b)",
            r"(?=)",
            r"(?!x)",
            r"a|(?<!a)",
        ];
        let texts = [
            "",
            "a",
            "aab",
            "abcd",
            "aaab abc",
            "it's we'RE ok  x",
            "1234567 89",
            "aaaa",
            "xxyz y",
            "éab éé",
            "a\nb\n",
            "  a  b ",
            "112233",
            "ababc",
            "好 x b",
            "!!a b?",
        ];
        for source in sources {
            let fancy = fancy_regex::Regex::new(source).unwrap();
            for text in texts {
                let expected: Vec<_> = fancy
                    .find_iter(text)
                    .map(|m| m.unwrap())
                    .map(|m| (m.start(), m.end()))
                    .collect();
                assert_eq!(matches(source, text).unwrap(), expected, "{source} in {text:?}");
            }
        }
    }

    #[test]
    fn quadratic_and_exponential_expressions_end_in_an_error() {
        for source in [r"(?=.*z)x|.", r"(?=(a+)+b)x|.", r"(a|a)*(?=b)|a", r"(?:a+)+(?=b)|a"] {
            let failure = matches(source, &"a".repeat(100_000)).unwrap_err();
            assert_eq!(failure.code, crate::EXHAUSTED, "{source}");
            assert!(matches(source, &"a".repeat(8)).is_ok(), "{source}");
        }
        assert!(matches(r"\p{L}+(?!\d)|.", &"ab1 ".repeat(100_000)).is_ok());
        assert!(Backtracker::new(r"(?:(?:(?=a)b{100}){100}){100}").is_err());
    }
}
