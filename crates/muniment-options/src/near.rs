//! Suggestions for a word that does not exist: the known word that the user may have meant.

/// "is 'x' meant? ", if one of `words` is near enough to `word`.
pub fn meant(word: &str, words: &[&str]) -> String {
    match near(word, words) {
        Some(w) => format!("is '{w}' meant? "),
        None => String::new(),
    }
}

/// The one of `words` that is nearest to `word`, if it is near enough: two letters away at most, and
/// less than `word` has.
pub fn near<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    let near = words.iter().map(|w| (distance(word, w), *w)).min()?;
    (near.0 <= 2 && near.0 < word.chars().count()).then_some(near.1)
}

/// Letters to change, add or leave out between two words, without regard to case (Levenshtein).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut last = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let best = (last + usize::from(x != *y)).min(*cell + 1).min(left + 1);
            last = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_if_it_is_near() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(meant("xyz", &["find", "insert"]), "");
        assert_eq!(meant("finf", &["find", "insert"]), "is 'find' meant? ");
        assert_eq!(near("w", &["w1"]), None, "one letter is not enough");
    }
}
