//! What is lost says so. During a run: what a power cut took of chunk files that nobody synced. At its end: a vandal
//! removes chunk files and cuts them short; whoever reads them then gets EIO, never zeros, and nobody else does.

use crate::drive::{SimLane, read};
use crate::hub::Cut;
use crate::program::session_of;
use skep_client::{OpenHow, Seek};
use skep_meta::store::Store;
use skep_types::{ChunkId, Decode, Errno, Ino, Layout, TargetId, WRITTEN};
use skep_wire::meta::OpenMode;

/// The number of the inode table in row keys.
const INODE_TABLE: u8 = 2;
/// Larger files are left alone: they are holes in the main.
const SIZE_MAX: u64 = 4 << 20;

/// A file in chunks as its row says.
#[derive(Debug, Clone)]
pub struct Stored {
    pub ino: Ino,
    size: u64,
    layout: Layout,
}

/// Something was done to a chunk file.
#[derive(Debug, Clone, Copy)]
pub struct Harm {
    pub target: TargetId,
    pub chunk: ChunkId,
    /// What is left of it; `None` = it is gone.
    pub left: Option<u64>,
}

/// Files with names and chunk files.
pub fn stored(store: &impl Store) -> Vec<Stored> {
    let mut files = Vec::new();
    let _ = store.scan(&[], &[0xff, 0xff], &mut |key, value| {
        let (Some(&INODE_TABLE), Some(number)) = (key.get(2), key.get(3..11)) else { return true };
        let number = number.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        if let Ok(inode) = skep_meta::Inode::from_bytes(value)
            && inode.nlink > 0
            && !inode.layout.is_inline()
            && inode.size <= SIZE_MAX
        {
            files.push(Stored { ino: Ino(number), size: inode.size, layout: inode.layout });
        }
        true
    });
    files
}

impl Stored {
    /// What may be done to it so that a read must fail; `draw` decides.
    pub fn harm(&self, draw: &mut impl FnMut(u64) -> u64) -> Option<Harm> {
        let read = self.layout.pieces(0, self.size);
        let touched = |(chunk, _): &(ChunkId, TargetId)| {
            self.layout.floor(chunk) > 0 && read.iter().any(|piece| piece.chunk == *chunk)
        };
        let chunks: Vec<_> = self.layout.chunks().filter(touched).collect();
        if chunks.is_empty() {
            return None;
        }
        let (chunk, target) = chunks[draw(chunks.len() as u64) as usize];
        let left = if draw(2) == 0 { None } else { Some(draw(self.layout.floor(&chunk))) };
        Some(Harm { target, chunk, left })
    }

    /// Reads it all: EIO when it was harmed, and only then; readable once that is given up.
    pub async fn check(&self, lane: &SimLane, harm: Option<Harm>) -> Result<(), String> {
        let Self { ino, size, .. } = *self;
        let found = read_all(lane, ino, size).await;
        match (harm, found) {
            (None, Ok(_)) => return Ok(()),
            // Of a file that nobody looked at since.
            (None, Err(Errno::EIO)) if give_up(lane, ino).await? => return Ok(()),
            (None, Err(errno)) => return Err(format!("inode {ino} is whole, and a read gives {errno}")),
            (Some(harm), Err(Errno::EIO)) => self.check_harmed(lane, harm).await?,
            (Some(harm), found) => {
                let found = found.map(|bytes| bytes.len());
                return Err(format!("{harm:?}, and a read gives {found:?} instead of EIO"));
            }
        }
        let given_up = lane.repair(ino).await.map_err(|errno| format!("inode {ino}: repair: {errno}"))?;
        if !given_up.iter().any(|lost| harm.is_some_and(|harm| harm.chunk == lost.chunk)) {
            return Err(format!("{harm:?}, and a repair finds {given_up:?}"));
        }
        match read_all(lane, ino, size).await {
            Ok(bytes) if bytes.len() as u64 == size => Ok(()),
            other => Err(format!("inode {ino} of {size} bytes, repaired: {:?}", other.map(|b| b.len()))),
        }
    }
}

impl Stored {
    /// Also a single byte of what is lost, and both seeks from the start of its extent.
    async fn check_harmed(&self, lane: &SimLane, harm: Harm) -> Result<(), String> {
        let Some(extent) = self.layout.extent_of(&harm.chunk) else {
            return Err(format!("{harm:?}: no extent of {self:?}"));
        };
        let mut found = Vec::new();
        let how = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
        let opened = lane.open(self.ino, how).await.map_err(|errno| format!("{harm:?}: open: {errno}"))?;
        let last = self.last_lost(harm.chunk);
        if let Some(last) = last {
            found.push(read(lane, opened.handle, last, 1).await.map(|_| ()));
        }
        // Where an earlier extent has some of the bytes, no hole is looked for, and so no loss is met.
        let earlier = self.layout.extents.iter().take_while(|other| !std::ptr::eq(*other, extent));
        let shared = earlier.filter(|other| other.is_closed()).map(|other| other.end).max();
        let seeks = if last < shared { &[Seek::Data][..] } else { &[Seek::Data, Seek::Hole] };
        for &what in seeks {
            found.push(lane.seek(opened.handle, extent.start, what).await.map(|_| ()));
        }
        lane.release(opened.handle).await;
        if found.iter().any(|found| *found != Err(Errno::EIO)) {
            return Err(format!("{harm:?}: a byte and both seeks give {found:?} instead of EIO"));
        }
        Ok(())
    }
}

impl Stored {
    /// The last byte of the file that a chunk file must hold. (What another extent owns is read there.)
    fn last_lost(&self, chunk: ChunkId) -> Option<u64> {
        let floor = self.layout.floor(&chunk);
        let pieces = self.layout.pieces(0, self.size).into_iter();
        let held = pieces.filter(|piece| piece.chunk == chunk && piece.local_offset < floor);
        held.map(|piece| piece.file_offset + piece.len.min(floor - piece.local_offset) - 1).max()
    }
}

async fn read_all(lane: &SimLane, ino: Ino, size: u64) -> Result<Vec<u8>, Errno> {
    let how = OpenHow { mode: OpenMode::Read, truncate: false, sync: false, kill_suidgid: false };
    let opened = lane.open(ino, how).await?;
    let bytes = read(lane, opened.handle, 0, size as usize + 1).await;
    lane.release(opened.handle).await;
    bytes
}

/// A read gave EIO: a power cut took chunk files that were written and not synced, and nothing else. They are given
/// up, so that the history can go on. `false`: nothing of the file is lost any more.
pub async fn give_up(lane: &SimLane, ino: Ino) -> Result<bool, String> {
    let mut begun = false;
    let lost = loop {
        let session = session_of(&lane.port().shared);
        match lane.repair(ino).await {
            Ok(lost) => break lost,
            // Evicted before the answer came: it may have been done, or not.
            Err(Errno::EIO) if session_of(&lane.port().shared) != session => begun = true,
            Err(errno) => return Err(format!("inode {ino}: repair: {errno}")),
        }
    };
    if let Some(synced) = lost.iter().find(|lost| lost.floor > WRITTEN) {
        return Err(format!("a chunk file is shorter than what was synced: {synced:?}"));
    }
    let hub = &mut *lane.port().hub.borrow_mut();
    if !lost.is_empty() && !hub.cuts.contains(&Cut::Storaged) {
        return Err(format!("chunk files are lost without a power cut: {lost:?}"));
    }
    if !lost.is_empty() {
        hub.coverage.hit("what a power cut took was given up");
    }
    Ok(begun || !lost.is_empty())
}
