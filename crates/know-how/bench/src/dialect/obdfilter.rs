//! obdfilter-survey of Lustre: `thrlo=256 thrhi=256 nobjlo=1 nobjhi=1 rsz=1024K size=32768 obdfilter-survey`.

use super::Relative;
use super::relatives::binary;
use super::size::{Units, bytes};
use super::words::number;

/// Its variables, with the script's own defaults.
struct Settings {
    threads: [u32; 2],
    objects: [u32; 2],
    record: [u64; 2],
    /// MiB of each target.
    size: u64,
}

/// None: it is something else.
pub(super) fn survey(words: &[String]) -> Option<Result<Relative, String>> {
    let at = words.iter().position(|word| !word.contains('='))?;
    // `sh obdfilter-survey` is how manuals call it.
    let at = at + usize::from(matches!(words[at].as_str(), "sh" | "bash"));
    if words.get(at)?.rsplit('/').next() != Some("obdfilter-survey") {
        return None;
    }
    Some(translated(&words[..at], &words[at + 1..]).map_err(|why| format!("obdfilter-survey: {why}")))
}

fn translated(variables: &[String], behind: &[String]) -> Result<Relative, String> {
    if let Some(word) = behind.first() {
        return Err(format!("{word} belongs to no option: it is told everything by variables before it"));
    }
    let mut s = Settings { threads: [1, 16], objects: [1, 16], record: [1 << 20; 2], size: 1_024 };
    for word in variables {
        let Some((name, value)) = word.split_once('=') else { continue };
        set(&mut s, name, value).map_err(|why| format!("{word}: {why}"))?;
    }
    let size = s.size.checked_mul(1 << 20).ok_or("size= does not fit into 64 bits")?;
    let one = |range: [u32; 2]| (range[0] == range[1]).then_some(range[0]);
    let (Some(threads), Some(objects), true) = (one(s.threads), one(s.objects), s.record[0] == s.record[1])
    else {
        return Ok(Relative {
            tool: "obdfilter-survey",
            instead: "skep survey --only storage".to_owned(),
            because: "it measures every target over threads, objects and record sizes; --preset says how many of each",
        });
    };
    if objects == 0 || threads < objects {
        return Err(format!("{threads} threads for {objects} objects: at least one thread for each object"));
    }
    // Threads share the target's size there; here each has so much of its own.
    let each = size / u64::from(threads) / s.record[0].max(1) * s.record[0];
    if each == 0 {
        return Err("size= gives a thread less than one record".to_owned());
    }
    Ok(Relative {
        tool: "obdfilter-survey",
        instead: format!(
            "skep bench storage run --block {} --size {} --threads {threads} --objects {objects}",
            binary(s.record[0]),
            binary(each)
        ),
        because: "all storage daemons write and read their own targets at the same time; rewriting is a run with \
                  --rewrite after one with --keep, and `skep survey` measures over threads, objects and record sizes",
    })
}

fn set(s: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    let record = || bytes(value, Units::Kibibytes);
    match name {
        "thrlo" => s.threads[0] = number(value)?,
        "thrhi" => s.threads[1] = number(value)?,
        "nobjlo" => s.objects[0] = number(value)?,
        "nobjhi" => s.objects[1] = number(value)?,
        "rsz" => s.record = [record()?; 2],
        "rszlo" => s.record[0] = record()?,
        "rszhi" => s.record[1] = record()?,
        "size" => s.size = number(value)?,
        "case" if value == "disk" => {}
        "case" => {
            return Err(
                "only `disk` has this equivalent: use `skep bench net pairs` for the network".to_owned()
            );
        }
        "targets" => return Err("name targets by --target of `skep bench storage run`".to_owned()),
        // TERM, tests_str, paths of the script: they change nothing here.
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Result<Relative, String>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        survey(&words)
    }

    /// Goal: one point becomes a run with the same threads, objects, record and bytes of a target; a range a survey.
    #[test]
    fn points_and_ranges() {
        let instead = |line: &str| of(line).unwrap().unwrap().instead;
        assert_eq!(
            instead("thrlo=256 thrhi=256 nobjlo=1 nobjhi=1 rsz=1024K size=32768 obdfilter-survey"),
            "skep bench storage run --block 1MiB --size 128MiB --threads 256 --objects 1"
        );
        assert_eq!(
            instead(
                "nobjlo=2 nobjhi=2 thrlo=8 thrhi=8 rszlo=64 rszhi=64 size=16 sh /usr/bin/obdfilter-survey"
            ),
            "skep bench storage run --block 64KiB --size 2MiB --threads 8 --objects 2"
        );
        assert_eq!(instead("obdfilter-survey"), "skep survey --only storage");
        assert_eq!(of("TERM=linux uptime"), None);
        assert_eq!(of("a=b"), None);
    }

    /// Goal: what cannot be is named.
    #[test]
    fn refusals() {
        for (line, says) in [
            ("thrlo=x obdfilter-survey", "thrlo=x"),
            ("case=network obdfilter-survey", "bench net pairs"),
            ("thrlo=1 thrhi=1 nobjlo=2 nobjhi=2 obdfilter-survey", "1 threads for 2 objects"),
            ("thrlo=4 thrhi=4 nobjlo=1 nobjhi=1 size=1 rsz=1024 obdfilter-survey", "less than one record"),
            ("size=99999999999999999 thrlo=1 thrhi=1 obdfilter-survey", "64 bits"),
            ("obdfilter-survey -x", "-x belongs to no option"),
        ] {
            let error = of(line).unwrap().unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
