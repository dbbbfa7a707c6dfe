//! A node of the index over the leaves: sorted separators, each with its item.
//!
//! A search uses `heads`, which has eight bytes of every separator after their common prefix, so that it
//! touches only a few cache lines. Only separators with equal heads are compared as a whole.

use bytes::Bytes;

/// The eight bytes of `key` from `skip` on, as a number that sorts in the same way. Bytes after the end of
/// the key count as zeros, so equal heads do not tell the order.
pub(super) fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(eight)
        }
    }
}

/// The length of the common prefix.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is above `left` and not above `right`. It has memory of its own, since a slice of
/// `right` would keep the whole buffer of `right` alive.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Bytes {
    let n = (common(left, right) + 1).min(right.len());
    Bytes::copy_from_slice(&right[..n])
}

/// Items in the order of their separators. An item has the keys from its separator up to the next item's; the
/// first item also has everything below.
pub(super) struct Node<T> {
    /// The common prefix of all separators except the first.
    prefix: Vec<u8>,
    heads: Vec<u64>,
    separators: Vec<Bytes>,
    items: Vec<T>,
}

impl<T> Node<T> {
    /// A node with one item.
    pub(super) fn new(separator: Bytes, item: T) -> Node<T> {
        Node {
            prefix: Vec::new(),
            heads: vec![0],
            separators: vec![separator],
            items: vec![item],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn item(&self, at: usize) -> &T {
        &self.items[at]
    }

    pub(super) fn item_mut(&mut self, at: usize) -> &mut T {
        &mut self.items[at]
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }

    /// The separator at which an item begins.
    pub(super) fn separator(&self, at: usize) -> &Bytes {
        &self.separators[at]
    }

    /// The position of the item that has `key`.
    pub(super) fn find(&self, key: &[u8]) -> usize {
        if !key.starts_with(&self.prefix) {
            return match key < self.prefix.as_slice() {
                true => 0,
                false => self.len() - 1,
            };
        }
        let head = head(key, self.prefix.len());
        let heads = &self.heads[1..];
        let below = heads.partition_point(|h| *h < head);
        if heads.get(below) != Some(&head) {
            return below;
        }
        let same = heads[below..].partition_point(|h| *h == head);
        let same = &self.separators[1 + below..1 + below + same];
        let whole = self.prefix.len() + size_of::<u64>();
        // If both keys end within their heads, the shorter one is less.
        below
            + same.partition_point(|s| match s.len().max(key.len()) <= whole {
                true => s.len() <= key.len(),
                false => &s[..] <= key,
            })
    }

    /// Inserts an item after the one at `at - 1`. An item is never inserted before the first.
    pub(super) fn insert(&mut self, at: usize, separator: Bytes, item: T) {
        let head = head(&separator, self.prefix.len());
        let shares = self.len() > 1 && separator.starts_with(&self.prefix);
        self.heads.insert(at, head);
        self.separators.insert(at, separator);
        self.items.insert(at, item);
        if !shares {
            self.rebuild();
        }
    }

    pub(super) fn remove(&mut self, at: usize) -> T {
        self.heads.remove(at);
        self.separators.remove(at);
        if let Some(first) = self.heads.first_mut() {
            *first = 0;
        }
        self.items.remove(at)
    }

    /// Sets another separator for an item.
    pub(super) fn rename(&mut self, at: usize, separator: Bytes) {
        self.separators[at] = separator;
        self.rebuild();
    }

    /// Splits off the items from `at` on.
    pub(super) fn split(&mut self, at: usize) -> Node<T> {
        let mut right = Node {
            prefix: Vec::new(),
            heads: Vec::new(),
            separators: self.separators.split_off(at),
            items: self.items.split_off(at),
        };
        right.rebuild();
        self.rebuild();
        right
    }

    fn rebuild(&mut self) {
        self.prefix.clear();
        if let [_, first, .., last] = &self.separators[..] {
            let shared = common(first, last);
            self.prefix.extend_from_slice(&first[..shared]);
        }
        let skip = self.prefix.len();
        self.heads.clear();
        self.heads
            .extend(self.separators.iter().map(|s| head(s, skip)));
        if let Some(first) = self.heads.first_mut() {
            *first = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_plain_search_finds() {
        let keys: Vec<Vec<u8>> = (0..400u32)
            .map(|i| {
                let mut key = vec![b'p'; (i % 3) as usize * 5];
                key.extend_from_slice(&(i.wrapping_mul(2_654_435_761) >> 8).to_be_bytes());
                key.truncate(key.len() - (i % 4) as usize);
                key
            })
            .collect();
        let mut node = Node::new(Bytes::new(), 0);
        let mut plain: Vec<Vec<u8>> = vec![Vec::new()];
        for (i, key) in keys.iter().enumerate() {
            let at = plain.partition_point(|k| k <= key);
            assert_eq!(node.find(key), at - 1, "{key:?}");
            if plain[at - 1] != *key {
                plain.insert(at, key.clone());
                node.insert(at, Bytes::from(key.clone()), i);
            }
            if i % 7 == 6 {
                let at = 1 + i % (plain.len() - 1);
                plain.remove(at);
                node.remove(at);
            }
        }
        let right = node.split(100);
        for key in &keys {
            let at = plain.partition_point(|k| k <= key) - 1;
            if at < 100 {
                assert_eq!(node.find(key), at);
            } else {
                assert_eq!(right.find(key), at - 100);
            }
        }
    }

    #[test]
    fn separators_are_short_and_between() {
        assert_eq!(separator(b"abc", b"abd")[..], b"abd"[..]);
        assert_eq!(separator(b"abc", b"b999")[..], b"b"[..]);
        assert_eq!(separator(b"ab", b"ab\0x")[..], b"ab\0"[..]);
        assert_eq!(separator(b"", b"x")[..], b"x"[..]);
    }
}
