//! The text of `skep.layout`: `chunk=1M targets=4 pool=hot inline=0`.

use skep_types::limits::{CHUNK_DEFAULT, CHUNK_MAX, CHUNK_MIN, INLINE_DEFAULT, INLINE_MAX, TARGETS_MAX};
use skep_types::{Policy, PoolId};
use skep_wire::meta::InspectReply;
use skep_wire::mgmt::PoolEntry;

/// The pool of whoever wished for none.
const DEFAULT_POOL: PoolId = PoolId(1);
/// What a text may hold.
const ALLOWED: &str = "allowed are chunk=<64K to 1G, a power of two>, targets=<1 to 256, or auto>, pool=<name>, \
                       inline=<0 to 8K>, with blanks or commas between them; what is not named stays";

/// The effective wish; `got=` when there were fewer targets than asked for.
pub fn shown(reply: &InspectReply, pools: &[PoolEntry]) -> String {
    let policy = &reply.policy;
    let first = reply.layout.extents.first();
    let chunk = match (policy.chunk_size, first) {
        (0, Some(extent)) => extent.chunk_size,
        (0, None) => CHUNK_DEFAULT,
        (chunk, _) => chunk,
    };
    let targets = if policy.targets == 0 { "auto".to_owned() } else { policy.targets.to_string() };
    let id = if policy.pool == PoolId(0) { DEFAULT_POOL } else { policy.pool };
    let pool = pools.iter().find(|pool| pool.pool == id);
    let pool = pool.map_or_else(|| id.0.to_string(), |pool| pool.alias.clone());
    let inline = size(policy.inline_limit.unwrap_or(INLINE_DEFAULT));
    let mut text = format!("chunk={} targets={targets} pool={pool} inline={inline}", size(chunk));
    let asked = reply.layout.extents.iter().zip(&reply.asked);
    let short = asked.map(|(extent, asked)| (extent, *asked as usize));
    let mut short = short.filter(|(extent, asked)| extent.stripes.len() < *asked);
    if let Some((extent, _)) = short.next() {
        text.push_str(&format!(" got={}", extent.stripes.len()));
    }
    text
}

/// The wish that a text makes of `policy`, or why it makes none.
pub fn parse(text: &[u8], policy: Policy, pools: &[PoolEntry]) -> Result<Policy, String> {
    let text = std::str::from_utf8(text).map_err(|_| ALLOWED.to_owned())?;
    let mut wish = policy;
    let words = text.trim_end_matches('\0').split(|c: char| c.is_whitespace() || c == ',');
    for word in words.filter(|word| !word.is_empty()) {
        let bad = || format!("\"{word}\": {ALLOWED}");
        let (key, value) = word.split_once('=').ok_or_else(bad)?;
        match key {
            "chunk" => {
                let chunk =
                    bytes(value).filter(|n| n.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(n));
                wish.chunk_size = chunk.ok_or_else(bad)?;
            }
            "targets" if value == "auto" => wish.targets = 0,
            "targets" => {
                let count = value.parse().ok().filter(|n| (1..=TARGETS_MAX as u32).contains(n));
                wish.targets = count.ok_or_else(bad)?;
            }
            "pool" => {
                let named = pools.iter().find(|pool| pool.alias == value || pool.pool.0.to_string() == value);
                wish.pool = named.map(|pool| pool.pool).ok_or_else(|| {
                    let known: Vec<&str> = pools.iter().map(|pool| pool.alias.as_str()).collect();
                    format!("there is no pool \"{value}\"; there are: {}", known.join(", "))
                })?;
            }
            "inline" => wish.inline_limit = Some(bytes(value).filter(|n| *n <= INLINE_MAX).ok_or_else(bad)?),
            // Part of what is shown, so that a text that was read can be set elsewhere.
            "got" => {}
            _ => return Err(bad()),
        }
    }
    Ok(wish)
}

fn size(bytes: u32) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let fits = units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.trailing_zeros() >= *bits);
    fits.map_or_else(|| bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

fn bytes(text: &str) -> Option<u32> {
    let bits = match text.as_bytes().last()? {
        b'K' | b'k' => 10,
        b'M' | b'm' => 20,
        b'G' | b'g' => 30,
        _ => 0,
    };
    let digits = if bits == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u32>().ok()?.checked_mul(1 << bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools() -> Vec<PoolEntry> {
        let pool = |id, alias: &str| PoolEntry { pool: PoolId(id), alias: alias.to_owned() };
        vec![pool(1, "default"), pool(2, "hot")]
    }

    /// Goal: what is shown can be set again; what is not named stays; nonsense is refused with what is
    /// allowed.
    #[test]
    fn texts() {
        let wish = parse(b"chunk=1M targets=4 pool=hot inline=0", Policy::default(), &pools()).unwrap();
        let expected = Policy { chunk_size: 1 << 20, targets: 4, inline_limit: Some(0), pool: PoolId(2) };
        assert_eq!(wish, expected);
        let changed = parse(b"targets=auto,inline=4K\0", wish, &pools()).unwrap();
        assert_eq!(changed, Policy { targets: 0, inline_limit: Some(4096), ..expected });
        for bad in
            ["chunk=3M", "chunk=32K", "chunk=8G", "targets=0", "targets=257", "inline=9K", "x=1", "chunk"]
        {
            let text = parse(bad.as_bytes(), wish, &pools()).unwrap_err();
            assert!(text.contains("allowed are") && text.contains(bad), "{text}");
        }
        assert!(parse(b"pool=cold", wish, &pools()).unwrap_err().contains("default, hot"));
        assert!(parse(&[0xff], wish, &pools()).is_err());
        assert_eq!(
            (size(65_536), size(1 << 30), size(0), size(100)),
            ("64K".into(), "1G".into(), "0".into(), "100".into())
        );
    }
}
