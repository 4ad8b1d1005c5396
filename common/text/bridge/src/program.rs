//! The program of a regular expression with look-around, for `backtrack.rs`.
//!
//! Every instruction looks at one character at most. Copies of what is repeated and the size of the
//! whole are bounded; the parser bounds how deep groups nest.

use fancy_regex::{Assertion, Expr, LookAround};
use regex_automata::util::look::Look;
use regex_syntax::hir::{Class, Dot, Hir, HirKind};

const MAX_INSTRUCTIONS: usize = 100_000;

pub enum Instruction {
    Char(char),
    /// Ranges in rising order.
    Class(Box<[(char, char)]>),
    /// Goes on at the first; if that fails, at the second.
    Split(usize, usize),
    Jump(usize),
    Look(Look),
    Save(usize),
    /// Remembers where a round of a loop begins.
    Round(usize),
    /// Leaves the loop for `.1` after a round that matched nothing.
    EndEmptyRound(usize, usize),
    Backref(usize),
    /// Matches what follows, up to `Match`, and goes on at `next` if that is `wanted`.
    Around {
        back: Option<usize>,
        wanted: bool,
        next: usize,
    },
    /// The same without going back into it.
    Atomic {
        next: usize,
    },
    Match,
}

use Instruction as I;

struct Compiler {
    program: Vec<Instruction>,
    groups: usize,
    rounds: usize,
}

type Compiled = Result<(), String>;

impl Compiler {
    fn add(&mut self, instruction: Instruction) -> Result<usize, String> {
        if self.program.len() >= MAX_INSTRUCTIONS {
            return Err(format!("compiled it has more than {MAX_INSTRUCTIONS} instructions"));
        }
        self.program.push(instruction);
        Ok(self.program.len() - 1)
    }

    fn here(&self) -> usize {
        self.program.len()
    }

    fn alternatives<T>(
        &mut self,
        branches: &[T],
        each: &mut dyn FnMut(&mut Self, &T) -> Compiled,
    ) -> Compiled {
        let mut ends = Vec::new();
        for (i, branch) in branches.iter().enumerate() {
            if i + 1 == branches.len() {
                each(self, branch)?;
                break;
            }
            let split = self.add(I::Split(self.here() + 1, 0))?;
            each(self, branch)?;
            ends.push(self.add(I::Jump(0))?);
            self.program[split] = I::Split(split + 1, self.here());
        }
        let here = self.here();
        ends.into_iter().for_each(|end| self.program[end] = I::Jump(here));
        Ok(())
    }

    fn repeat(
        &mut self,
        (low, high, greedy): (usize, usize, bool),
        body: &mut dyn FnMut(&mut Self) -> Compiled,
    ) -> Compiled {
        let split = |greedy: bool, into: usize, out: usize| match greedy {
            true => I::Split(into, out),
            false => I::Split(out, into),
        };
        for _ in 0..low {
            body(self)?;
        }
        if high == usize::MAX {
            let slot = self.rounds;
            self.rounds += 1;
            let start = self.add(I::Jump(0))?;
            self.add(I::Round(slot))?;
            body(self)?;
            let end = self.add(I::EndEmptyRound(slot, 0))?;
            self.add(I::Jump(start))?;
            let out = self.here();
            self.program[start] = split(greedy, start + 1, out);
            self.program[end] = I::EndEmptyRound(slot, out);
            return Ok(());
        }
        let mut exits = Vec::new();
        for _ in low..high {
            exits.push(self.add(I::Jump(0))?);
            body(self)?;
        }
        let out = self.here();
        exits.into_iter().for_each(|at| self.program[at] = split(greedy, at + 1, out));
        Ok(())
    }

    fn around(&mut self, body: &Expr, kind: LookAround) -> Compiled {
        let wanted = matches!(kind, LookAround::LookAhead | LookAround::LookBehind);
        let back = match kind {
            LookAround::LookAhead | LookAround::LookAheadNeg => None,
            _ => Some(width(body).ok_or("a look-behind has no fixed size")?),
        };
        let at = self.add(I::Match)?;
        self.expression(body)?;
        self.add(I::Match)?;
        self.program[at] = I::Around { back, wanted, next: self.here() };
        Ok(())
    }

    fn expression(&mut self, e: &Expr) -> Compiled {
        match e {
            Expr::Empty => Ok(()),
            Expr::Any { newline: true } => self.hir(&Hir::dot(Dot::AnyChar)),
            Expr::Any { newline: false } => self.hir(&Hir::dot(Dot::AnyCharExceptLF)),
            Expr::Assertion(assertion) => self.add(I::Look(look_of(*assertion))).map(|_| ()),
            Expr::Literal { val, casei: false } => {
                val.chars().try_for_each(|c| self.add(I::Char(c)).map(|_| ()))
            }
            Expr::Literal { val, casei: true } => self.syntax(&regex_syntax::escape(val), true),
            Expr::Delegate { inner, casei, .. } => self.syntax(inner, *casei),
            Expr::Concat(items) => items.iter().try_for_each(|item| self.expression(item)),
            Expr::Alt(items) => self.alternatives(items, &mut |c, item| c.expression(item)),
            Expr::Group(inner) => {
                let slot = 2 * self.groups;
                self.groups += 1;
                self.add(I::Save(slot))?;
                self.expression(inner)?;
                self.add(I::Save(slot + 1)).map(|_| ())
            }
            Expr::Repeat { child, lo, hi, greedy } => {
                // Groups keep their number in each copy.
                let groups = self.groups;
                self.repeat((*lo, *hi, *greedy), &mut |c| {
                    c.groups = groups;
                    c.expression(child)
                })
            }
            Expr::LookAround(inner, kind) => self.around(inner, *kind),
            Expr::AtomicGroup(inner) => {
                let at = self.add(I::Match)?;
                self.expression(inner)?;
                self.add(I::Match)?;
                self.program[at] = I::Atomic { next: self.here() };
                Ok(())
            }
            Expr::Backref { group, casei: false } => {
                self.add(I::Backref(2 * (group.max(&1) - 1))).map(|_| ())
            }
            _ => Err("it uses more than groups, look-around, atomic groups and references".into()),
        }
    }

    fn syntax(&mut self, source: &str, ignore_case: bool) -> Compiled {
        let hir = regex_syntax::ParserBuilder::new()
            .case_insensitive(ignore_case)
            .build()
            .parse(source)
            .map_err(|e| e.to_string())?;
        self.hir(&hir)
    }

    fn hir(&mut self, hir: &Hir) -> Compiled {
        match hir.kind() {
            HirKind::Empty => Ok(()),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).map_err(|e| e.to_string())?;
                text.chars().try_for_each(|c| self.add(I::Char(c)).map(|_| ()))
            }
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class.ranges().iter().map(|r| (r.start(), r.end())).collect();
                self.add(I::Class(ranges)).map(|_| ())
            }
            HirKind::Class(Class::Bytes(class)) => {
                let ranges = class.ranges().iter();
                let ranges = ranges.map(|r| (r.start() as char, r.end() as char)).collect();
                self.add(I::Class(ranges)).map(|_| ())
            }
            HirKind::Look(_) => Err("an assertion inside a class".into()),
            HirKind::Repetition(r) => {
                let high = r.max.map_or(usize::MAX, |max| max as usize);
                self.repeat((r.min as usize, high, r.greedy), &mut |c| c.hir(&r.sub))
            }
            HirKind::Capture(capture) => self.hir(&capture.sub),
            HirKind::Concat(items) => items.iter().try_for_each(|item| self.hir(item)),
            HirKind::Alternation(items) => self.alternatives(items, &mut |c, item| c.hir(item)),
        }
    }
}

fn look_of(assertion: Assertion) -> Look {
    match assertion {
        Assertion::StartText => Look::Start,
        Assertion::EndText => Look::End,
        Assertion::StartLine { crlf: false } => Look::StartLF,
        Assertion::StartLine { crlf: true } => Look::StartCRLF,
        Assertion::EndLine { crlf: false } => Look::EndLF,
        Assertion::EndLine { crlf: true } => Look::EndCRLF,
        Assertion::LeftWordBoundary => Look::WordStartUnicode,
        Assertion::LeftWordHalfBoundary => Look::WordStartHalfUnicode,
        Assertion::RightWordBoundary => Look::WordEndUnicode,
        Assertion::RightWordHalfBoundary => Look::WordEndHalfUnicode,
        Assertion::WordBoundary => Look::WordUnicode,
        Assertion::NotWordBoundary => Look::WordUnicodeNegate,
    }
}

/// How many characters the expression matches, if always the same.
fn width(e: &Expr) -> Option<usize> {
    match e {
        Expr::Empty | Expr::Assertion(_) | Expr::LookAround(..) => Some(0),
        Expr::Any { .. } => Some(1),
        Expr::Literal { val, .. } => Some(val.chars().count()),
        Expr::Delegate { size, .. } => Some(*size),
        Expr::Concat(items) => items.iter().map(width).sum(),
        Expr::Alt(items) => {
            let first = width(items.first()?)?;
            items.iter().all(|item| width(item) == Some(first)).then_some(first)
        }
        Expr::Group(inner) | Expr::AtomicGroup(inner) => width(inner),
        Expr::Repeat { child, lo, hi, .. } if lo == hi => width(child)?.checked_mul(*lo),
        _ => None,
    }
}

/// The instructions and the number of slots that they use.
pub fn compile(source: &str) -> Result<(Vec<Instruction>, usize), String> {
    let tree = Expr::parse_tree(source).map_err(|e| e.to_string())?;
    let mut compiler = Compiler { program: Vec::new(), groups: 0, rounds: 0 };
    compiler.expression(&tree.expr)?;
    compiler.add(I::Match)?;
    let groups = 2 * compiler.groups;
    let mut program = compiler.program;
    for instruction in &mut program {
        match instruction {
            I::Round(slot) | I::EndEmptyRound(slot, _) => *slot += groups,
            I::Backref(slot) if *slot >= groups => {
                return Err("it refers to a group that isn't there".into());
            }
            _ => {}
        }
    }
    Ok((program, groups + compiler.rounds))
}
