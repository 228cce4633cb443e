//! The constants the table writes by name: open flags, rename flags, file kinds and so on.

/// Flags and numbers by name. Names are unique over all calls, so one list serves them all.
const CONSTANTS: &[(&str, i64)] = &[
    ("O_RDONLY", libc::O_RDONLY as i64),
    ("O_WRONLY", libc::O_WRONLY as i64),
    ("O_RDWR", libc::O_RDWR as i64),
    ("O_CREAT", libc::O_CREAT as i64),
    ("O_EXCL", libc::O_EXCL as i64),
    ("O_TRUNC", libc::O_TRUNC as i64),
    ("O_APPEND", libc::O_APPEND as i64),
    ("O_DIRECTORY", libc::O_DIRECTORY as i64),
    ("O_NOFOLLOW", libc::O_NOFOLLOW as i64),
    ("O_NONBLOCK", libc::O_NONBLOCK as i64),
    ("O_SYNC", libc::O_SYNC as i64),
    ("O_DSYNC", libc::O_DSYNC as i64),
    ("O_PATH", libc::O_PATH as i64),
    ("O_TMPFILE", libc::O_TMPFILE as i64),
    ("O_NOATIME", libc::O_NOATIME as i64),
    ("O_CLOEXEC", libc::O_CLOEXEC as i64),
    ("RENAME_NOREPLACE", libc::RENAME_NOREPLACE as i64),
    ("RENAME_EXCHANGE", libc::RENAME_EXCHANGE as i64),
    ("RENAME_UNKNOWN", 1 << 30),
    ("AT_REMOVEDIR", libc::AT_REMOVEDIR as i64),
    ("AT_SYMLINK_NOFOLLOW", libc::AT_SYMLINK_NOFOLLOW as i64),
    ("AT_SYMLINK_FOLLOW", libc::AT_SYMLINK_FOLLOW as i64),
    ("AT_EMPTY_PATH", libc::AT_EMPTY_PATH as i64),
    ("AT_EACCESS", libc::AT_EACCESS as i64),
    ("AT_UNKNOWN", 1 << 29),
    ("XATTR_CREATE", libc::XATTR_CREATE as i64),
    ("XATTR_REPLACE", libc::XATTR_REPLACE as i64),
    ("XATTR_UNKNOWN", 1 << 20),
    ("KEEP_SIZE", libc::FALLOC_FL_KEEP_SIZE as i64),
    ("PUNCH_HOLE", libc::FALLOC_FL_PUNCH_HOLE as i64),
    ("ZERO_RANGE", libc::FALLOC_FL_ZERO_RANGE as i64),
    ("COLLAPSE_RANGE", libc::FALLOC_FL_COLLAPSE_RANGE as i64),
    ("INSERT_RANGE", libc::FALLOC_FL_INSERT_RANGE as i64),
    ("LOCK_SH", libc::LOCK_SH as i64),
    ("LOCK_EX", libc::LOCK_EX as i64),
    ("LOCK_UN", libc::LOCK_UN as i64),
    ("LOCK_NB", libc::LOCK_NB as i64),
    ("SEEK_SET", libc::SEEK_SET as i64),
    ("SEEK_CUR", libc::SEEK_CUR as i64),
    ("SEEK_END", libc::SEEK_END as i64),
    ("SEEK_DATA", libc::SEEK_DATA as i64),
    ("SEEK_HOLE", libc::SEEK_HOLE as i64),
    ("R_OK", libc::R_OK as i64),
    ("W_OK", libc::W_OK as i64),
    ("X_OK", libc::X_OK as i64),
    ("F_OK", libc::F_OK as i64),
    ("MAX", i64::MAX),
];

/// A number: `NAME`, decimal, octal with a leading 0, hexadecimal with 0x, or several joined by `|`.
pub fn number(text: &str) -> Option<i64> {
    text.split('|').map(single).try_fold(0i64, |all, one| one.map(|v| all | v))
}

fn single(text: &str) -> Option<i64> {
    if let Some((_, value)) = CONSTANTS.iter().find(|(name, _)| *name == text) {
        return Some(*value);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return i64::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => i64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}

/// File kinds by the names the table uses, with their `S_IF` bits.
const KINDS: &[(&str, u32)] = &[
    ("file", libc::S_IFREG),
    ("dir", libc::S_IFDIR),
    ("symlink", libc::S_IFLNK),
    ("fifo", libc::S_IFIFO),
    ("sock", libc::S_IFSOCK),
    ("chr", libc::S_IFCHR),
    ("blk", libc::S_IFBLK),
];

/// The `S_IF` bits of a kind.
pub fn kind(name: &str) -> Option<u32> {
    KINDS.iter().find(|(n, _)| *n == name).map(|&(_, bits)| bits)
}

/// The name of the kind in a mode.
pub fn kind_name(mode: u32) -> &'static str {
    KINDS.iter().find(|(_, bits)| mode & libc::S_IFMT == *bits).map_or("unknown kind", |&(n, _)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers read as C reads them, names combine, nonsense is refused.
    #[test]
    fn numbers_read() {
        assert_eq!(number("0644"), Some(0o644));
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("-1"), Some(-1));
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(number("O_WRONLY|O_CREAT"), Some(i64::from(libc::O_WRONLY | libc::O_CREAT)));
        assert_eq!(number("O_NOPE"), None);
        assert_eq!(kind("fifo").map(kind_name), Some("fifo"));
    }
}
