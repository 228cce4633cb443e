//! Reads and writes of file contents: one worker's part of an [`crate::job::IoJob`].

mod buffer;
mod course;
mod pattern;
mod striping;
mod supply;

use crate::engine::{Load, Meter, Next, Part, Place, Side, Step, StepKind, Trouble, mix, reader_of};
use crate::engine::{ground, now_ns};
use crate::job::{Fsync, IoJob, IoKind, IoPhase, Order, SyncMode, io_file};
pub(crate) use buffer::Buffer;
use course::Course;
pub use course::transfers;
use pattern::{Passes, Pattern};
pub(crate) use pattern::{fill, first_wrong};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
pub(crate) use striping::{stripe, there_are};
pub use supply::Supply;

/// Access to files that are made.
const FILE_MODE: Mode = Mode::from_bits_retain(0o644);

/// One worker of an I/O job.
pub(crate) struct IoLoad {
    place: Place,
    io: IoJob,
    buffer: Buffer,
    /// What is written where nothing is compared.
    supply: Option<Supply>,
    /// Which passes of writes may have left what is in the files.
    passes: Passes,
    /// Whether this worker's file was made in this repetition.
    made: bool,
    run: Option<Pass>,
}

/// The pass that is prepared.
struct Pass {
    phase: IoPhase,
    path: PathBuf,
    file: Option<OwnedFd>,
    course: Course,
    pattern: Pattern,
    generation: u32,
    /// Draws the kinds of a mixed pass.
    dice: u64,
}

impl IoLoad {
    pub fn new(place: &Place, io: &IoJob) -> Result<Self, Trouble> {
        let short =
            || Trouble::found("get memory for a transfer", Path::new(""), "there is not enough".to_owned());
        let buffer = Buffer::new(io.transfer as usize).ok_or_else(short)?;
        let supply = if !io.verifies() && io.phases.iter().any(|phase| phase.kind.writes()) {
            // Two runs with the same seed must not write the same bytes either.
            let key = mix(place.job.seed ^ u64::from(place.worker)) ^ mix(now_ns());
            Some(Supply::new(io.transfer, key).ok_or_else(short)?)
        } else {
            None
        };
        let passes = Passes::new(place.job.existing);
        let (place, io) = (place.clone(), io.clone());
        Ok(Self { place, io, buffer, supply, passes, made: false, run: None })
    }

    fn flags(&self, phase: &IoPhase) -> OFlags {
        let mut flags = OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            | match phase.kind {
                IoKind::Write => OFlags::WRONLY,
                IoKind::Rewrite => OFlags::WRONLY,
                IoKind::Read | IoKind::Reread => OFlags::RDONLY,
                IoKind::Mixed { .. } => OFlags::RDWR,
            };
        if self.io.direct {
            flags |= OFlags::DIRECT;
        }
        match self.io.sync {
            SyncMode::None => {}
            SyncMode::Data => flags |= OFlags::DSYNC,
            SyncMode::Full => flags |= OFlags::SYNC,
        }
        flags
    }

    /// What this worker makes is this run's to remove; what is there already is not. A shared file is there: one
    /// worker has made it before.
    fn open_file(&self, phase: &IoPhase, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = self.flags(phase);
        if phase.kind == IoKind::Write && !self.made && !self.io.share.is_shared() {
            match self.place.claims.file(path, flags, FILE_MODE) {
                Err(Errno::EXIST) if self.place.job.existing => {}
                other => return other,
            }
        }
        ground::open(path, flags, FILE_MODE)
    }

    /// The shared file is one worker's to make, before the others open it: whoever else puts a file there after
    /// the check of names finds it untouched.
    fn make_shared(&mut self) -> Result<(), Trouble> {
        if self.place.worker != 0 || self.made {
            return Ok(());
        }
        let path = io_file(&self.io, 0);
        match self.place.claims.file(&path, OFlags::WRONLY, FILE_MODE) {
            Err(Errno::EXIST) if self.place.job.existing => Ok(()),
            Err(errno) => Err(Trouble::call("make", &path, errno)),
            Ok(file) => {
                self.made = true;
                self.lay_out(&file, &path)
            }
        }
    }

    /// Stripes and room of a file before its first write.
    fn lay_out(&self, file: &OwnedFd, path: &Path) -> Result<(), Trouble> {
        if let Some(striping) = &self.io.striping {
            stripe(file, path, striping)?;
        }
        if self.io.preallocate {
            let size = self.io.file_size(u64::from(self.place.job.workers.count()));
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size)
                .map_err(|errno| Trouble::call("set room aside for", path, errno))?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), Trouble> {
        let Some(pass) = &self.run else { return Ok(()) };
        let phase = pass.phase;
        let file =
            self.open_file(&phase, &pass.path).map_err(|errno| Trouble::call("open", &pass.path, errno))?;
        let creator = !self.io.share.is_shared() || self.place.worker == 0;
        if phase.kind == IoKind::Write && creator && !self.made {
            self.lay_out(&file, &pass.path)?;
        }
        if self.io.advise {
            let advice = if phase.order == Order::Forward { Advice::Sequential } else { Advice::Random };
            // A hint: a file system that knows none does as well.
            let _ = rustix::fs::fadvise(&file, 0, None, advice);
        }
        self.made |= phase.kind == IoKind::Write;
        if let Some(pass) = &mut self.run {
            pass.file = Some(file);
        }
        Ok(())
    }

    /// Fsync and close; what of it counts is added to the time.
    fn finish(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let Some(pass) = &mut self.run else { return Ok(()) };
        let Some(file) = pass.file.take() else { return Ok(()) };
        let began = now_ns();
        if pass.phase.kind.writes() && self.io.fsync != Fsync::Never {
            rustix::fs::fsync(&file).map_err(|errno| Trouble::call("fsync", &pass.path, errno))?;
        }
        let synced = now_ns();
        drop(file);
        let closed = now_ns();
        let timed = [(self.io.time_fsync, synced - began), (self.io.time_close, closed - synced)];
        meter.extend_by(timed.iter().filter(|(counts, _)| *counts).map(|(_, span)| span).sum());
        Ok(())
    }

    fn transfer(&mut self, meter: &mut Meter) -> Result<(), Trouble> {
        let Some(pass) = &mut self.run else { return Ok(()) };
        let Some(file) = &pass.file else { return Ok(()) };
        let every = match self.io.fsync {
            Fsync::Every { transfers } if pass.phase.kind.writes() => transfers,
            _ => u64::MAX,
        };
        let (mut done, mut written) = (0u64, 0u64);
        let mut now = meter.now();
        while meter.next(done, pass.course.count(), now)? == Next::Go {
            let (offset, length) = pass.course.at(done);
            let bytes = &mut self.buffer.bytes()[..length];
            let (write, side) = match pass.phase.kind {
                IoKind::Write | IoKind::Rewrite => (true, Side::First),
                IoKind::Read | IoKind::Reread => (false, Side::First),
                IoKind::Mixed { read_percent } => {
                    let write = mix(pass.dice ^ done) % 100 >= u64::from(read_percent);
                    (write, if write { Side::Second } else { Side::First })
                }
            };
            if write {
                let bytes = match &mut self.supply {
                    Some(supply) => supply.next(length),
                    None => {
                        pass.pattern.fill(bytes, pass.generation, offset);
                        now = meter.now();
                        &mut *bytes
                    }
                };
                write_all(file, bytes, offset)
                    .map_err(|errno| Trouble::call("write", &pass.path, errno).at(offset))?;
            } else {
                read_all(file, bytes, offset, &pass.path)?;
            }
            now = meter.record(side, length as u64, now);
            if !write && pass.phase.verify {
                pass.pattern
                    .verify(bytes, &mut self.passes, offset)
                    .map_err(|wrong| Trouble::found("verify", &pass.path, wrong.1).at(wrong.0))?;
                now = meter.now();
            }
            done += 1;
            if self.io.invalidate && pass.phase.kind.needs_data() && done.is_multiple_of(pass.course.count())
            {
                // Another lap (the clock decides) must not find what this one left in the cache.
                let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
                now = meter.now();
            }
            written += u64::from(write);
            if write && written.is_multiple_of(every) {
                rustix::fs::fsync(file).map_err(|errno| Trouble::call("fsync", &pass.path, errno))?;
                now = meter.now();
                meter.extend();
            }
        }
        Ok(())
    }

    /// Keeps what of earlier passes may still be in the files.
    fn generation(&mut self, step: &Step, phase: &IoPhase, repetition: u32) -> u32 {
        let generation = repetition.saturating_mul(crate::job::MAX_PHASES as u32) + step.index + 1;
        if phase.kind.writes() {
            let walled = step.walled && self.place.job.stonewall.is_some();
            let covers = match phase.kind {
                IoKind::Write => IoJob::covers(phase.order, walled),
                IoKind::Rewrite => IoJob::covers(phase.order, false) && !walled,
                _ => false,
            };
            self.passes.wrote(generation, covers);
        }
        generation
    }

    fn invalidate(&self, path: &Path) -> Result<(), Trouble> {
        let file = ground::open(path, OFlags::RDONLY, Mode::empty())
            .map_err(|errno| Trouble::call("open", path, errno))?;
        rustix::fs::fsync(&file).map_err(|errno| Trouble::call("fsync", path, errno))?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|errno| Trouble::call("drop from the cache", path, errno))
    }
}

impl Load for IoLoad {
    fn prepare(&mut self, step: &Step, repetition: u32, reach: &[u64]) -> Result<(), Trouble> {
        if repetition > 0 && self.io.fresh && step.index == 0 {
            self.made = false;
        }
        let phase = match step.kind {
            StepKind::Io(phase) => phase,
            StepKind::SharedFile => return self.make_shared(),
            _ => return Ok(()),
        };
        let job = &self.place.job;
        let worker = self.place.worker;
        let readers = if phase.kind.needs_data() { self.io.readers } else { crate::job::Readers::Own };
        let target = reader_of(job, readers, worker, self.place.hosts, repetition);
        let seed = course::seed(job, worker, step.index, repetition);
        let limit = if phase.kind.needs_data() { reach.get(target as usize).copied() } else { None };
        let workers = job.workers.count();
        let course = Course::new(&self.io, phase.order, target, workers, limit, seed);
        let pattern = Pattern::new(&self.io, job.seed, target, workers);
        let path = io_file(&self.io, target);
        let existing = job.existing;
        let generation = self.generation(step, &phase, repetition);
        let creator = !self.io.share.is_shared() || worker == 0;
        if self.io.truncate && existing && phase.kind == IoKind::Write && creator && !self.made {
            empty(&path)?;
        }
        if self.io.invalidate && phase.kind.needs_data() {
            self.invalidate(&path)?;
        }
        self.run = Some(Pass { phase, path, file: None, course, pattern, generation, dice: mix(seed) });
        if self.io.time_open || self.io.barriers {
            return Ok(());
        }
        self.open()
    }

    fn part(&mut self, _step: &Step, part: Part, meter: &mut Meter) -> Result<(), Trouble> {
        let closed = self.run.as_ref().is_some_and(|pass| pass.file.is_none());
        if matches!(part, Part::All | Part::Open) && closed {
            self.open()?;
            if self.io.time_open {
                meter.extend();
            }
            if part == Part::All && !self.io.time_open {
                meter.restart();
            }
        }
        if matches!(part, Part::All | Part::Transfer) {
            self.transfer(meter)?;
        }
        if matches!(part, Part::All | Part::Finish) {
            self.finish(meter)?;
        }
        Ok(())
    }

    fn tidy(&mut self, repetition: u32) -> Result<Vec<String>, Trouble> {
        self.run = None;
        let mut warnings = Vec::new();
        // The other files are like this one.
        if repetition == 0 && self.place.worker == 0 && self.made {
            let wanted = self.io.striping.and_then(|striping| striping.targets);
            let path = io_file(&self.io, 0);
            warnings.extend(wanted.and_then(|wanted| striping::fewer(&path, wanted)));
        }
        if self.io.fresh && self.made && repetition + 1 < self.place.job.repetitions {
            // A file that was there before stays, and is written over.
            self.place.claims.remove(&self.place.job, &io_file(&self.io, self.place.worker))?;
        }
        Ok(warnings)
    }
}

/// Empties a file that is there. What has come in its place since the check of names stays as it is: no link is
/// followed, nobody waits at the other end of a pipe, and what is no file is told.
fn empty(path: &Path) -> Result<(), Trouble> {
    let wrong = |errno| Trouble::call("empty", path, errno);
    let file = match ground::open(path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        file => file.map_err(wrong)?,
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(wrong)?.st_mode);
    if kind != FileType::RegularFile {
        let reason = format!("it is a {kind:?} by now, which this job must not touch; take it away");
        return Err(Trouble::found("empty", path, reason));
    }
    rustix::fs::ftruncate(&file, 0).map_err(wrong)
}

#[inline]
pub(crate) fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), rustix::io::Errno> {
    let mut written = rustix::io::pwrite(file, bytes, offset)?;
    while written < bytes.len() {
        match rustix::io::pwrite(file, &bytes[written..], offset + written as u64) {
            Ok(0) => return Err(rustix::io::Errno::IO),
            Ok(more) => written += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[inline]
pub(crate) fn read_all(file: &OwnedFd, bytes: &mut [u8], offset: u64, path: &Path) -> Result<(), Trouble> {
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(file, &mut bytes[read..], offset + read as u64) {
            Ok(0) => {
                let reason = "the file ends here, but the job needs data; was it written by the same job?";
                return Err(Trouble::found("read", path, reason.to_owned()).at(offset + read as u64));
            }
            Ok(more) => read += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Trouble::call("read", path, errno).at(offset + read as u64)),
        }
    }
    Ok(())
}
