//! What one rendering may still do: bytes it may touch, bytes it may make. One per thread while it
//! renders.
//!
//! The engine counts instructions; one instruction can copy megabytes, so everything that grows is
//! charged here as well. A template that runs out ends in an error.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::marks::Marks;
use crate::template::Namespace;

/// Lists in lists, mappings in mappings: at most so deep.
pub const MAX_DEPTH: usize = 64;
/// No single string may be longer.
pub const MAX_STRING_BYTES: usize = 64 << 20;
pub const NODE_BYTES: u64 = 16;
/// The flag of a caller that gives up is looked at once in so many charges.
const CHARGES_PER_LOOK: u32 = 256;

thread_local! {
    static TOUCH: Cell<u64> = const { Cell::new(0) };
    static MAKE: Cell<u64> = const { Cell::new(0) };
    static EXHAUSTED: Cell<bool> = const { Cell::new(false) };
    static RAISED: RefCell<Option<String>> = const { RefCell::new(None) };
    static NAMESPACES: RefCell<Vec<Arc<Namespace>>> = const { RefCell::new(Vec::new()) };
    static NOW: Cell<i64> = const { Cell::new(0) };
    static CANCELLED: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
    static MARKS: Cell<Option<Marks<'static>>> = const { Cell::new(None) };
    static CHARGES: Cell<u32> = const { Cell::new(0) };
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
}

/// The budget of the rendering on this thread, from `start` until it is dropped.
pub struct Session<'c>(PhantomData<&'c AtomicBool>);

impl<'c> Session<'c> {
    pub fn start(
        input_bytes: usize,
        now: i64,
        cancelled: Option<&'c AtomicBool>,
        marks: Option<Marks<'c>>,
    ) -> Self {
        let input = input_bytes as u64;
        TOUCH.set((1 << 30) + 64 * input);
        MAKE.set((256 << 20) + 32 * input);
        EXHAUSTED.set(false);
        RAISED.take();
        NOW.set(now);
        GAVE_UP.set(false);
        // SAFETY: the flag and the tokenizer outlive the session, which takes them away when it is
        // dropped.
        unsafe {
            CANCELLED.set(
                std::mem::transmute::<Option<&'c AtomicBool>, Option<&'static AtomicBool>>(
                    cancelled,
                ),
            );
            MARKS.set(std::mem::transmute::<Option<Marks<'c>>, Option<Marks<'static>>>(marks));
        }
        Session(PhantomData)
    }

    /// Whether the rendering has ended because no one waits for it.
    pub fn cancelled(&self) -> bool {
        GAVE_UP.get()
    }

    pub fn exhausted(&self) -> bool {
        EXHAUSTED.get()
    }

    pub fn raised(&self) -> Option<String> {
        RAISED.take()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        CANCELLED.set(None);
        MARKS.set(None);
        // A namespace may hold itself: emptying each of them breaks every such ring, and no chain
        // of them is ever dropped recursively.
        for namespace in NAMESPACES.take() {
            namespace.clear();
        }
        RAISED.take();
    }
}

pub fn now() -> i64 {
    NOW.get()
}

/// The marks of the rendering on this thread, if it has any.
pub fn marks() -> Option<Marks<'static>> {
    MARKS.get()
}

pub fn raise(message: String) -> Error {
    RAISED.set(Some(message));
    Error::new(ErrorKind::InvalidOperation, "raised by the template")
}

pub fn register(namespace: Arc<Namespace>) -> Result<(), Error> {
    make(256)?;
    NAMESPACES.with_borrow_mut(|all| all.push(namespace));
    Ok(())
}

pub fn over(what: &str) -> Error {
    EXHAUSTED.set(true);
    Error::new(ErrorKind::InvalidOperation, format!("the template is over its limit of {what}"))
}

fn look() -> Result<(), Error> {
    let left = CHARGES.get().checked_sub(1);
    CHARGES.set(left.unwrap_or(CHARGES_PER_LOOK));
    if left.is_some() {
        return Ok(());
    }
    match CANCELLED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => {
            GAVE_UP.set(true);
            Err(Error::new(ErrorKind::InvalidOperation, "the caller has given up"))
        }
        _ => Ok(()),
    }
}

/// Charges for bytes that are read.
pub fn touch(bytes: usize) -> Result<(), Error> {
    look()?;
    let left = TOUCH.get();
    let cost = bytes as u64 + 1;
    if cost > left {
        return Err(over("work"));
    }
    TOUCH.set(left - cost);
    Ok(())
}

/// Charges for bytes that are written and may live on.
pub fn make(bytes: usize) -> Result<(), Error> {
    look()?;
    if bytes > MAX_STRING_BYTES {
        return Err(over("bytes in one value"));
    }
    let left = MAKE.get();
    let cost = bytes as u64 + 1;
    if cost > left {
        return Err(over("memory"));
    }
    MAKE.set(left - cost);
    Ok(())
}

/// The bytes of a value itself, its items not followed.
pub fn shallow(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            value.len().unwrap_or(64) * NODE_BYTES as usize
        }
        _ => 1,
    }
}

/// Walks a value, charging for every node; an error past MAX_DEPTH. Values that pass can be
/// compared, copied, printed and dropped recursively.
pub fn weigh(value: &Value) -> Result<(), Error> {
    weigh_at(value, 0)
}

fn weigh_at(value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(over("nesting"));
    }
    match value.kind() {
        ValueKind::String => touch(value.as_str().map_or(0, str::len)),
        ValueKind::Seq | ValueKind::Iterable => {
            touch(NODE_BYTES as usize)?;
            for item in value.try_iter()? {
                weigh_at(&item, depth + 1)?;
            }
            Ok(())
        }
        ValueKind::Map => {
            touch(NODE_BYTES as usize)?;
            for key in value.try_iter()? {
                weigh_at(&key, depth + 1)?;
                weigh_at(&value.get_item(&key)?, depth + 1)?;
            }
            Ok(())
        }
        _ => touch(NODE_BYTES as usize),
    }
}
