//! Counts the bytes that each thread has from the allocator, so that objects of libraries that do
//! not know their own size can say what they hold.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
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
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        System.dealloc(at, layout)
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize);
        count(-(layout.size() as isize));
        System.realloc(at, layout, size)
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
