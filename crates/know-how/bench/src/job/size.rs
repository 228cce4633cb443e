//! Sizes as people write them: units are powers of two, as in every tool of this field.

use super::JobError;

/// `4096`, `4k`, `1m`, `1MiB`, `2g`, `1t`: case does not matter, units are powers of 1,024.
pub fn parse_size(text: &str) -> Result<u64, JobError> {
    let wrong = || JobError(format!("size {text:?}: write a whole number and a unit, such as 4k, 1m, 16GiB"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << (10 * power)).ok_or_else(|| JobError(format!("size {text:?} is too large")))
}

/// The shortest way to write a size exactly: `1m`, `47008`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["", "k", "m", "g", "t", "p"];
    let mut power = 0;
    let mut number = bytes;
    while number != 0 && number.is_multiple_of(1024) && power + 1 < UNITS.len() {
        number /= 1024;
        power += 1;
    }
    format!("{number}{}", UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every spelling of a unit, exactness both ways, and nonsense refused.
    #[test]
    fn sizes() {
        for (text, bytes) in
            [("512", 512), ("4k", 4096), ("1M", 1 << 20), ("16GiB", 16 << 30), ("2tb", 2 << 40), ("0", 0)]
        {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
            assert_eq!(parse_size(&format_size(bytes)).unwrap(), bytes);
        }
        assert_eq!(format_size(47_008), "47008");
        for text in ["", "k", "1x", "-1", "1.5g", "99999999999p", "1 k"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
