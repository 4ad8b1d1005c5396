//! Counts the bytes that each thread has from the allocator, so that objects of libraries that do
//! not know their own size can say what they hold.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// What the program does when there is no memory; null: what Rust does.
static NO_MEMORY: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// From now on `hook` is called before an allocation fails.
pub fn on_no_memory(hook: extern "C" fn()) {
    NO_MEMORY.store(hook as *mut (), Ordering::Release);
}

#[inline]
fn given(at: *mut u8) -> *mut u8 {
    if at.is_null() {
        let hook = NO_MEMORY.load(Ordering::Acquire);
        if !hook.is_null() {
            // SAFETY: on_no_memory stored it, and nothing else does.
            unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(hook)() };
        }
    }
    at
}

/// Counts what each thread has and its peak; while a block moves, both its places count.
struct Counting;

#[inline]
fn count(change: isize) {
    let _ = NOW.try_with(|now| {
        let bytes = now.get() + change;
        now.set(bytes);
        if change > 0 {
            let _ = MOST.try_with(|most| most.set(most.get().max(bytes)));
        }
    });
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        given(System.alloc(layout))
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        given(System.alloc_zeroed(layout))
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        System.dealloc(at, layout)
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize);
        count(-(layout.size() as isize));
        given(System.realloc(at, layout, size))
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Does `work` and says by how many bytes this thread has more than before.
pub fn grown<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = NOW.get();
    let result = work();
    (result, NOW.get() - before)
}

/// The most bytes that `work` has at once.
#[cfg(test)]
pub fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    work();
    (MOST.get() - before) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    static ASKED: AtomicBool = AtomicBool::new(false);
    extern "C" fn ask() {
        ASKED.store(true, Ordering::Relaxed);
    }

    #[test]
    fn the_program_hears_of_memory_that_is_not_there() {
        on_no_memory(ask);
        let failed = Vec::<u8>::new().try_reserve(isize::MAX as usize).is_err();
        assert!(failed && ASKED.load(Ordering::Relaxed));
    }

    #[test]
    fn what_is_kept_counts_and_what_is_freed_does_not() {
        let (kept, bytes) = grown(|| {
            drop(vec![0u8; 100_000]);
            vec![1u8; 1000]
        });
        assert_eq!(bytes, kept.len() as isize);
        assert!(peak(|| drop(vec![0u8; 100_000])) >= 100_000);
        assert_eq!(grown(|| drop(kept)).1, -1000);
    }
}
