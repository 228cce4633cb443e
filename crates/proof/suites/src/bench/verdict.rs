//! What was to be reached, and whether it was.

use super::place::Place;
use super::result::{On, Placed, Report, Row};
use super::transport::Transport;

/// How many times slower than the empty FUSE file system metadata may be.
const METADATA_MOST: f64 = 2.5;
/// How many times faster io_uring has to make `create` and `stat` of one process.
const URING_LEAST: f64 = 1.3;
/// Share of the composed ceiling that streams have to reach.
const CEILING_LEAST: f64 = 0.6;
/// Speed of one shared file against a file per process.
const SHARED_LEAST: f64 = 0.9;

/// A phase and what it reached.
type Value = (String, f64);

/// One line of the comparison.
pub struct Verdict {
    /// What is compared.
    pub what: String,
    /// The worst and the best that was measured, with the phase of the worst.
    pub measured: String,
    /// All of it within the target?
    pub reached: bool,
}

/// All targets that the result says something about; the pinned figures decide, the free ones stand beside them.
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    report.places.iter().flat_map(of_place).collect()
}

fn of_place(placed: &Placed) -> Vec<Verdict> {
    let mut found = Vec::new();
    let place = placed.place.name();
    let metadata = |row: &&Row| row.phase.contains("directory");
    for transport in [Transport::Dev, Transport::Uring] {
        for processes in [1, 4] {
            let rows = placed.rows.iter().filter(metadata).filter(|row| row.processes == processes);
            let ratios = each(rows, transport, |on| on.empty_over_skep);
            let name = transport.name();
            let what = format!(
                "metadata at most {METADATA_MOST} x the empty FUSE file system ({name}, {processes} proc., {place})"
            );
            found.extend(most(what, METADATA_MOST, ratios));
        }
    }
    if placed.place == Place::Pinned {
        let quick = |row: &&Row| row.phase.starts_with("create") || row.phase.starts_with("stat");
        let rows = placed.rows.iter().filter(quick).filter(|row| row.processes == 1);
        let ratios = rows.filter_map(|row| Some((row.phase.clone(), row.uring_over_dev?))).collect();
        found.extend(least(
            format!("io_uring at least {URING_LEAST} x /dev/fuse ({place})"),
            URING_LEAST,
            ratios,
        ));
    }
    for transport in [Transport::Dev, Transport::Uring] {
        let name = transport.name();
        let streams = || placed.rows.iter().filter(|row| row.stream);
        let shares = each(streams(), transport, |on| on.of_ceiling);
        let what = format!("streams at least {CEILING_LEAST} of the composed ceiling ({name}, {place})");
        found.extend(least(what, CEILING_LEAST, shares));
        let several = streams().filter(|row| row.processes > 1);
        let shares = each(several, transport, |on| on.shared_over_own);
        let what = format!("one shared file at least {SHARED_LEAST} of a file per process ({name}, {place})");
        found.extend(least(what, SHARED_LEAST, shares));
    }
    found
}

fn each<'a>(
    rows: impl Iterator<Item = &'a Row>,
    transport: Transport,
    value: impl Fn(&On) -> Option<f64>,
) -> Vec<Value> {
    let one = |row: &Row| {
        let on = row.on.iter().find(|on| on.transport == transport)?;
        Some((format!("{}, {} proc.", row.phase, row.processes), value(on)?))
    };
    rows.filter_map(one).collect()
}

fn most(what: String, limit: f64, values: Vec<Value>) -> Option<Verdict> {
    let (best, worst) = ends(&values)?;
    Some(Verdict { what, measured: told(best.1, worst), reached: worst.1 <= limit })
}

fn least(what: String, limit: f64, values: Vec<Value>) -> Option<Verdict> {
    let (worst, best) = ends(&values)?;
    Some(Verdict { what, measured: told(best.1, worst), reached: worst.1 >= limit })
}

/// The lowest and the highest.
fn ends(values: &[Value]) -> Option<(&Value, &Value)> {
    let by_value = |a: &&Value, b: &&Value| a.1.total_cmp(&b.1);
    Some((values.iter().min_by(by_value)?, values.iter().max_by(by_value)?))
}

fn told(best: f64, worst: &Value) -> String {
    format!("{best:.2} to {:.2} ({})", worst.1, worst.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one value beyond the limit is a miss that names its phase.
    #[test]
    fn the_worst_decides() {
        let values =
            |worst: f64| vec![("stat, 1 proc.".to_owned(), 2.0), ("create, 1 proc.".to_owned(), worst)];
        let verdict = most("m".into(), 2.5, values(2.6)).unwrap();
        assert!(!verdict.reached);
        assert_eq!(verdict.measured, "2.00 to 2.60 (create, 1 proc.)");
        assert!(most("m".into(), 2.5, values(2.4)).unwrap().reached);
        assert!(!least("l".into(), 2.5, values(2.6)).unwrap().reached);
        assert!(least("l".into(), 2.5, Vec::new()).is_none());
    }
}
