//! Targets as they are shown.

use super::*;
use skep_base::namespace::samples;
use skep_instruments::question::Flow;

fn found(bytes: u64, seconds: f64) -> TargetFound {
    TargetFound {
        target: 101,
        state: JobState::Done,
        flow: Flow { bytes, seconds },
        latency: Latency::default(),
        buckets: Vec::new(),
        sync_ms: 0.0,
        error: None,
    }
}

/// A target with this number, at work from a moment on.
fn add(report: &mut StorageReport, number: usize, found: &TargetFound, from_ns: u64) {
    let target = TargetEntry { alias: format!("target-{number}"), ..samples::status().targets[0].clone() };
    let to_ns = from_ns + (found.flow.seconds * 1e9) as u64;
    let window = Some(Window { from_ns, to_ns, error_ns: 500_000 });
    report.add("n", &target, &StorageTest::default(), JobState::Done, Some((found, window)), None);
}

fn report(rates: &[u64]) -> StorageReport {
    report_of(rates, 3)
}

fn report_of(rates: &[u64], rounds: u64) -> StorageReport {
    let mut report = StorageReport::default();
    for (number, rate) in rates.iter().enumerate() {
        for round in 0..rounds {
            add(&mut report, number, &found(rate * (999 + round), 1_000.0), round << 50);
        }
    }
    report.conclude();
    report
}

/// Goal: what was never moved at once is not added up: the aggregate is all bytes over the time in which anybody was at
/// work, gaps left out; the skew is that of the worst round.
#[test]
fn windows_of_different_lengths() {
    let second = 1_000_000_000;
    let mut report = StorageReport::default();
    // 100 in 1 s and 100 in 4 s, begun 2 ms apart; then both in 1 s.
    add(&mut report, 0, &found(100, 1.0), 10 * second);
    add(&mut report, 1, &found(100, 4.0), 10 * second + 2_000_000);
    add(&mut report, 0, &found(100, 1.0), 30 * second);
    add(&mut report, 1, &found(100, 1.0), 30 * second);
    report.conclude();
    let summary = &report.summaries[0];
    assert!((summary.seconds - 5.002).abs() < 1e-9, "{summary:?}");
    assert!((summary.aggregate - 400.0 / 5.002).abs() < 1e-9, "not the sum of rates: {summary:?}");
    assert_eq!((summary.start_skew_ms, summary.clock_error_ms), (2.0, 0.5));
    assert!(summary.text().contains("within 2.00 ms"), "{}", summary.text());
    // One after the other: nothing was moved at once.
    let mut apart = StorageReport::default();
    add(&mut apart, 0, &found(100, 1.0), 10 * second);
    add(&mut apart, 1, &found(100, 1.0), 20 * second);
    apart.conclude();
    let summary = &apart.summaries[0];
    assert_eq!((summary.seconds, summary.aggregate, summary.average), (2.0, 100.0, 100.0));
}

/// Goal: percentiles of several rounds are those of all requests, not the mean of the rounds' percentiles, and a mean
/// counts requests, not rounds.
#[test]
fn percentiles_of_all_requests() {
    let mut report = StorageReport::default();
    // 990 requests of 100 us, then 10 of 10 ms: 99 of 100 took 100 us.
    for (count, us) in [(990, 100.0), (10, 10_000.0)] {
        let latency =
            Latency { count, mean_us: us, p50_us: us, p90_us: us, p99_us: us, p999_us: us, max_us: us };
        let buckets = vec![((us * 1e3) as u64, count)];
        add(&mut report, 0, &TargetFound { latency, buckets, ..found(100, 1.0) }, 0);
    }
    let latency = &report.targets[0].latency;
    assert_eq!(latency.count, 1_000);
    assert!((latency.mean_us - 199.0).abs() < 1e-6, "{latency:?}");
    for (is, should) in [(latency.p50_us, 100.0), (latency.p99_us, 100.0), (latency.p999_us, 10_000.0)] {
        assert!((is / should - 1.0).abs() < 0.002, "{latency:?}");
    }
    assert_eq!(latency.max_us, 10_000.0);
}

/// Goal: minimum, maximum, average and aggregate are right, and the slow target is named; equal ones are not.
#[test]
fn the_slow_one_is_named() {
    let summary = &report(&[100, 30, 110, 90]).summaries[0];
    assert_eq!((summary.minimum, summary.minimum_target.as_str()), (30.0, "target-1"));
    assert_eq!((summary.maximum, summary.average, summary.aggregate), (110.0, 82.5, 330.0));
    assert_eq!(summary.slow, ["target-1"]);
    assert!(summary.text().contains("slow: target-1"), "{}", summary.text());
    assert!(report(&[100, 90, 110, 95]).summaries[0].slow.is_empty());
    assert_eq!(report(&[20, 100]).summaries[0].slow, ["target-0"]);
}

/// Goal: noise is no slow target: neither one round, nor rounds of which another target is the last each time.
#[test]
fn noise_is_not_slow() {
    let once = report_of(&[100, 30, 110, 90], 1);
    assert!(once.summaries[0].slow.is_empty());
    assert!(once.summaries[0].text().contains("--rounds"), "{}", once.summaries[0].text());
    let mut noisy = StorageReport::default();
    for (at, round) in [[100, 20, 90], [30, 110, 100], [95, 100, 25]].into_iter().enumerate() {
        for (number, rate) in round.into_iter().enumerate() {
            add(&mut noisy, number, &found(rate, 1.0), (at as u64) << 40);
        }
    }
    noisy.conclude();
    assert_eq!((noisy.targets.len(), noisy.targets[0].rounds.len()), (3, 3));
    assert!(noisy.summaries[0].slow.is_empty(), "{:?}", noisy.summaries[0].slow);
}

/// Goal: a target that failed is shown with its reason, counts for nothing, and fails the command.
#[test]
fn failed_ones_do_not_count() {
    let mut report = report(&[100, 100]);
    let status = samples::status();
    let test = StorageTest::default();
    let why = Some("no space".to_owned());
    report.add("storaged-1", &status.targets[0], &test, JobState::Failed, None, why);
    report.conclude();
    assert_eq!((report.summaries[0].targets, report.summaries[0].minimum), (2, 100.0));
    assert!(report.verdict().unwrap_err().to_string().contains("target-101"));
    let mut out = Vec::new();
    report.write(ReportArgs::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("FAILED") && text.contains("no space") && text.contains("aggregate"), "{text}");
}
