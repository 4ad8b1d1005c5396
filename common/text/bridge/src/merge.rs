//! The order of merges in a long word: lowest rank first, and leftmost first within a rank.
//!
//! One heap over all pairs of a long run misses the cache at every step. Pairs of one rank come in
//! rising positions nearly always, so they stand in a plain list per rank, and the heap holds ranks
//! alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::AHashMap;

/// Capacity that an emptied bucket keeps for its next rank.
const KEPT_CAPACITY: usize = 1024;

/// The waiting pairs of one rank.
#[derive(Default)]
struct Bucket {
    new_id: u32,
    positions: Vec<u32>,
    taken: usize,
    unsorted: bool,
    /// Positions that came after the first was taken.
    late: BinaryHeap<Reverse<u32>>,
}

impl Bucket {
    fn push(&mut self, position: u32) {
        if self.taken > 0 {
            self.late.push(Reverse(position));
            return;
        }
        self.unsorted |= self.positions.last().is_some_and(|last| *last > position);
        self.positions.push(position);
    }

    fn pop(&mut self) -> Option<u32> {
        if self.unsorted {
            self.positions.sort_unstable();
            self.unsorted = false;
        }
        let next = self.positions.get(self.taken).copied();
        if let Some(Reverse(late)) = self.late.peek().copied() {
            if next.is_none_or(|next| late < next) {
                self.late.pop();
                return Some(late);
            }
        }
        self.taken += next.is_some() as usize;
        next
    }

    fn clear(&mut self) {
        self.positions.clear();
        self.positions.shrink_to(KEPT_CAPACITY);
        self.taken = 0;
    }
}

/// A pair that may be merged: whether it still stands is for the caller to see.
pub struct Candidate {
    pub position: u32,
    pub new_id: u32,
}

#[derive(Default)]
pub struct MergeQueue {
    buckets: Vec<Bucket>,
    free: Vec<u32>,
    of_rank: AHashMap<u32, u32>,
    ranks: BinaryHeap<Reverse<(u32, u32)>>,
    /// Rank and bucket of the last push: runs push the same rank again and again.
    last: Option<(u32, u32)>,
}

impl MergeQueue {
    /// `new_id` must be the same for every push of a rank.
    pub fn push(&mut self, rank: u32, new_id: u32, position: u32) {
        let bucket = match self.last {
            Some((last, bucket)) if last == rank => bucket,
            _ => self.bucket(rank, new_id),
        };
        self.buckets[bucket as usize].push(position);
    }

    fn bucket(&mut self, rank: u32, new_id: u32) -> u32 {
        let bucket = match self.of_rank.get(&rank) {
            Some(bucket) => *bucket,
            None => {
                let bucket = self.free.pop().unwrap_or_else(|| {
                    self.buckets.push(Bucket::default());
                    (self.buckets.len() - 1) as u32
                });
                self.buckets[bucket as usize].new_id = new_id;
                self.of_rank.insert(rank, bucket);
                self.ranks.push(Reverse((rank, bucket)));
                bucket
            }
        };
        self.last = Some((rank, bucket));
        bucket
    }

    pub fn pop(&mut self) -> Option<Candidate> {
        while let Some(Reverse((rank, index))) = self.ranks.peek().copied() {
            let bucket = &mut self.buckets[index as usize];
            if let Some(position) = bucket.pop() {
                return Some(Candidate { position, new_id: bucket.new_id });
            }
            bucket.clear();
            self.ranks.pop();
            self.of_rank.remove(&rank);
            self.free.push(index);
            self.last = None;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_by_rank_then_position() {
        let mut queue = MergeQueue::default();
        for (rank, position) in [(7, 4), (7, 2), (3, 9), (7, 8)] {
            queue.push(rank, rank + 100, position);
        }
        let mut next = || queue.pop().map(|c| (c.new_id, c.position));
        assert_eq!(next(), Some((103, 9)));
        assert_eq!(next(), Some((107, 2)));
        // A lower rank goes first, an earlier place of a rank already begun too.
        queue.push(7, 107, 3);
        queue.push(1, 101, 5);
        let mut next = || queue.pop().map(|c| (c.new_id, c.position));
        assert_eq!(next(), Some((101, 5)));
        assert_eq!(next(), Some((107, 3)));
        assert_eq!(next(), Some((107, 4)));
        assert_eq!(next(), Some((107, 8)));
        assert_eq!(next(), None);
        queue.push(3, 103, 0);
        assert_eq!(queue.pop().map(|c| c.position), Some(0));
    }
}
