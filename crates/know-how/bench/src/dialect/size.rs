//! Sizes, each tool's way. All of them count in powers of two; what a bare number means differs.

/// What the letters and a bare number mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// `k m g t p`, either case, `kb` and `kib` the same; a bare number counts bytes (IOR, mdtest, elbencho).
    Bytes,
    /// As [`Units::Bytes`], but a bare number counts KiB (IOzone).
    Kibibytes,
    /// fio with its default `kb_base`: `k` and `kb` are 1024, `kib` is 1000 (seen with fio 3.33).
    Fio,
}

/// Reads a size.
pub fn bytes(text: &str, units: Units) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is no size: expected a number such as 512k, 1m or 8g");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, letters) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let letters = letters.to_ascii_lowercase();
    let (power, tail) = match letters.chars().next() {
        None if units == Units::Kibibytes => (1, ""),
        None => (0, ""),
        Some('b') if letters == "b" && units == Units::Bytes => (0, ""),
        Some(c) => ("kmgtp".find(c).ok_or_else(wrong)? as u32 + 1, &letters[1..]),
    };
    let base: u64 = match (tail, units) {
        ("ib", Units::Fio) => 1_000,
        ("" | "b" | "i" | "ib", _) => 1_024,
        _ => return Err(wrong()),
    };
    base.checked_pow(power)
        .and_then(|unit| number.checked_mul(unit))
        .ok_or_else(|| format!("\"{text}\" does not fit into 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every unit of every tool means what it means there.
    #[test]
    fn each_tool_its_own() {
        for (text, units, expected) in [
            ("8", Units::Bytes, 8),
            ("512k", Units::Bytes, 512 << 10),
            ("2M", Units::Bytes, 2 << 20),
            ("128g", Units::Bytes, 128 << 30),
            ("1t", Units::Bytes, 1 << 40),
            ("4KiB", Units::Bytes, 4096),
            ("1m", Units::Kibibytes, 1 << 20),
            ("4K", Units::Kibibytes, 4096),
            ("64", Units::Kibibytes, 64 << 10),
            ("40g", Units::Kibibytes, 40 << 30),
            ("128k", Units::Fio, 128 << 10),
            ("4kb", Units::Fio, 4096),
            ("4kib", Units::Fio, 4000),
            ("1G", Units::Fio, 1 << 30),
            ("0", Units::Bytes, 0),
        ] {
            assert_eq!(bytes(text, units), Ok(expected), "{text} {units:?}");
        }
    }

    /// Goal: nonsense is refused, never guessed.
    #[test]
    fn nonsense() {
        for text in ["", "k", "-1", "1.5g", "4x", "4kx", "99999999999999999999", "20000000t", "75%"] {
            assert!(bytes(text, Units::Bytes).is_err(), "{text}");
        }
    }
}
