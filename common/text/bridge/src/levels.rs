//! How deep the library recurses at most through definitions that name each other.

/// The library keeps some kilobytes of stack for each.
pub const MAX_LEVELS: usize = 4096;

/// A definition: how deep it nests, and at which depth it names which others.
#[derive(Default)]
pub struct Definition {
    pub depth: usize,
    pub names: Vec<(usize, usize)>,
}

/// An upper bound of the levels from any definition, whatever the order in which the library takes
/// them: it enters each at most once on a way down, so those that can reach a cycle count as one
/// with the depth of all of them.
pub fn most_levels(definitions: &[Definition]) -> usize {
    let mut open: Vec<usize> = definitions.iter().map(|each| each.names.len()).collect();
    let mut named_by = vec![Vec::new(); definitions.len()];
    for (index, definition) in definitions.iter().enumerate() {
        for (_, target) in &definition.names {
            named_by[*target].push(index);
        }
    }
    let mut levels = vec![0usize; definitions.len()];
    let mut ready: Vec<usize> = (0..definitions.len()).filter(|i| open[*i] == 0).collect();
    let mut most = 0;
    let mut done = vec![false; definitions.len()];
    while let Some(index) = ready.pop() {
        let definition = &definitions[index];
        let below = definition.names.iter().map(|(depth, target)| depth + 1 + levels[*target]);
        levels[index] = below.max().unwrap_or(0).max(definition.depth);
        most = most.max(levels[index]);
        done[index] = true;
        for user in std::mem::take(&mut named_by[index]) {
            open[user] -= 1;
            if open[user] == 0 {
                ready.push(user);
            }
        }
    }
    let cyclic = definitions.iter().zip(&done).filter(|(_, done)| !**done);
    most + cyclic.map(|(definition, _)| definition.depth + 1).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(depth: usize, names: &[(usize, usize)]) -> Definition {
        Definition { depth, names: names.to_vec() }
    }

    #[test]
    fn chains_add_up_and_cycles_count_once_each() {
        let chain: Vec<_> = (0..10)
            .map(|i| named(2, if i < 9 { &[(1, 0)] } else { &[] }))
            .enumerate()
            .map(|(i, mut each)| {
                each.names.iter_mut().for_each(|name| name.1 = i + 1);
                each
            })
            .collect();
        assert_eq!(most_levels(&chain), 9 * 2 + 2);
        let cycle = [named(3, &[(1, 1)]), named(4, &[(2, 0), (2, 2)]), named(5, &[])];
        assert_eq!(most_levels(&cycle), 5 + 4 + 5);
    }
}
