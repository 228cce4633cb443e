//! What a layer could deliver given those below it, and which layer costs most.

mod busy;
mod growth;
#[cfg(test)]
mod tests;

use crate::ids::{self, CLIENT, CLIENTS, DEVICE, LOG, NETWORK, ONE_FILE, OWN_FILES, STORAGE};
use crate::model::{Curve, Evidence, Layer, LayerId, Limit, Spread, Step, Theory, Waterfall};
use skep_bench::significance::median;

/// Where the layers run: it decides how their limits add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Each on machines of its own: they work at the same time, and the slowest decides.
    Apart,
    /// All on one machine: each takes its share of the same processors, and their times add up.
    Together,
    /// All on one machine, in network namespaces: the same, but for the network, which has limits of its own and works at
    /// the same time.
    Namespaces,
}

/// How a survey's layers stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Where they run.
    pub place: Place,
    /// Over how many targets files spread.
    pub spread: Option<Spread>,
}

impl From<Place> for Setting {
    fn from(place: Place) -> Self {
        Self { place, spread: None }
    }
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

impl Rate {
    /// So many times as much.
    fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, value: self.value * factor, high: self.high * factor }
    }
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
        Place::Together | Place::Namespaces => 1.0 / usable.iter().map(|x| 1.0 / x).sum::<f64>(),
    })
}

/// What was measured of one kind of work, layer by layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Work {
    device: Option<Rate>,
    storage: Option<Rate>,
    /// What the processes could write if they waited for the logs of metadata servers only.
    log: Option<Rate>,
    network: Option<Rate>,
    client: Option<Rate>,
    own: Option<Rate>,
    one: Option<Rate>,
}

/// The layer that what is stored stands or falls with, and what of it reaches the network.
struct Stored {
    layer: LayerId,
    name: &'static str,
    rate: Rate,
}

fn value(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.value)
}

impl Work {
    fn of(layers: &[Layer], work: &str, spread: Option<Spread>) -> Self {
        let one = |layer: &str| peak(layers, &format!("{layer}.{work}"));
        let own = format!("{CLIENTS}.{work}{OWN_FILES}");
        // Each process waits for the log by itself, and has a file of its own on targets of its own.
        let processes = find(layers, &own).and_then(best).map_or(1.0, |(at, _)| at.max(1.0));
        let share = spread.map_or(1.0, |spread| spread.share(processes));
        let touched = |rate: Option<Rate>| rate.map(|rate| rate.times(share));
        Self {
            device: touched(one(DEVICE)),
            storage: touched(one(STORAGE)),
            log: one(LOG).map(|rate| rate.times(processes)),
            network: one(NETWORK),
            client: one(CLIENT),
            own: peak(layers, &own),
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

    /// What stands for all that is stored: the devices if the daemons pass on nearly all that these deliver, or were not
    /// measured; else the daemons. None if caches answered.
    fn stored(&self) -> Option<Stored> {
        if self.cached().is_some() {
            return None;
        }
        let of = |layer, name, rate| Some(Stored { layer, name, rate });
        match (self.storage, self.device) {
            (None, device) => of(LayerId::Device, "devices", device?),
            (Some(storage), Some(device)) if storage.value >= PASSES_ON * device.value => {
                of(LayerId::Device, "devices through their daemons", storage)
            }
            (Some(storage), _) => of(LayerId::Storage, "storage daemons", storage),
        }
    }

    /// What clients stand on, with its names.
    fn parts(&self) -> Vec<(&'static str, f64)> {
        let daemons = self.storage.map(|rate| ("storage daemons", rate.value));
        let stored = daemons.or(self.device.map(|rate| ("devices", rate.value)));
        let log = self.log.map(|rate| ("logs of the metadata servers", rate.value));
        stored.into_iter().chain(log).chain(self.network.map(|rate| ("network", rate.value))).collect()
    }

    fn below(&self, place: Place) -> Option<f64> {
        if let (Place::Namespaces, Some(network)) = (place, self.network) {
            let others = self.without_network().below(Place::Together);
            return Some(others.map_or(network.value, |others| others.min(network.value)));
        }
        composed(place, &self.parts().iter().map(|(_, rate)| *rate).collect::<Vec<f64>>())
    }

    fn without_network(&self) -> Self {
        Self { network: None, ..*self }
    }

    /// From which figures that follows, so that a reader finds it nowhere else and can still reckon it.
    fn below_in_words(&self, place: Place) -> String {
        let parts = self.parts();
        let each: Vec<String> = parts.iter().map(|(one, rate)| format!("{one} ({rate:.0} MB/s)")).collect();
        let Some((last, first)) = each.split_last().filter(|(_, first)| !first.is_empty()) else {
            return each.concat();
        };
        let all = format!("{} and {last}", first.join(", "));
        match place {
            Place::Namespaces => match self.network {
                Some(network) => format!(
                    "the slower of network ({:.0} MB/s) and {}",
                    network.value,
                    self.without_network().below_in_words(Place::Together)
                ),
                None => self.below_in_words(Place::Together),
            },
            Place::Apart if parts.len() == 2 => format!("the slower of {all}"),
            Place::Apart => format!("the slowest of {all}"),
            Place::Together => {
                let times: Vec<String> = parts.iter().map(|(_, rate)| format!("1/{rate:.0}")).collect();
                format!("{all} one behind the other on the same processors, 1 / ({})", times.join(" + "))
            }
        }
    }
}

const WORKS: [(&str, &str); 2] = [(ids::WRITE, "Write"), (ids::READ, "Read")];

/// Achieved beside theoretical, for each kind of work that was measured in two layers at least.
pub fn waterfalls(layers: &[Layer], theory: &[Theory], setting: impl Into<Setting>) -> Vec<Waterfall> {
    let Setting { place, spread } = setting.into();
    let made = WORKS.iter().map(|(id, title)| {
        let of = theory.iter().filter(|one| one.work == *id).collect::<Vec<&Theory>>();
        waterfall(&Work::of(layers, id, spread), &of, title, place)
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
    let how = work.below_in_words(place);
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
            beaten: if layer == LayerId::Network { BEYOND_THE_LINKS } else { BEYOND_THE_SHEET },
        }
    };
    let measured = |rate, because| Ceiling { rate, because, beaten: NOT_COMPARABLE };
    let below = work.below(place);
    let device = value(work.device);
    let shared =
        Ceiling { rate: value(work.own), because: "what own files reach", beaten: SHARING_IS_FASTER };
    let steps = [
        step(LayerId::Device, "Devices of all targets", work.device, sheet(LayerId::Device)),
        step(
            LayerId::Storage,
            "Through the storage daemons",
            work.storage,
            measured(device, "what the devices deliver"),
        ),
        step(LayerId::Network, "Network of all storage daemons", work.network, sheet(LayerId::Network)),
        step(LayerId::Client, "One client process", work.client, measured(below, &how)),
        step(LayerId::Clients, "All processes, own files", work.own, measured(below, &how)),
        step(LayerId::Clients, "All processes, one file", work.one, shared),
    ];
    let steps = steps.into_iter().flatten().collect();
    Waterfall { title: title.to_owned(), unit: "MB/s".to_owned(), steps }
}

/// What stands beside a share a little above everything.
const WITHIN_NOISE: &str = "; two measurements differ by as much as this is above it";
/// Why a layer has no ceiling though its hardware was described.
const BEYOND_THE_SHEET: &str = "not comparable: it delivers more than its hardware can, so a cache answered or the description is not of it";
/// The same of the network, of which the fastest interface of every host is known.
const BEYOND_THE_LINKS: &str = "not comparable: it carries more than the fastest interfaces can, so hosts use several, or the description is not of it";
/// Why one file has no ceiling though own files were measured: no cache was seen to answer.
const SHARING_IS_FASTER: &str =
    "not comparable: one file is faster than a file per process, so it is not the sharing that costs";
/// Why a step has no ceiling though layers below it were measured.
const NOT_COMPARABLE: &str = "not comparable: it is faster than the layers below were measured some time before, so caches answered or the machine was busier then";
/// What may have been when something is faster than what it stands on: the one was measured some time after the other.
const CACHED_OR_BUSY: &str = "caches answered, or the machine was busier then";

/// What limits each kind of work: processors that everything waits for, then layers, then where none can be named.
pub fn limits(layers: &[Layer], setting: impl Into<Setting>) -> Vec<Limit> {
    let Setting { place, spread } = setting.into();
    let stream = |(id, title): &(&str, &str)| stream_limit(&Work::of(layers, id, spread), title, place);
    let (named, open): (Vec<_>, Vec<_>) =
        WORKS.iter().filter_map(stream).partition(|limit| limit.layer.is_some());
    busy::limit(layers).into_iter().chain(named).chain(open).chain(growth::limit(layers)).collect()
}

/// The layers that are named, from the bottom: several where they are too close to be told apart, none where none can
/// be; and why.
type Found = (Vec<LayerId>, String);

fn stream_limit(work: &Work, title: &str, place: Place) -> Option<Limit> {
    let clients = work.own.or(work.client)?;
    let below = work.below(place)?;
    let (layers, finding) = match place {
        _ if clients.value > FROM_MEMORY * below => (
            Vec::new(),
            format!(
                "no layer can be named: the processes reach {:.0} MB/s, more than the {below:.0} MB/s that follow from \
                 what was measured below them some time before ({}): {CACHED_OR_BUSY}",
                clients.value,
                work.below_in_words(place)
            ),
        ),
        Place::Apart => slowest(work, clients.value, below)?,
        Place::Together => dearest(work, clients, place)?,
        Place::Namespaces => in_namespaces(work, clients)?,
    };
    let mut layers = layers.into_iter();
    Some(Limit {
        work: format!("{title}, a file per process"),
        layer: layers.next(),
        also: layers.collect(),
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
    if let Some(log) = work.log.filter(|log| log.value <= below) {
        return Some((vec![LayerId::Log], waiting(log.value, clients)));
    }
    if clients < CLIENTS_REACH * below {
        let share = 100.0 * clients / below;
        return Some((
            vec![LayerId::Clients],
            format!(
                "the clients reach {clients:.0} MB/s, {share:.0} % of the {below:.0} MB/s that network and storage \
             deliver: more clients or more processes are needed, or the client itself is the limit"
            ),
        ));
    }
    if let Some((storage, device)) = work.cached() {
        return Some(match work.network.map(|network| network.value) {
            Some(network) if network <= DRIFT * storage => (
                vec![LayerId::Network],
                format!(
                    "the network carries {network:.0} MB/s; the storage daemons deliver {storage:.0} MB/s, more than their \
                     devices, and were not judged"
                ),
            ),
            _ => (Vec::new(), format!("no layer can be named: {}", unjudged(storage, device))),
        });
    }
    match (work.network, work.stored()) {
        (None, None) => None,
        (Some(network), None) => {
            Some((vec![LayerId::Network], format!("the network carries {:.0} MB/s", network.value)))
        }
        (Some(network), Some(Stored { layer, name, rate }))
            if network.low <= rate.high && rate.low <= network.high =>
        {
            Some((
                vec![layer, LayerId::Network],
                format!(
                    "{name} ({:.0} MB/s) and network ({:.0} MB/s) limit alike: they are too close to be told apart",
                    rate.value, network.value
                ),
            ))
        }
        (Some(network), Some(Stored { name, rate, .. })) if network.value < rate.value => Some((
            vec![LayerId::Network],
            format!(
                "the network carries {:.0} MB/s, less than the {:.0} MB/s of the {name}",
                network.value, rate.value
            ),
        )),
        (_, Some(stored)) => Some((vec![stored.layer], storing(work, &stored))),
    }
}

/// How the logs of metadata servers limit.
fn waiting(log: f64, clients: f64) -> String {
    format!(
        "the processes reach {clients:.0} MB/s; waiting for the logs of the metadata servers alone would let them reach \
         {log:.0} MB/s, so the disks under those logs are the limit"
    )
}

/// How what is stored limits all by itself.
fn storing(work: &Work, stored: &Stored) -> String {
    let rate = stored.rate.value;
    match (stored.layer, work.device.map(|device| device.value)) {
        (LayerId::Device, Some(device)) => {
            format!("the devices deliver {device:.0} MB/s, and all above them could carry more")
        }
        (_, Some(device)) => {
            format!("the storage daemons pass on {rate:.0} of the {device:.0} MB/s of their devices")
        }
        (_, None) => format!("the storage daemons deliver {rate:.0} MB/s"),
    }
}

/// Why neither storage daemons nor devices can be judged.
fn unjudged(storage: f64, device: f64) -> String {
    format!(
        "the storage daemons deliver {storage:.0} MB/s and their devices, measured some time before, {device:.0}, so \
         neither of the two was judged: caches answered, or the machine was busier then"
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

/// Layers on one machine with networks of their own: the network where it carries clearly less than the processors leave
/// for all else, and the clients use it.
fn in_namespaces(work: &Work, clients: Rate) -> Option<Found> {
    let others = work.without_network().below(Place::Together);
    match (work.network, others) {
        (Some(network), Some(others))
            if network.value * DRIFT <= others && clients.value >= CLIENTS_REACH * network.value =>
        {
            let finding = format!(
                "the network carries {:.0} MB/s, less than the {others:.0} MB/s that all else does on the same processors",
                network.value
            );
            Some((vec![LayerId::Network], finding))
        }
        _ => dearest(work, clients, Place::Namespaces),
    }
}

/// Layers on one machine: the one that takes the largest part of the time of a byte, and those that may take as much.
fn dearest(work: &Work, clients: Rate, place: Place) -> Option<Found> {
    let daemons = match work.device {
        Some(_) => "the code of the storage daemons",
        None => "the storage daemons with their devices",
    };
    let (layer, above) = match work.own {
        Some(_) => (LayerId::Clients, "the clients (mount, kernel, programs)"),
        None => (LayerId::Client, "the client (mount, kernel, program)"),
    };
    let above = match (work.storage, work.network, place) {
        // What its packets cost is processor time that nobody measured apart.
        (Some(_), Some(_), Place::Namespaces) => match work.own {
            Some(_) => "the clients (mount, kernel, programs) with the network",
            None => "the client (mount, kernel, program) with the network",
        },
        (Some(_), Some(_), _) => above,
        _ => "the clients, with what was not measured,",
    };
    let device = Cost::of(LayerId::Device, "the devices", work.device_in_path(), &[]);
    let storage = Cost::of(LayerId::Storage, daemons, work.storage, &[&device]);
    let adds = work.network.filter(|_| place != Place::Namespaces);
    let network = Cost::of(LayerId::Network, "the network", adds, &[]);
    let log = Cost::of(LayerId::Log, "the disks under the logs of the metadata servers", work.log, &[]);
    let rest = Cost::of(layer, above, Some(clients), &[&device, &storage, &network, &log]);
    let all: f64 = [&device, &log, &storage, &network, &rest].iter().map(|part| part.value).sum();
    let Some((rate, disks)) = work.cached() else {
        return named(&[device, log, storage, network, rest], all);
    };
    let parts = [log, network, rest];
    let most = parts.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let why = unjudged(rate, disks);
    if storage.high < most.low {
        return named(&parts, all).map(|(layers, finding)| (layers, format!("{finding}; {why}")));
    }
    let shares = shares(parts.iter().filter(|part| part.value > 0.0), all);
    Some((
        Vec::new(),
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
            "on one machine the times add up: the largest part of every byte's time, {:.0} %, is that of {}",
            100.0 * one.value / all,
            one.name.trim_end_matches(',')
        ),
        many => format!(
            "on one machine the times add up, and these parts of every byte's time are too close to be told apart: {}",
            shares(many.iter().copied(), all)
        ),
    };
    Some((named.iter().map(|part| part.layer).collect(), finding))
}
