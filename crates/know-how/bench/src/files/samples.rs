//! Training: samples that several workers read in random order, each once per epoch.

use super::{CALL, SAMPLES, claim, create};
use crate::engine::{Claims, Meter, Next, Permutation, Side, Trouble, ground, mix};
use crate::io::{fill, first_wrong, write_all};
use crate::job::{FilesJob, FilesPhase, Job, Training, root};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::PathBuf;

/// Samples of one directory.
const PER_DIRECTORY: u64 = 1000;

/// The samples, as one worker sees them.
pub(super) struct Samples {
    job: FilesJob,
    training: Training,
    seed: u64,
    worker: u64,
    workers: u64,
    repetition: u32,
}

impl Samples {
    pub fn new(job: &FilesJob, seed: u64, worker: u32, workers: u32) -> Self {
        let (worker, workers) = (u64::from(worker), u64::from(workers));
        Self { job: job.clone(), training: job.training, seed, worker, workers, repetition: 0 }
    }

    fn top(&self, path: u64) -> PathBuf {
        root(&self.job.paths, &self.job.name, path as u32).join(SAMPLES)
    }

    fn directory(&self, sample: u64) -> PathBuf {
        self.top(sample % self.job.paths.len() as u64).join(format!("{:06}", sample / PER_DIRECTORY))
    }

    fn path(&self, sample: u64) -> PathBuf {
        self.directory(sample).join(format!("{sample:09}.jpg"))
    }

    fn size(&self, sample: u64) -> u64 {
        let span = self.training.largest_bytes - self.training.smallest_bytes + 1;
        self.training.smallest_bytes + mix(self.seed ^ mix(sample)) % span
    }

    fn key(&self, sample: u64) -> u64 {
        mix(self.seed ^ sample.rotate_left(40))
    }

    fn mine(&self) -> impl Iterator<Item = u64> + use<> {
        (self.worker..self.training.samples).step_by(self.workers as usize)
    }

    /// Directories are made before the clock runs.
    pub fn prepare(&mut self, phase: FilesPhase, repetition: u32, claims: &Claims) -> Result<(), Trouble> {
        self.repetition = repetition;
        if phase != FilesPhase::Samples {
            return Ok(());
        }
        let mut last = PathBuf::new();
        for sample in self.mine() {
            let directory = self.directory(sample);
            if directory != last {
                let top = self.top(sample % self.job.paths.len() as u64);
                claim(claims, &top)?;
                match ground::mkdir(&directory) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(Trouble::call("mkdir", &directory, errno)),
                }
                last = directory;
            }
        }
        Ok(())
    }

    /// Writes this worker's part.
    pub fn make(&self, meter: &mut Meter) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        for (done, sample) in self.mine().enumerate() {
            bytes.resize(self.size(sample) as usize, 0);
            fill(&mut bytes, self.key(sample), 0);
            let path = self.path(sample);
            let now = meter.now();
            meter.next(done as u64, u64::MAX, now)?;
            let file = create(&path)?;
            write_all(&file, &bytes, 0).map_err(|errno| Trouble::call("write", &path, errno))?;
            drop(file);
            meter.record(Side::First, bytes.len() as u64, now);
        }
        Ok(())
    }

    /// Reads this worker's part of every epoch.
    pub fn train(&self, meter: &mut Meter, buffer: &mut Vec<u8>) -> Result<(), Trouble> {
        let order = |epoch: u64| {
            let seed = mix(self.seed ^ mix(epoch << 32 | u64::from(self.repetition)));
            Permutation::new(self.training.samples, seed)
        };
        // Who is done early still has to tell the others how far it was, so the meter must know where the end is.
        let each = self.mine().count() as u64;
        let mut now = meter.now();
        let (mut done, mut epoch, mut drawn) = (0, 0, order(0));
        while meter.next(done, each * u64::from(self.training.epochs), now)? == Next::Go {
            if done / each != epoch {
                epoch = done / each;
                drawn = order(epoch);
            }
            let bytes = self.read(drawn.at(self.worker + done % each * self.workers), buffer)?;
            done += 1;
            now = meter.record(Side::First, bytes, now);
        }
        Ok(())
    }

    fn read(&self, sample: u64, buffer: &mut Vec<u8>) -> Result<u64, Trouble> {
        let path = self.path(sample);
        buffer.resize(CALL, 0);
        let file = ground::open(&path, OFlags::RDONLY, Mode::empty())
            .map_err(|errno| Trouble::call("open", &path, errno))?;
        let mut bytes = 0;
        loop {
            let read = rustix::io::read(&file, &mut buffer[..])
                .map_err(|errno| Trouble::call("read", &path, errno).at(bytes))?;
            if read == 0 {
                break;
            }
            // The beginning of every read tells whether these are this sample's bytes, at little cost.
            let compared = if self.job.verify { read } else { read.min(64) };
            let probe = &buffer[..compared];
            if let Some(at) = first_wrong(probe, self.key(sample), bytes) {
                let reason = "these are not the bytes that were written".to_owned();
                return Err(Trouble::found("verify", &path, reason).at(bytes + at as u64));
            }
            bytes += read as u64;
        }
        if bytes != self.size(sample) {
            let reason = format!("{bytes} of {} bytes were read", self.size(sample));
            return Err(Trouble::found("read", &path, reason));
        }
        Ok(bytes)
    }

    /// Removes the samples' directories that this process made.
    pub fn remove(&self, job: &Job, claims: &Claims) -> Result<(), Trouble> {
        (0..self.job.paths.len() as u64).try_for_each(|path| claims.remove(job, &self.top(path)))
    }
}
