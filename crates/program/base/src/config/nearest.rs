//! Which of the known keys was meant: the nearest by edit distance.

/// A key further away than this share of its length is no suggestion but a guess.
const WORST_SHARE: usize = 2;

/// The known key nearest to `wrong`, when one is near enough to be worth naming.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let wrong = plain(wrong);
    known
        .into_iter()
        .map(|key| (distance(&wrong, &plain(key)), key))
        .min()
        .filter(|(far, key)| far * WORST_SHARE <= key.len().max(wrong.len()))
        .map(|(_, key)| key)
}

/// Levenshtein distance: insertions, deletions and replacements that turn one text into the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the distance is the textbook one.
    #[test]
    fn distance_is_levenshtein() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("same", "same"), 0);
        assert_eq!(distance("ab", "ba"), 2);
    }

    /// Goal: a slip finds its key, another spelling of the dash too, nonsense finds nothing.
    #[test]
    fn slips_find_their_key() {
        let known = ["sync", "sync_interval", "cache_size", "key_file"];
        assert_eq!(nearest("sync_intervall", known), Some("sync_interval"));
        assert_eq!(nearest("keyfile", known), Some("key_file"));
        assert_eq!(nearest("Key-File", known), Some("key_file"));
        assert_eq!(nearest("zzzzzzzz", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
