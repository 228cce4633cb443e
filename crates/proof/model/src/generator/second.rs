//! System calls that not every file system has: each becomes another one where the profile says so.

use super::*;

impl Generator {
    pub(super) fn open_temp(&mut self) -> Op {
        if !self.profile.calls.temp {
            return self.open();
        }
        if self.believed_open.len() >= self.profile.handles as usize {
            return self.close();
        }
        let path = match self.rng.below(10) {
            0..=3 => Path::ROOT,
            4..=8 => self.path(true),
            _ => self.path(false),
        };
        let handle = self.any_handle(false);
        if !self.believed_open.contains(&handle.0) {
            self.believed_open.push(handle.0);
        }
        self.temp = Some(handle);
        Op::OpenTemp { path, handle, mode: self.mode(&MODES), exclusive: self.rng.percent(15) }
    }

    pub(super) fn link_handle(&mut self) -> Op {
        if !self.profile.calls.temp {
            return self.link();
        }
        let handle = match self.temp.take() {
            Some(handle) if self.rng.percent(80) => handle,
            _ => self.handle(),
        };
        Op::LinkHandle { handle, to: self.new_path(false) }
    }

    pub(super) fn copy(&mut self) -> Op {
        if !self.profile.calls.copy {
            return self.write();
        }
        let ((from_offset, len), offset) = (self.range(), self.offset());
        let from = self.handle();
        // Often within one file: it may not meet itself.
        let to = if self.rng.percent(30) { from } else { self.handle() };
        let room = self.profile.size_max - offset;
        let len = u64::from(len).min(room) as u32;
        Op::Copy { from, from_offset, to, offset, len, kill: self.kill() }
    }

    pub(super) fn zero(&mut self) -> Op {
        if !self.profile.calls.zero {
            return self.punch();
        }
        let (offset, len) = self.range();
        // Space may really be taken: near the start only.
        let offset = offset % (2 * u64::from(CHUNK_DEFAULT));
        let keep_size = self.rng.percent(50);
        Op::Zero { handle: self.handle(), offset, len: len.into(), keep_size, kill: self.kill() }
    }

    pub(super) fn seek(&mut self) -> Op {
        if !self.profile.calls.seek {
            return self.read();
        }
        let offset = if self.rng.percent(30) { 0 } else { self.offset() };
        Op::Seek { handle: self.handle(), offset, hole: self.rng.percent(50) }
    }

    pub(super) fn acl(&mut self) -> Op {
        if !self.profile.calls.acl {
            return self.chmod();
        }
        let (at, default) = match self.rng.below(10) {
            0..=3 => (At::Path(self.path(true)), self.rng.percent(80)),
            4 => (At::Path(Path::ROOT), self.rng.percent(80)),
            _ => (self.at(), self.rng.percent(10)),
        };
        match self.rng.below(10) {
            0..=5 => {
                let good = self.rng.percent(80);
                let value = if good { self.rng.below(5) } else { self.rng.below(ACLS.into()) } as u8;
                Op::SetAcl { at, default, value }
            }
            6..=8 => Op::GetAcl { at, default },
            _ => Op::RemoveAcl { at, default },
        }
    }

    pub(super) fn lock(&mut self) -> Op {
        if !self.profile.calls.lock {
            return self.stat();
        }
        let handle = self.handle();
        let start = self.rng.below(20);
        let last = if self.rng.percent(20) { LOCK_END } else { start + self.rng.below(10) };
        let exclusive = self.rng.pick(&[None, Some(true), Some(false)]);
        match self.rng.below(10) {
            0..=1 => Op::TestLock { handle, exclusive: exclusive.unwrap_or(true), start, last },
            2..=4 => Op::Lock { handle, space: LockSpace::Whole, exclusive, start: 0, last: LOCK_END },
            _ => Op::Lock { handle, space: LockSpace::Range, exclusive, start, last },
        }
    }
}
