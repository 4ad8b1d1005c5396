//! What one call may still do, in counted steps and bytes, and whether anyone waits for it.
//!
//! A tokenizer.json is hostile input: its parts multiply each other's work. Each part charges what
//! it does here, so that the sum over the whole text is bounded, whatever the file says. Nothing is
//! timed: the same file and text always end alike.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Failure;

/// Steps for each byte of a text, and for the call itself. A step reads or writes a byte, moves an
/// expression by one place, or looks at a pair that may merge. Tokenizers of models in use take below
/// 64 a byte (tests/common/text/real_tokenizers_test.cc).
pub const STEPS_PER_BYTE: u64 = 256;
pub const BASE_STEPS: u64 = 1 << 20;
/// Bytes that normalizers and pre-tokenizers may add to a text, all together.
pub const GROWTH_PER_BYTE: usize = 32;
pub const BASE_GROWTH: usize = 4096;
pub const MAX_GROWTH: usize = 64 << 20;
/// Steps to make states of automata, for a whole call: states are kept, so that later texts need
/// few.
pub const BUILD_STEPS: u64 = 1 << 28;
/// The flag of a caller that gives up is looked at this often.
const STEPS_PER_LOOK: u64 = 1 << 16;

pub struct Work<'c> {
    allowed: u64,
    steps: Cell<u64>,
    builds: Cell<u64>,
    growth: Cell<usize>,
    until_look: Cell<u64>,
    cancelled: Option<&'c AtomicBool>,
}

impl<'c> Work<'c> {
    /// The work that a text of so many bytes may take.
    pub fn new(bytes: usize, cancelled: Option<&'c AtomicBool>) -> Self {
        let growth = bytes.saturating_mul(GROWTH_PER_BYTE).saturating_add(BASE_GROWTH);
        let allowed = BASE_STEPS + STEPS_PER_BYTE * bytes as u64;
        Work {
            allowed,
            steps: Cell::new(allowed),
            builds: Cell::new(BUILD_STEPS),
            growth: Cell::new(growth.min(MAX_GROWTH)),
            until_look: Cell::new(STEPS_PER_LOOK),
            cancelled,
        }
    }

    /// The steps that have been charged for.
    pub fn spent(&self) -> u64 {
        self.allowed - self.steps.get()
    }

    /// Charges for steps that `part` of the file takes.
    #[inline]
    pub fn spend(&self, steps: u64, part: &str) -> Result<(), Failure> {
        let left = self.steps.get();
        if steps > left {
            return Err(too_much_work(part));
        }
        self.steps.set(left - steps);
        let until = self.until_look.get();
        if steps <= until {
            self.until_look.set(until - steps);
            return Ok(());
        }
        self.look()
    }

    /// Charges for making states of the automaton of `part`.
    pub fn build(&self, steps: u64, part: &str) -> Result<(), Failure> {
        let Some(left) = self.builds.get().checked_sub(steps) else {
            return Err(Failure::exhausted(format!(
                "tokenizer.json: the expression of {part} needs too many states for this text"
            )));
        };
        self.builds.set(left);
        self.look()
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> Result<(), Failure> {
        self.until_look.set(STEPS_PER_LOOK);
        match self.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Failure::cancelled()),
            _ => Ok(()),
        }
    }

    /// How many bytes the text may still grow by.
    pub fn growth_left(&self) -> usize {
        self.growth.get()
    }

    /// Charges for a text that `part` of the file has made longer.
    #[inline]
    pub fn grow(&self, bytes: usize, part: &str) -> Result<(), Failure> {
        let left = self.growth.get();
        if bytes > left {
            return Err(too_long(part));
        }
        self.growth.set(left - bytes);
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn too_much_work(part: &str) -> Failure {
    Failure::exhausted(format!(
        "tokenizer.json: {part} takes more than {STEPS_PER_BYTE} steps for each byte of the text"
    ))
}

#[cold]
#[inline(never)]
fn too_long(part: &str) -> Failure {
    Failure::exhausted(format!(
        "tokenizer.json: {part} makes the text longer by more than {GROWTH_PER_BYTE} times its \
         size, or by more than {} MiB",
        MAX_GROWTH >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_the_limit_and_name_the_part() {
        let work = Work::new(10, None);
        assert!(work.spend(BASE_STEPS + 10 * STEPS_PER_BYTE, "x").is_ok());
        let failure = work.spend(1, "the part").unwrap_err();
        assert_eq!(failure.code, crate::EXHAUSTED);
        assert!(failure.message.contains("the part takes more than 256 steps"));
    }

    #[test]
    fn growth_ends_at_the_limit() {
        let work = Work::new(10, None);
        assert!(work.grow(BASE_GROWTH + 10 * GROWTH_PER_BYTE, "x").is_ok());
        assert!(work.grow(1, "x").is_err());
        let long = Work::new(1 << 30, None);
        assert!(long.grow(MAX_GROWTH, "x").is_ok() && long.grow(1, "x").is_err());
    }

    #[test]
    fn a_flag_ends_the_work_soon() {
        let flag = AtomicBool::new(false);
        let work = Work::new(1 << 20, Some(&flag));
        assert!(work.spend(STEPS_PER_LOOK, "x").is_ok());
        flag.store(true, Ordering::Relaxed);
        assert_eq!(work.spend(STEPS_PER_LOOK + 1, "x").unwrap_err().code, crate::CANCELLED);
    }
}
