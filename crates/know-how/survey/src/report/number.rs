//! Numbers as people read them.

/// What stands where there is no number.
pub const NONE: &str = "-";

/// A number with three or four digits that matter: `0.0123`, `12.3`, `1,235`, `12.3 M`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size >= 1e16 || (size > 0.0 && size < 1e-5) {
        format!("{value:.2e}")
    } else if size >= 1e12 {
        format!("{} T", grouped(value / 1e12, 2))
    } else if size >= 1e10 {
        format!("{} G", grouped(value / 1e9, 1))
    } else if size >= 1e7 {
        format!("{} M", grouped(value / 1e6, 1))
    } else if value.fract() == 0.0 || size >= 99.95 {
        grouped(value, 0)
    } else if size >= 9.995 {
        grouped(value, 1)
    } else if size >= 0.9995 {
        grouped(value, 2)
    } else {
        let digits = (2.0 - size.log10().floor()).clamp(1.0, 8.0) as usize;
        format!("{value:.digits$}")
    }
}

/// A number at an axis: no more digits than it has, `10 k`, `2 M`.
pub fn tick(value: f64) -> String {
    let size = value.abs();
    let short = |value: f64| {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if !value.is_finite() || size >= 1e16 || (size > 0.0 && size < 1e-3) {
        if value.is_finite() { format!("{value:.0e}") } else { NONE.to_owned() }
    } else if size >= 1e12 {
        format!("{} T", short(value / 1e12))
    } else if size >= 1e9 {
        format!("{} G", short(value / 1e9))
    } else if size >= 1e6 {
        format!("{} M", short(value / 1e6))
    } else if size >= 1e4 {
        format!("{} k", short(value / 1e3))
    } else if size >= 1e3 && value.fract() == 0.0 {
        grouped(value, 0)
    } else {
        short(value)
    }
}

/// Bytes in the unit that needs the fewest digits: `4 KiB`, `1.5 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let mut scaled = value;
    let mut unit = 0;
    while scaled.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", tick(scaled), UNITS[unit])
}

/// A place on an axis: bytes where the axis counts bytes.
pub fn place(value: f64, axis: &str) -> String {
    if axis.contains("byte") { bytes(value) } else { tick(value) }
}

/// A unit as it is printed.
pub fn unit(unit: &str) -> String {
    if unit == "us" { "\u{b5}s".to_owned() } else { unit.to_owned() }
}

/// A number with its unit.
pub fn with_unit(value: f64, of: &str) -> String {
    let shown = number(value);
    if shown == NONE { shown } else { format!("{shown} {}", unit(of)) }
}

/// A part of a whole in percent; none when the whole is nothing.
pub fn percent(part: f64, whole: f64) -> Option<String> {
    let ratio = part / whole * 100.0;
    if whole == 0.0 || !ratio.is_finite() {
        return None;
    }
    let digits = usize::from(ratio.abs() < 9.95 && ratio != 0.0);
    Some(if ratio.abs() >= 1e6 { format!("{ratio:.0e} %") } else { format!("{ratio:.digits$} %") })
}

/// A time span: `45 s`, `7 min 32 s`, `1 h 5 min`.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() || !(0.0..1e12).contains(&seconds) {
        return NONE.to_owned();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{} s", tick((seconds * 10.0).round() / 10.0)),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let mut out = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: numbers of every size are short and right.
    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (1.2345, "1.23"),
            (16.0, "16"),
            (12.345, "12.3"),
            (99.96, "100"),
            (-1234.5, "-1,234"),
            (1_234_567.0, "1,234,567"),
            (12_345_678.0, "12.3 M"),
            (1.5e12, "1.50 T"),
            (1e300, "1.00e300"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    /// Goal: labels of axes carry no needless digits.
    #[test]
    fn ticks_are_shorter() {
        let cases = [(0.0, "0"), (0.5, "0.5"), (2000.0, "2,000"), (20_000.0, "20 k"), (2_500_000.0, "2.5 M")];
        for (value, text) in cases {
            assert_eq!(tick(value), text);
        }
        assert_eq!(place(1_572_864.0, "transfer size (bytes)"), "1.5 MiB");
        assert_eq!(place(4096.0, "bytes"), "4 KiB");
        assert_eq!(place(512.0, "processes"), "512");
    }

    /// Goal: percentages and time spans, also of nonsense.
    #[test]
    fn shares_and_spans() {
        assert_eq!(percent(212.0, 812.0).as_deref(), Some("26 %"));
        assert_eq!(percent(1.0, 80.0).as_deref(), Some("1.2 %"));
        assert_eq!(percent(1.0, 0.0), None);
        assert_eq!(percent(f64::NAN, 1.0), None);
        assert_eq!(span(452.4), "7 min 32 s");
        assert_eq!(span(3900.0), "1 h 5 min");
        assert_eq!(span(f64::NAN), "-");
        assert_eq!(span(-1.0), "-");
        assert_eq!(span(0.25), "0.3 s");
    }
}
