//! Where a text is in its grammar: which tokens it may take next.

use std::sync::Arc;

use llguidance::toktrie::SimpleVob;

use crate::counting::grown;
use crate::fault::{Fault, Refusal};
use crate::vocabulary::Vocabulary;

/// `Matcher::forced` looks so many tokens ahead.
const MAX_FORCED: usize = 32;

pub struct Matcher {
    vocabulary: Arc<Vocabulary>,
    inner: llguidance::Matcher,
    /// An end-of-sequence token has been accepted.
    ended: bool,
    may_end: bool,
    /// Why every further call fails.
    failed: Option<Refusal>,
    /// The last mask, until a token is accepted.
    mask: Option<SimpleVob>,
    forced: Vec<u32>,
    bytes: isize,
}

impl Matcher {
    pub fn new(vocabulary: Arc<Vocabulary>, inner: llguidance::Matcher) -> Result<Self, Refusal> {
        let mut matcher = Matcher {
            vocabulary,
            inner,
            ended: false,
            may_end: false,
            failed: None,
            mask: None,
            forced: Vec::new(),
            bytes: 0,
        };
        matcher.call(|inner| inner.consume_tokens(&[]))?; // looks whether only the end can follow
        matcher.look()?;
        Ok(matcher)
    }

    /// Does something with the library's matcher, whose errors last.
    fn call<T>(
        &mut self,
        work: impl FnOnce(&mut llguidance::Matcher) -> anyhow::Result<T>,
    ) -> Result<T, Refusal> {
        if let Some(refusal) = &self.failed {
            return Err(refusal.clone());
        }
        let (result, bytes) = grown(|| work(&mut self.inner));
        self.bytes += bytes;
        let error = match result {
            Ok(value) if !self.inner.is_error() => return Ok(value),
            Ok(_) => self.inner.get_error().unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        Err(self.fail(Refusal::from_library(&error)))
    }

    fn fail(&mut self, refusal: Refusal) -> Refusal {
        self.failed = Some(refusal.clone());
        refusal
    }

    fn look(&mut self) -> Result<(), Refusal> {
        self.may_end = self.inner.is_stopped() || self.call(llguidance::Matcher::is_accepting)?;
        Ok(())
    }

    pub fn accept(&mut self, tokens: &[u32]) -> Result<(), Refusal> {
        if let Some(refusal) = &self.failed {
            return Err(refusal.clone());
        }
        for (index, token) in tokens.iter().enumerate() {
            if !self.take(*token)? {
                return Err(Refusal::new(
                    Fault::Malformed,
                    format!("the constraint does not allow the token with index {index}"),
                ));
            }
        }
        Ok(())
    }

    fn take(&mut self, token: u32) -> Result<bool, Refusal> {
        if self.vocabulary.end_ids.contains(&token) {
            self.ended |= self.may_end;
            return Ok(std::mem::replace(&mut self.may_end, self.ended));
        }
        if self.finished() {
            return Ok(false);
        }
        let known = self.mask.take().is_some_and(|mask| mask.is_allowed(token));
        let taken = if known {
            self.call(|inner| inner.consume_token(token))?;
            true
        } else {
            (token as usize) < self.vocabulary.width
                && self.call(|inner| inner.try_consume_tokens(&[token]))? == 1
        };
        self.look()?;
        Ok(taken)
    }

    pub fn mask(&mut self, out: &mut [u32]) -> Result<(), Refusal> {
        if let Some(refusal) = &self.failed {
            return Err(refusal.clone());
        }
        if self.finished() {
            out.fill(0);
        } else {
            if self.mask.is_none() {
                self.mask = Some(self.call(llguidance::Matcher::compute_mask)?);
            }
            let mask = self.mask.as_ref().map(SimpleVob::as_slice).unwrap_or_default();
            out.fill(0);
            let pairs = mask.iter().zip(&self.vocabulary.exists);
            for (word, (allowed, exists)) in out.iter_mut().zip(pairs) {
                *word = allowed & exists;
            }
        }
        for id in &self.vocabulary.end_ids {
            let bit = 1u32 << (id % 32);
            if let Some(word) = out.get_mut(*id as usize / 32) {
                *word = if self.may_end { *word | bit } else { *word & !bit };
            }
        }
        if out.iter().all(|word| *word == 0) && !self.finished() {
            return Err(self.fail(no_token()));
        }
        Ok(())
    }

    /// Complete, and nothing can follow.
    pub fn finished(&self) -> bool {
        self.ended || (self.failed.is_none() && self.inner.is_stopped())
    }

    pub fn may_end(&self) -> bool {
        self.may_end && self.failed.is_none()
    }

    /// Token by token, each after those before it are taken, so that they are the ones that masks
    /// would leave. A copy looks ahead: in the library's matcher what is forced stays, and makes its
    /// masks slower. Where the copy fails, this one will when it comes there.
    pub fn forced(&mut self) -> Result<&[u32], Refusal> {
        self.forced.clear();
        if let Some(refusal) = &self.failed {
            return Err(refusal.clone());
        }
        if self.finished() {
            return Ok(&self.forced);
        }
        let (inner, forced) = (&self.inner, &mut self.forced);
        let ((), bytes) = grown(|| {
            let mut ahead = inner.clone(); // shares the lexer, whose states the text will need
            while forced.len() < MAX_FORCED && !ahead.is_stopped() {
                let Some(token) = ahead.compute_ff_tokens().first().copied() else { break };
                if ahead.consume_token(token).is_err() {
                    break;
                }
                forced.push(token);
            }
        });
        self.bytes += bytes;
        Ok(&self.forced)
    }

    pub fn fork(&self) -> Self {
        let (inner, bytes) = grown(|| self.inner.deep_clone()); // a plain one shares its lexer
        Matcher {
            vocabulary: self.vocabulary.clone(),
            inner,
            ended: self.ended,
            may_end: self.may_end,
            failed: self.failed.clone(),
            mask: self.mask.clone(),
            forced: Vec::new(),
            bytes,
        }
    }

    pub fn bytes(&self) -> usize {
        let mask = self.vocabulary.width.div_ceil(8) + 64;
        std::mem::size_of::<Self>() + self.bytes.max(0) as usize + mask + 4 * MAX_FORCED
    }

    /// Why the first mask has no token: the grammar allows none, or the vocabulary has none for
    /// the bytes that it allows.
    pub fn first_mask(&mut self, writes: impl FnOnce() -> bool) -> Result<(), Refusal> {
        let mut bits = vec![0; self.vocabulary.exists.len()];
        match self.mask(&mut bits) {
            Err(refusal) if refusal.fault == Fault::MissingToken && !writes() => Err(Refusal::of(
                Fault::MatchesNothing,
                "matches no text; at least one text must match",
            )),
            Err(refusal) if refusal.fault == Fault::MissingToken => Err(no_token()),
            result => result,
        }
    }
}

fn no_token() -> Refusal {
    Refusal::of(
        Fault::MissingToken,
        "no token of the vocabulary can continue the text; use characters that its tokens spell",
    )
}
