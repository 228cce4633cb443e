//! What this crate writes beside rows and chunk files, with an example of each, for fuzzing.

use skep_types::formats::Formats;

/// Records of the log, and the small files of targets and directories. Their readers put checksums right first: who
/// damages a disk on purpose does so as well, and damaged bytes would show nothing but the check.
pub fn all() -> Formats {
    let mut formats = Formats::default();
    crate::log::formats(&mut formats);
    crate::ages::formats(&mut formats);
    crate::target::formats(&mut formats);
    formats
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a release wrote on disks is read by every later one, and means the same.
    #[test]
    fn logs_targets_and_ages_stay_readable() {
        skep_types::formats_stay_readable!(all());
    }

    /// Goal: every example is read, and written as it was; a cut one does no harm.
    #[test]
    fn examples_are_read() {
        let formats = all();
        assert_eq!(formats.reads(formats.text()), Ok(()));
        for line in formats.text().lines() {
            let (name, bytes) = skep_types::formats::parse(line).unwrap();
            let (_, again) = formats.readers().find(|(reader, _)| *reader == name).unwrap();
            for length in 0..bytes.len() {
                let read = again(&bytes[..length]);
                assert!(read.is_none_or(|read| again(&read) == Some(read)), "{name} of {length} bytes");
            }
        }
    }
}
