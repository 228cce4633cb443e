//! What a layer could deliver given those below it, and which layer costs most.

mod busy;
mod growth;

use crate::ids::{self, CLIENT, CLIENTS, DEVICE, NETWORK, ONE_FILE, OWN_FILES, STORAGE};
use crate::model::{Curve, Evidence, Layer, LayerId, Limit, Step, Theory, Waterfall};
use skep_bench::significance::median;

/// Where the layers run: it decides how their limits add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each on machines of its own: they work at the same time, and the slowest decides.
    Apart,
    /// All on one machine: each takes its share of the same processors, and their times add up.
    Together,
}

/// All clients together must reach this share of what lies below, or they are the limit themselves.
const CLIENTS_REACH: f64 = 0.7;
/// A layer that reaches this share of the one below costs nothing worth naming.
const PASSES_ON: f64 = 0.85;
/// A storage daemon this much faster than its devices answers from memory.
const FROM_MEMORY: f64 = 1.1;
/// A part of a byte's time that is named beside the largest is at least this share of it.
const CLOSE: f64 = 0.6;
/// Two runs on one cluster differ by this factor without a reason, so what lies closer is not told apart.
const DRIFT: f64 = 1.15;

/// The figure a curve stands for: the best of its medians.
pub fn best(curve: &Curve) -> Option<(f64, f64)> {
    let at = |p: &crate::model::Point| Some((p.x, median(&p.samples)?));
    curve.points.iter().filter_map(at).filter(|(_, y)| y.is_finite()).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn find<'a>(layers: &'a [Layer], id: &str) -> Option<&'a Curve> {
    layers.iter().flat_map(|layer| &layer.curves).find(|curve| curve.id == id)
}

/// A rate, and how far it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    low: f64,
    value: f64,
    high: f64,
}

fn peak(layers: &[Layer], id: &str) -> Option<Rate> {
    let curve = find(layers, id)?;
    let (x, value) = best(curve).filter(|(_, y)| *y > 0.0)?;
    let point = curve.points.iter().find(|point| point.x == x)?;
    let samples = || point.samples.iter().copied().filter(|y| y.is_finite() && *y > 0.0);
    let low = samples().fold(value / DRIFT, f64::min);
    Some(Rate { low, value, high: samples().fold(value * DRIFT, f64::max) })
}

/// What two layers deliver one behind the other.
pub fn composed(place: Place, parts: &[f64]) -> Option<f64> {
    let usable: Vec<f64> = parts.iter().copied().filter(|x| *x > 0.0).collect();
    if usable.is_empty() {
        return None;
    }
    Some(match place {
        Place::Apart => usable.iter().copied().fold(f64::INFINITY, f64::min),
        Place::Together => 1.0 / usable.iter().map(|x| 1.0 / x).sum::<f64>(),
    })
}

/// What was measured of one kind of work, layer by layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Work {
    device: Option<Rate>,
    storage: Option<Rate>,
    network: Option<Rate>,
    client: Option<Rate>,
    own: Option<Rate>,
    one: Option<Rate>,
}

fn value(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.value)
}

impl Work {
    fn of(layers: &[Layer], work: &str) -> Self {
        let one = |layer: &str| peak(layers, &format!("{layer}.{work}"));
        Self {
            device: one(DEVICE),
            storage: one(STORAGE),
            network: one(NETWORK),
            client: one(CLIENT),
            own: peak(layers, &format!("{CLIENTS}.{work}{OWN_FILES}")),
            one: peak(layers, &format!("{CLIENTS}.{work}{ONE_FILE}")),
        }
    }

    /// What the devices deliver, if the bytes of the layers above come from them at all.
    fn device_in_path(&self) -> Option<Rate> {
        self.device.filter(|_| self.cached().is_none())
    }

    /// What the storage daemons deliver beside their devices, if that is so much that caches answered: what belongs to
    /// the devices and what to the daemons cannot be told then, so neither is named as a limit.
    fn cached(&self) -> Option<(f64, f64)> {
        let (storage, device) = (self.storage?.value, self.device?.value);
        (storage > FROM_MEMORY * device).then_some((storage, device))
    }

    fn below(&self, place: Place) -> Option<f64> {
        let parts: Vec<f64> = [self.storage.or(self.device), self.network]
            .into_iter()
            .flatten()
            .map(|rate| rate.value)
            .collect();
        composed(place, &parts)
    }
}

const WORKS: [(&str, &str); 2] = [(ids::WRITE, "Write"), (ids::READ, "Read")];

/// Achieved beside theoretical, for each kind of work that was measured in two layers at least.
pub fn waterfalls(layers: &[Layer], theory: &[Theory], place: Place) -> Vec<Waterfall> {
    let made = WORKS.iter().map(|(id, title)| {
        let of = theory.iter().filter(|one| one.work == *id).collect::<Vec<&Theory>>();
        waterfall(&Work::of(layers, id), &of, title, place)
    });
    made.filter(|w| w.steps.len() > 1).collect()
}

/// What a layer could do, and from where that comes or why nothing tells.
struct Ceiling<'a> {
    rate: Option<f64>,
    because: &'a str,
    /// What is said when more was reached.
    beaten: &'static str,
}

fn waterfall(work: &Work, theory: &[&Theory], title: &str, place: Place) -> Waterfall {
    let how = match place {
        Place::Apart => "the slower of storage daemons and network",
        Place::Together => "storage daemons and network one behind the other on the same processors",
    };
    let step = |layer, name: &str, achieved: Option<Rate>, ceiling: Ceiling<'_>| {
        let achieved = achieved?.value;
        // More than the layers below can give comes from a cache: no share of theirs.
        let beaten = ceiling.rate.is_some_and(|possible| achieved > FROM_MEMORY * possible);
        let because = match ceiling.rate {
            Some(_) if beaten => ceiling.beaten.to_owned(),
            Some(possible) if achieved > possible => format!("{}{WITHIN_NOISE}", ceiling.because),
            _ => ceiling.because.to_owned(),
        };
        let theoretical = ceiling.rate.filter(|_| !beaten);
        Some(Step { layer, name: name.to_owned(), achieved, theoretical, because })
    };
    let sheet = |layer| {
        let told = theory.iter().find(|one| one.layer == layer);
        Ceiling {
            rate: told.and_then(|one| one.rate).filter(|rate| rate.is_finite() && *rate > 0.0),
            because: told.map_or("nothing told what it could do", |one| &one.because),
            beaten: BEYOND_THE_SHEET,
        }
    };
    let measured = |rate, because| Ceiling { rate, because, beaten: NOT_COMPARABLE };
    let below = work.below(place);
    let (device, own) = (value(work.device), value(work.own));
    let steps = [
        step(LayerId::Device, "Devices of all targets", work.device, sheet(LayerId::Device)),
        step(
            LayerId::Storage,
            "Through the storage daemons",
            work.storage,
            measured(device, "what the devices deliver"),
        ),
        step(LayerId::Network, "Network of all storage daemons", work.network, sheet(LayerId::Network)),
        step(LayerId::Client, "One client process", work.client, measured(below, how)),
        step(LayerId::Clients, "All processes, own files", work.own, measured(below, how)),
        step(LayerId::Clients, "All processes, one file", work.one, measured(own, "what own files reach")),
    ];
    let steps = steps.into_iter().flatten().collect();
    Waterfall { title: title.to_owned(), unit: "MB/s".to_owned(), steps }
}

/// What stands beside a share a little above everything.
const WITHIN_NOISE: &str = "; two measurements differ by as much as this is above it";
/// Why a layer has no ceiling though its hardware was described.
const BEYOND_THE_SHEET: &str = "not comparable: it delivers more than its hardware can, so a cache answered or the description is not of it";
/// Why a step has no ceiling though layers below it were measured.
const NOT_COMPARABLE: &str = "not comparable: caches answered faster than the layers below were measured";

/// What limits each kind of work: processors that everything waits for, then layers, then where none can be named.
pub fn limits(layers: &[Layer], place: Place) -> Vec<Limit> {
    let stream = |(id, title): &(&str, &str)| stream_limit(&Work::of(layers, id), title, place);
    let (named, open): (Vec<Limit>, Vec<Limit>) =
        WORKS.iter().filter_map(stream).partition(|limit| limit.layer.is_some());
    busy::limit(layers).into_iter().chain(named).chain(open).chain(growth::limit(layers)).collect()
}

/// A layer, if one can be named, and why.
type Found = (Option<LayerId>, String);

fn stream_limit(work: &Work, title: &str, place: Place) -> Option<Limit> {
    let clients = work.own.or(work.client)?;
    let below = work.below(place)?;
    let (layer, finding) = match place {
        _ if clients.value > FROM_MEMORY * below => (
            None,
            format!(
                "no layer can be named: the processes reach {:.0} MB/s, more than the {below:.0} MB/s that storage \
                 daemons and network were measured with, so caches answered",
                clients.value
            ),
        ),
        Place::Apart => slowest(work, clients.value, below)?,
        Place::Together => dearest(work, clients)?,
    };
    Some(Limit {
        work: format!("{title}, a file per process"),
        layer,
        finding,
        evidence: evidence(work, clients, below),
    })
}

/// Each layer beside the one that it stands on; what cannot be compared has no row.
fn evidence(work: &Work, clients: Rate, below: f64) -> Vec<Evidence> {
    let row = |what: &str, value: Option<Rate>, expected: Option<Rate>| {
        let (value, expected) = (value?.value, expected?.value);
        Some(Evidence { what: what.to_owned(), value, expected, unit: "MB/s".to_owned() })
    };
    let bound = Rate { low: below, value: below, high: below };
    let cached = clients.value > FROM_MEMORY * below;
    [
        row("storage daemons, of their devices", work.storage, work.device_in_path()),
        row("network, of the storage daemons", work.network, work.storage),
        row("all processes, of storage daemons and network", Some(clients), Some(bound).filter(|_| !cached)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Layers on machines of their own: the one with the smallest figure, and what comes so close that another run could
/// turn them round.
fn slowest(work: &Work, clients: f64, below: f64) -> Option<Found> {
    if clients < CLIENTS_REACH * below {
        let share = 100.0 * clients / below;
        return Some((
            Some(LayerId::Clients),
            format!(
                "the clients reach {clients:.0} MB/s, {share:.0} % of the {below:.0} MB/s that network and storage \
             deliver: more clients or more processes are needed, or the client itself is the limit"
            ),
        ));
    }
    if let Some((storage, device)) = work.cached() {
        return Some(match work.network.map(|network| network.value) {
            Some(network) if network <= DRIFT * storage => (
                Some(LayerId::Network),
                format!(
                    "the network carries {network:.0} MB/s; the storage daemons deliver {storage:.0} MB/s from caches, \
                     and were not judged"
                ),
            ),
            _ => (None, format!("no layer can be named: {}", unjudged(storage, device))),
        });
    }
    if let (Some(network), Some(storage)) = (work.network, work.storage) {
        if network.low <= storage.high && storage.low <= network.high {
            return Some((
                Some(LayerId::Storage),
                format!(
                    "storage daemons ({:.0} MB/s) and network ({:.0} MB/s) limit alike: they are too close to be told \
                     apart",
                    storage.value, network.value
                ),
            ));
        }
        if network.value < storage.value {
            return Some((
                Some(LayerId::Network),
                format!("the network carries {below:.0} MB/s, less than the storage daemons deliver"),
            ));
        }
    }
    if let (Some(network), None) = (work.network, work.storage.or(work.device)) {
        return Some((Some(LayerId::Network), format!("the network carries {:.0} MB/s", network.value)));
    }
    let storage = work.storage.or(work.device)?.value;
    match work.device_in_path().map(|device| device.value) {
        Some(device) if storage >= PASSES_ON * device => Some((
            Some(LayerId::Device),
            format!("the devices deliver {device:.0} MB/s, and all above them could carry more"),
        )),
        Some(device) => Some((
            Some(LayerId::Storage),
            format!("the storage daemons pass on {storage:.0} of the {device:.0} MB/s of their devices"),
        )),
        None => Some((Some(LayerId::Storage), format!("the storage daemons deliver {storage:.0} MB/s"))),
    }
}

/// Why neither storage daemons nor devices can be judged.
fn unjudged(storage: f64, device: f64) -> String {
    format!(
        "caches answered, for the storage daemons deliver {storage:.0} MB/s and their devices {device:.0}, so neither \
         of the two was judged"
    )
}

/// Part of a byte's time, and between what it may lie.
struct Cost {
    layer: LayerId,
    name: &'static str,
    low: f64,
    value: f64,
    high: f64,
}

impl Cost {
    /// Of `rate`, less what the layers in it take.
    fn of(layer: LayerId, name: &'static str, rate: Option<Rate>, within: &[&Cost]) -> Self {
        let Some(rate) = rate else { return Self { layer, name, low: 0.0, value: 0.0, high: 0.0 } };
        let sum = |of: fn(&Cost) -> f64| within.iter().map(|cost| of(cost)).sum::<f64>();
        Self {
            layer,
            name,
            low: (1.0 / rate.high - sum(|c| c.high)).max(0.0),
            value: (1.0 / rate.value - sum(|c| c.value)).max(0.0),
            high: (1.0 / rate.low - sum(|c| c.low)).max(0.0),
        }
    }
}

/// Layers on one machine: the one that takes the largest part of the time of a byte, and those that may take as much.
fn dearest(work: &Work, clients: Rate) -> Option<Found> {
    let daemons = match work.device {
        Some(_) => "the code of the storage daemons",
        None => "the storage daemons with their devices",
    };
    let (layer, above) = match work.own {
        Some(_) => (LayerId::Clients, "the clients (mount, kernel, programs)"),
        None => (LayerId::Client, "the client (mount, kernel, program)"),
    };
    let measured = work.storage.is_some() && work.network.is_some();
    let above = if measured { above } else { "the clients, with what was not measured," };
    let device = Cost::of(LayerId::Device, "the devices", work.device_in_path(), &[]);
    let storage = Cost::of(LayerId::Storage, daemons, work.storage, &[&device]);
    let network = Cost::of(LayerId::Network, "the network", work.network, &[]);
    let rest = Cost::of(layer, above, Some(clients), &[&device, &storage, &network]);
    let all: f64 = [&device, &storage, &network, &rest].iter().map(|part| part.value).sum();
    let Some((rate, disks)) = work.cached() else {
        return named(&[device, storage, network, rest], all);
    };
    let parts = [network, rest];
    let most = parts.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let why = unjudged(rate, disks);
    if storage.high < most.low {
        return named(&parts, all).map(|(layer, finding)| (layer, format!("{finding}; {why}")));
    }
    let shares = shares(parts.iter().filter(|part| part.value > 0.0), all);
    Some((
        None,
        format!("no layer can be named: {why}; of every byte's time, as far as it can be told: {shares}"),
    ))
}

fn shares<'a>(parts: impl Iterator<Item = &'a Cost>, all: f64) -> String {
    let share = |part: &Cost| format!("{} {:.0} %", part.name, 100.0 * part.value / all);
    parts.map(share).collect::<Vec<String>>().join(", ")
}

/// The largest of these parts of `all`, and what may be as large.
fn named(parts: &[Cost], all: f64) -> Option<Found> {
    let most = parts.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let close = |part: &&Cost| part.high >= most.low && part.value >= CLOSE * most.value;
    // From the bottom, so that two runs that differ by chance say the same.
    let named: Vec<&Cost> = parts.iter().filter(close).collect();
    let finding = match named.as_slice() {
        [one] => format!(
            "on one machine the times add up: of every byte's time {} take {:.0} %, the largest part",
            one.name,
            100.0 * one.value / all
        ),
        many => format!(
            "on one machine the times add up, and these parts of every byte's time are too close to be told apart: {}",
            shares(many.iter().copied(), all)
        ),
    };
    Some((Some(named.first().unwrap_or(&most).layer), finding))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Point;

    fn curve(id: &str, values: &[f64]) -> Curve {
        let points = values.iter().enumerate();
        Curve {
            id: id.to_owned(),
            title: id.to_owned(),
            unit: "MB/s".to_owned(),
            axis: "processes".to_owned(),
            points: points
                .map(|(i, y)| Point { x: f64::from(1 << i), samples: vec![*y, y * 1.01, y * 0.99] })
                .collect(),
            command: String::new(),
        }
    }

    fn layer(id: LayerId, curves: Vec<Curve>) -> Layer {
        Layer { id, about: String::new(), curves, sides: vec![] }
    }

    fn system(device: f64, storage: f64, network: f64, clients: f64) -> Vec<Layer> {
        vec![
            layer(LayerId::Device, vec![curve("device.write", &[device])]),
            layer(LayerId::Storage, vec![curve("storage.write", &[storage])]),
            layer(LayerId::Network, vec![curve("network.write", &[network])]),
            layer(LayerId::Clients, vec![curve("clients.write.n-n", &[clients / 2.0, clients])]),
        ]
    }

    /// Goal: on machines of their own, each layer in turn is named when it is the smallest.
    #[test]
    fn the_smallest_limits() {
        for (figures, expected) in [
            ([1_000.0, 980.0, 3_000.0, 950.0], LayerId::Device),
            ([2_000.0, 1_000.0, 3_000.0, 950.0], LayerId::Storage),
            ([2_000.0, 1_900.0, 1_100.0, 1_000.0], LayerId::Network),
            ([2_000.0, 1_900.0, 2_500.0, 600.0], LayerId::Clients),
        ] {
            let [d, s, n, c] = figures;
            let found = limits(&system(d, s, n, c), Place::Apart);
            assert_eq!(found[0].layer, Some(expected), "{figures:?}: {}", found[0].finding);
            assert_eq!(found[0].evidence.len(), 3);
        }
    }

    /// Goal: on one machine the times add up, and the dearest part is named.
    #[test]
    fn the_dearest_limits() {
        for (figures, expected) in [
            ([500.0, 480.0, 4_000.0, 400.0], LayerId::Device),
            ([8_000.0, 1_000.0, 4_000.0, 700.0], LayerId::Storage),
            ([8_000.0, 7_000.0, 1_000.0, 800.0], LayerId::Network),
            ([8_000.0, 7_000.0, 4_000.0, 600.0], LayerId::Clients),
        ] {
            let [d, s, n, c] = figures;
            let found = limits(&system(d, s, n, c), Place::Together);
            assert_eq!(found[0].layer, Some(expected), "{figures:?}: {}", found[0].finding);
        }
    }

    /// Goal: devices are no limit of bytes that come from memory, and no ceiling of what is above them.
    #[test]
    fn from_memory() {
        for place in [Place::Apart, Place::Together] {
            let layers = system(500.0, 2_500.0, 3_000.0, 1_300.0);
            let layer = limits(&layers, place)[0].layer;
            assert!(!matches!(layer, Some(LayerId::Device | LayerId::Storage)), "{layer:?}");
            assert_eq!(waterfalls(&layers, &[], place)[0].steps[1].theoretical, None);
        }
    }

    /// Goal: layers that are close are named both, the same ones in every run, whichever is a little ahead.
    #[test]
    fn close_ones_are_both_named() {
        let mut draw = crate::draw::Draw::new(31);
        let mut told = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let noisy = |middle: f64, draw: &mut crate::draw::Draw| draw.noisy(middle, 0.03);
            let network = noisy(2_000.0, &mut draw);
            // Devices are out of the way: daemons, network and clients take a third of the time each.
            let storage = noisy(2_000.0, &mut draw);
            let clients = noisy(2_000.0 / 3.0, &mut draw);
            for place in [Place::Together, Place::Apart] {
                let clients = if place == Place::Apart { 1_900.0 } else { clients };
                let found = limits(&system(100_000.0, storage, network, clients), place).remove(0);
                told.insert((
                    place == Place::Apart,
                    found.layer,
                    found.finding.contains("the network") || found.finding.contains("network ("),
                ));
                assert!(found.finding.contains("too close to be told apart"), "{}", found.finding);
            }
        }
        assert_eq!(told.len(), 2, "{told:?}");
    }

    /// Goal: every row is compared with what it stands on, and what caches answered has no percentage at all.
    #[test]
    fn rows_are_compared_with_what_is_below_them() {
        let rows = |figures: [f64; 4]| {
            let [d, s, n, c] = figures;
            let found = limits(&system(d, s, n, c), Place::Apart).remove(0).evidence;
            found.iter().map(|e| (e.value, e.expected)).collect::<Vec<_>>()
        };
        let all = [(900.0, 1_000.0), (2_000.0, 900.0), (850.0, 900.0)];
        assert_eq!(rows([1_000.0, 900.0, 2_000.0, 850.0]), all);
        assert_eq!(rows([1_000.0, 3_000.0, 2_000.0, 2_500.0]), [(2_000.0, 3_000.0)]);
        let falls = waterfalls(&system(1_000.0, 900.0, 2_000.0, 1_500.0), &[], Place::Apart);
        let clients = &falls[0].steps[3];
        assert_eq!(clients.theoretical, None);
        assert!(clients.because.starts_with("not comparable"));
    }

    /// Goal: ceilings compose as the place says; what was not measured is left out, not taken as zero.
    #[test]
    fn ceilings() {
        assert_eq!(composed(Place::Apart, &[3.0, 2.0, 0.0]), Some(2.0));
        assert_eq!(composed(Place::Together, &[4.0, 4.0]), Some(2.0));
        assert_eq!(composed(Place::Together, &[]), None);
        let falls = waterfalls(&system(1_000.0, 800.0, 2_000.0, 500.0), &[], Place::Apart);
        assert_eq!((falls.len(), falls[0].steps.len()), (1, 4));
        let storage = &falls[0].steps[1];
        assert_eq!((storage.achieved, storage.theoretical), (800.0, Some(1_000.0)));
        assert_eq!(falls[0].steps[3].theoretical, Some(800.0));
        assert!(waterfalls(&[], &[], Place::Apart).is_empty() && limits(&[], Place::Together).is_empty());
        let lone = vec![layer(LayerId::Clients, vec![curve("clients.write.n-n", &[5.0])])];
        assert!(waterfalls(&lone, &[], Place::Apart).is_empty() && limits(&lone, Place::Apart).is_empty());
    }

    /// Goal: devices and network stand beside what data sheets say, in their own direction only; where nothing tells,
    /// the reason stands there, and what beats its data sheet has no percentage.
    #[test]
    fn data_sheets_are_ceilings() {
        let told =
            |layer, work: &str, rate| Theory { layer, work: work.into(), rate, because: "a sheet".into() };
        let layers = system(1_000.0, 800.0, 2_000.0, 500.0);
        let steps = |theory: &[Theory]| {
            let steps = waterfalls(&layers, theory, Place::Apart).remove(0).steps;
            let of = |at: usize| (steps[at].theoretical, steps[at].because.clone());
            [of(0), of(2)]
        };
        let sheet = || "a sheet".to_owned();
        let both =
            [told(LayerId::Device, "write", Some(1_250.0)), told(LayerId::Network, "write", Some(2_500.0))];
        assert_eq!(steps(&both), [(Some(1_250.0), sheet()), (Some(2_500.0), sheet())]);
        assert_eq!(steps(&[told(LayerId::Device, "write", None)])[0], (None, sheet()));
        let other_way = steps(&[told(LayerId::Device, "read", Some(1_250.0))]);
        assert!(other_way[0].0.is_none() && other_way[0].1.starts_with("nothing told"), "{other_way:?}");
        for impossible in [700.0, 0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(steps(&[told(LayerId::Device, "write", Some(impossible))])[0].0, None);
        }
        assert!(
            steps(&[told(LayerId::Device, "write", Some(700.0))])[0].1.contains("more than its hardware")
        );
    }

    /// Goal: storage daemons that caches made faster than their devices are never named: either another layer that is
    /// larger for certain, or none, with what can be said; layers that can be named come first.
    #[test]
    fn what_could_not_be_judged_is_not_named() {
        let one = |figures: [f64; 4], place| {
            let [d, s, n, c] = figures;
            limits(&system(d, s, n, c), place).remove(0)
        };
        for (place, clients) in [(Place::Together, 1_430.0), (Place::Apart, 2_400.0)] {
            let trial = one([2_500.0, 2_873.0, 4_900.0, clients], place);
            assert_eq!(trial.layer, None, "{}", trial.finding);
            let words = ["no layer can be named", "2873", "2500", "neither of the two was judged"];
            assert!(words.iter().all(|word| trial.finding.contains(word)), "{}", trial.finding);
        }
        let slow = one([500.0, 8_000.0, 9_000.0, 700.0], Place::Together);
        assert!(slow.layer == Some(LayerId::Clients) && slow.finding.contains("neither"), "{}", slow.finding);
        let network = one([500.0, 3_000.0, 1_000.0, 900.0], Place::Apart);
        assert_eq!(network.layer, Some(LayerId::Network));
        let cached = one([4_000.0, 3_000.0, 2_000.0, 5_000.0], Place::Apart);
        assert!(cached.layer.is_none() && cached.finding.contains("caches answered"), "{}", cached.finding);
        let mut both = system(2_500.0, 2_873.0, 4_900.0, 2_400.0);
        let reads = system(2_000.0, 1_000.0, 3_000.0, 950.0).into_iter().map(|mut layer| {
            layer.curves.iter_mut().for_each(|curve| curve.id = curve.id.replace("write", "read"));
            layer
        });
        both.extend(reads);
        let order: Vec<bool> =
            limits(&both, Place::Apart).iter().map(|limit| limit.layer.is_some()).collect();
        assert_eq!(order, [true, false]);
    }

    /// Goal: what is above its ceiling by no more than noise says so beside its share.
    #[test]
    fn a_little_more_than_possible() {
        let falls = waterfalls(&system(1_000.0, 1_080.0, 2_000.0, 500.0), &[], Place::Apart);
        let storage = &falls[0].steps[1];
        assert!(storage.theoretical.is_some() && storage.because.ends_with(WITHIN_NOISE), "{storage:?}");
    }
}
