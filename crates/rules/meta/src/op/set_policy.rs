//! `SetPolicy`: sets the layout wish of a directory (inherited) or an empty file.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::inode::{POLICY_IS_OWN, SPREADS};
use alloc::format;
use skep_types::limits::{CHUNK_MAX, CHUNK_MIN, INLINE_MAX, TARGETS_MAX};
use skep_types::{Errno, Kind, Policy};
use skep_wire::meta::SetPolicy;
use skep_wire::{Empty, Refusal, Status};

pub fn run(ctx: &mut Ctx<'_>, m: &SetPolicy) -> Result<Done, Fail> {
    check(ctx, &m.policy)?;
    let mut inode = ctx.inode(m.ino)?;
    match inode.kind {
        Kind::Dir => {}
        Kind::File if inode.layout.is_inline() => {}
        Kind::File => {
            return Err(
                invalid("the file has chunks already; copy it to a new one to change its layout").into()
            );
        }
        _ => return Err(invalid("only directories and regular files have a layout").into()),
    }
    inode.policy = Some(m.policy).filter(|policy| *policy != Policy::default());
    if inode.policy.is_some() {
        inode.flags |= POLICY_IS_OWN;
    } else {
        inode.flags &= !POLICY_IS_OWN;
    }
    match m.spread {
        Some(_) if inode.kind != Kind::Dir => {
            return Err(invalid("only what is made in a directory can be spread").into());
        }
        Some(true) => inode.flags |= SPREADS,
        Some(false) => inode.flags &= !SPREADS,
        None => {}
    }
    inode.touch(ctx.scene.at);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&Empty {}))
}

fn invalid(text: &str) -> Refusal {
    Refusal::with(Status::errno(Errno::EINVAL), text)
}

/// Can the wish be met at all?
pub fn check(ctx: &mut Ctx<'_>, policy: &Policy) -> Result<(), Fail> {
    let chunk = policy.chunk_size;
    if chunk != 0 && !(chunk.is_power_of_two() && (CHUNK_MIN..=CHUNK_MAX).contains(&chunk)) {
        return Err(invalid(&format!(
            "chunk size {chunk} is no power of two from {CHUNK_MIN} to {CHUNK_MAX}"
        ))
        .into());
    }
    if policy.targets as usize > TARGETS_MAX {
        return Err(invalid(&format!("{} targets; a file has at most {TARGETS_MAX}", policy.targets)).into());
    }
    if policy.inline_limit.is_some_and(|limit| limit > INLINE_MAX) {
        return Err(invalid(&format!("at most {INLINE_MAX} bytes of a file are kept in the metadata")).into());
    }
    ctx.choose.pool(policy.pool)
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use alloc::collections::BTreeSet;
    use skep_types::{Errno, Ino, Policy, PoolId, ShardId};
    use skep_wire::Status;
    use skep_wire::meta::{Grow, Inspect, MakeDirOn, SetPolicy};
    use skep_wire::mgmt::PoolEntry;

    /// Goal: wishes that cannot be met, and wishes for what has chunks, are refused; the default
    /// wish takes an own one back.
    #[test]
    fn wishes_are_checked() {
        let mut bed = Bed::new();
        let dir = bed.mkdir(Ino::ROOT, "d");
        let base =
            Policy { pool: skep_types::PoolId(0), chunk_size: 1 << 20, targets: 4, inline_limit: Some(0) };
        bed.call(ME, SetPolicy { ino: dir, policy: base, spread: None }).unwrap();
        assert!(bed.call(ME, Inspect { ino: dir }).unwrap().policy_is_own);
        bed.call(ME, SetPolicy { ino: dir, policy: Policy::default(), spread: None }).unwrap();
        assert!(!bed.call(ME, Inspect { ino: dir }).unwrap().policy_is_own);
        for policy in [
            Policy { chunk_size: 1 << 15, ..base },
            Policy { chunk_size: 100_000, ..base },
            Policy { targets: 257, ..base },
            Policy { inline_limit: Some(1 << 20), ..base },
        ] {
            assert_eq!(
                bed.call(ME, SetPolicy { ino: dir, policy, spread: None }).err(),
                Some(errno(Errno::EINVAL))
            );
        }
        let (grown, _) = bed.grown("g", 1);
        assert_eq!(
            bed.call(ME, SetPolicy { ino: grown, policy: base, spread: None }).err(),
            Some(errno(Errno::EINVAL))
        );
    }

    /// Goal: a storage pool that the map does not have is waited for a little, a newer map is asked for, and
    /// then the wish is refused by name; one that it has is inherited by directories, over shards too.
    #[test]
    fn pools_are_checked_and_inherited() {
        let mut bed = Bed::with(crate::Config::default(), 2);
        let dir = bed.mkdir(Ino::ROOT, "d");
        let policy = Policy { pool: PoolId(2), targets: 9, ..Policy::default() };
        let wish = SetPolicy { ino: dir, policy, spread: None };
        assert_eq!(bed.call(ME, wish.clone()).err(), Some(Status::BUSY));
        assert!(bed.wants_map);
        bed.tick(crate::limit::POOL_WAIT_MS);
        let to = bed.send(ME, wish.clone());
        let refusal = bed.replies[&to].1.clone().unwrap_err();
        assert_eq!(refusal.status, errno(Errno::EINVAL));
        assert!(refusal.detail.contains("storage pool 2"));
        let mut map = map(2, 5);
        map.pools = [(1, "default"), (2, "hot")]
            .map(|(pool, alias)| PoolEntry { pool: PoolId(pool), alias: alias.into() })
            .to_vec();
        map.targets.iter_mut().skip(3).for_each(|target| target.pool = PoolId(2));
        map.version = skep_types::MapVersion(2);
        bed.step(crate::Input::Map { own: OWN, map });
        bed.call(ME, wish).unwrap();
        let sub = bed.mkdir(dir, "s");
        let on = MakeDirOn {
            parent: sub,
            name: name("far"),
            mode: 0o755,
            umask: 0,
            uid: 0,
            gid: 0,
            on: ShardId(1),
        };
        let far = bed.admin(on).unwrap().ino;
        assert_eq!(bed.call(ME, Inspect { ino: far }).unwrap().policy, policy);
        let file = bed.create(ME, far, "f");
        let grown = bed.call(ME, Grow { like: None, ino: file, end: 1 }).unwrap().layout;
        let got: BTreeSet<u32> = grown.extents[0].stripes.iter().map(|stripe| stripe.first().0).collect();
        assert_eq!(got, BTreeSet::from([4, 5]), "no other pool's");
        assert_eq!(bed.call(ME, Inspect { ino: file }).unwrap().asked, [9], "and got two");
        let copy = bed.create(ME, far, "copy");
        let like = bed.call(ME, Grow { like: Some(file), ino: copy, end: 1 }).unwrap().layout;
        assert_eq!(like.extents[0].stripes, grown.extents[0].stripes);
        bed.check();
    }
}
