//! What a layer could deliver given those below it, and which layer costs most.

use crate::ids::{self, CLIENT, CLIENTS, DEVICE, NETWORK, ONE_FILE, OWN_FILES, STORAGE};
use crate::model::{Curve, Evidence, Layer, LayerId, Limit, Step, Waterfall};
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
/// More processes bring more as long as the rate grows by this factor at least per doubling.
const GROWS: f64 = 1.1;

/// The figure a curve stands for: the best of its medians.
pub fn best(curve: &Curve) -> Option<(f64, f64)> {
    let at = |p: &crate::model::Point| Some((p.x, median(&p.samples)?));
    curve.points.iter().filter_map(at).filter(|(_, y)| y.is_finite()).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn find<'a>(layers: &'a [Layer], id: &str) -> Option<&'a Curve> {
    layers.iter().flat_map(|layer| &layer.curves).find(|curve| curve.id == id)
}

fn peak(layers: &[Layer], id: &str) -> Option<f64> {
    find(layers, id).and_then(best).map(|(_, y)| y).filter(|y| *y > 0.0)
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
    device: Option<f64>,
    storage: Option<f64>,
    network: Option<f64>,
    client: Option<f64>,
    own: Option<f64>,
    one: Option<f64>,
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
    fn device_in_path(&self) -> Option<f64> {
        let beats = |device: &f64| self.storage.is_some_and(|storage| storage > FROM_MEMORY * device);
        self.device.filter(|device| !beats(device))
    }

    fn below(&self, place: Place) -> Option<f64> {
        let parts: Vec<f64> = [self.storage.or(self.device), self.network].into_iter().flatten().collect();
        composed(place, &parts)
    }
}

const WORKS: [(&str, &str); 2] = [(ids::WRITE, "Write"), (ids::READ, "Read")];

/// Achieved beside theoretical, for each kind of work that was measured in two layers at least.
pub fn waterfalls(layers: &[Layer], place: Place) -> Vec<Waterfall> {
    let made = WORKS.iter().map(|(id, title)| waterfall(&Work::of(layers, id), title, place));
    made.filter(|w| w.steps.len() > 1).collect()
}

fn waterfall(work: &Work, title: &str, place: Place) -> Waterfall {
    let how = match place {
        Place::Apart => "the slower of storage daemons and network",
        Place::Together => "storage daemons and network one behind the other on the same processors",
    };
    let below = work.below(place);
    let step = |layer, name: &str, achieved: Option<f64>, theoretical, because: &str| {
        let (name, because) = (name.to_owned(), because.to_owned());
        achieved.map(|achieved| Step { layer, name, achieved, theoretical, because })
    };
    let unknown = "no data sheet was given";
    let memory = "the page cache of the daemon's host answers, so devices set no ceiling";
    let steps = [
        step(LayerId::Device, "Devices of all targets", work.device, None, unknown),
        step(
            LayerId::Storage,
            "Through the storage daemons",
            work.storage,
            work.device_in_path(),
            if work.device_in_path().is_some() { "what the devices deliver" } else { memory },
        ),
        step(LayerId::Network, "Network of all storage daemons", work.network, None, unknown),
        step(LayerId::Client, "One client process", work.client, below, how),
        step(LayerId::Clients, "All processes, own files", work.own, below, how),
        step(LayerId::Clients, "All processes, one file", work.one, work.own, "what own files reach"),
    ];
    let steps = steps.into_iter().flatten().collect();
    Waterfall { title: title.to_owned(), unit: "MB/s".to_owned(), steps }
}

/// The layer that limits each kind of work.
pub fn limits(layers: &[Layer], place: Place) -> Vec<Limit> {
    let streams = WORKS.iter().filter_map(|(id, title)| stream_limit(&Work::of(layers, id), title, place));
    streams.chain(growth_limits(layers)).collect()
}

fn stream_limit(work: &Work, title: &str, place: Place) -> Option<Limit> {
    let clients = work.own.or(work.client)?;
    let below = work.below(place)?;
    let (layer, finding) = match place {
        Place::Apart => slowest(work, clients, below)?,
        Place::Together => dearest(work, clients)?,
    };
    let row = |what: &str, value: Option<f64>| {
        let value = value?;
        Some(Evidence { what: what.to_owned(), value, expected: below, unit: "MB/s".to_owned() })
    };
    let evidence = [
        row("devices of all targets", work.device),
        row("through the storage daemons", work.storage),
        row("network of all storage daemons", work.network),
        row("all processes, own files", Some(clients)),
    ];
    let evidence = evidence.into_iter().flatten().collect();
    Some(Limit { work: format!("{title}, a file per process"), layer, finding, evidence })
}

/// Layers on machines of their own: the one with the smallest figure.
fn slowest(work: &Work, clients: f64, below: f64) -> Option<(LayerId, String)> {
    if clients < CLIENTS_REACH * below {
        let share = 100.0 * clients / below;
        return Some((
            LayerId::Clients,
            format!(
                "the clients reach {clients:.0} MB/s, {share:.0} % of the {below:.0} MB/s that network and storage \
             deliver: more clients or more processes are needed, or the client itself is the limit"
            ),
        ));
    }
    let storage = work.storage.unwrap_or(f64::INFINITY);
    if work.network.is_some_and(|network| network < storage) {
        return Some((
            LayerId::Network,
            format!("the network carries {below:.0} MB/s, less than the storage daemons deliver"),
        ));
    }
    match work.device_in_path() {
        Some(device) if storage >= PASSES_ON * device => Some((
            LayerId::Device,
            format!("the devices deliver {device:.0} MB/s, and all above them could carry more"),
        )),
        Some(device) => Some((
            LayerId::Storage,
            format!("the storage daemons pass on {storage:.0} of the {device:.0} MB/s of their devices"),
        )),
        None => Some((LayerId::Storage, format!("the storage daemons deliver {storage:.0} MB/s"))),
    }
}

/// Layers on one machine: the one that takes the largest part of the time of a byte.
fn dearest(work: &Work, clients: f64) -> Option<(LayerId, String)> {
    let total = 1.0 / clients;
    let cost = |rate: Option<f64>| rate.map_or(0.0, |rate| 1.0 / rate);
    let device = cost(work.device_in_path()).min(total);
    let storage = (cost(work.storage) - device).max(0.0);
    let network = cost(work.network);
    let rest = (total - device - storage - network).max(0.0);
    let parts = [
        (LayerId::Device, device, "the devices"),
        (LayerId::Storage, storage, "the code of the storage daemons"),
        (LayerId::Network, network, "the network"),
        (LayerId::Client, rest, "the clients (mount, kernel, program)"),
    ];
    let (layer, most, name) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let all: f64 = parts.iter().map(|part| part.1).sum();
    let share = 100.0 * most / all;
    Some((
        layer,
        format!(
            "on one machine the times add up: of every byte's time {name} take {share:.0} %, the largest part"
        ),
    ))
}

/// Work without layers below that can be measured: whether more processes still bring more.
fn growth_limits(layers: &[Layer]) -> Vec<Limit> {
    let wanted = layers.iter().flat_map(|layer| layer.curves.iter().map(move |curve| (layer.id, curve)));
    let grown = |(layer, curve): (LayerId, &Curve)| {
        let random = layer == LayerId::Clients && curve.id.contains("random");
        if !(layer == LayerId::Metadata || random) || curve.axis != "processes" {
            return None;
        }
        growth_limit(layer, curve)
    };
    wanted.filter_map(grown).collect()
}

fn growth_limit(layer: LayerId, curve: &Curve) -> Option<Limit> {
    let first = curve.points.first()?;
    let (start, (at, most)) = (median(&first.samples)?, best(curve)?);
    let last = curve.points.last()?;
    let doublings = (at / first.x).log2().max(0.0);
    let still = at >= last.x && curve.points.len() > 1 && {
        let before = &curve.points[curve.points.len() - 2];
        most >= GROWS * median(&before.samples)?
    };
    let unit = &curve.unit;
    let finding = match still {
        true => {
            format!("still grows at {at:.0} processes ({most:.0} {unit}): more processes would bring more")
        }
        false if at <= first.x => format!("{most:.0} {unit} with {at:.0} process; more bring nothing"),
        false => format!(
            "{most:.0} {unit} at {at:.0} processes, {:.1} times what {:.0} reaches; more bring nothing",
            most / start,
            first.x
        ),
    };
    let expected = start * doublings.exp2();
    let evidence = vec![
        Evidence { what: format!("{at:.0} processes"), value: most, expected, unit: unit.clone() },
        Evidence { what: "first point".to_owned(), value: start, expected: start, unit: unit.clone() },
    ];
    Some(Limit { work: curve.title.clone(), layer, finding, evidence })
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
            assert_eq!(found[0].layer, expected, "{figures:?}: {}", found[0].finding);
            assert!(found[0].evidence.len() == 4);
        }
    }

    /// Goal: on one machine the times add up, and the dearest part is named.
    #[test]
    fn the_dearest_limits() {
        for (figures, expected) in [
            ([500.0, 480.0, 4_000.0, 400.0], LayerId::Device),
            ([8_000.0, 1_000.0, 4_000.0, 700.0], LayerId::Storage),
            ([8_000.0, 7_000.0, 1_000.0, 800.0], LayerId::Network),
            ([8_000.0, 7_000.0, 4_000.0, 600.0], LayerId::Client),
        ] {
            let [d, s, n, c] = figures;
            let found = limits(&system(d, s, n, c), Place::Together);
            assert_eq!(found[0].layer, expected, "{figures:?}: {}", found[0].finding);
        }
    }

    /// Goal: devices are no limit of bytes that come from memory, and no ceiling of what is above them.
    #[test]
    fn from_memory() {
        for place in [Place::Apart, Place::Together] {
            let layers = system(500.0, 2_500.0, 3_000.0, 1_300.0);
            assert_ne!(limits(&layers, place)[0].layer, LayerId::Device);
            assert_eq!(waterfalls(&layers, place)[0].steps[1].theoretical, None);
        }
    }

    /// Goal: ceilings compose as the place says; what was not measured is left out, not taken as zero.
    #[test]
    fn ceilings() {
        assert_eq!(composed(Place::Apart, &[3.0, 2.0, 0.0]), Some(2.0));
        assert_eq!(composed(Place::Together, &[4.0, 4.0]), Some(2.0));
        assert_eq!(composed(Place::Together, &[]), None);
        let falls = waterfalls(&system(1_000.0, 800.0, 2_000.0, 500.0), Place::Apart);
        assert_eq!((falls.len(), falls[0].steps.len()), (1, 4));
        let storage = &falls[0].steps[1];
        assert_eq!((storage.achieved, storage.theoretical), (800.0, Some(1_000.0)));
        assert_eq!(falls[0].steps[3].theoretical, Some(800.0));
        assert!(waterfalls(&[], Place::Apart).is_empty() && limits(&[], Place::Together).is_empty());
        let lone = vec![layer(LayerId::Clients, vec![curve("clients.write.n-n", &[5.0])])];
        assert!(waterfalls(&lone, Place::Apart).is_empty() && limits(&lone, Place::Apart).is_empty());
    }

    /// Goal: metadata that still grows is told apart from metadata that stopped.
    #[test]
    fn growth() {
        let of = |values: &[f64]| {
            limits(&[layer(LayerId::Metadata, vec![curve("metadata.create", values)])], Place::Apart)
                .remove(0)
        };
        assert!(of(&[100.0, 200.0, 400.0]).finding.starts_with("still grows at 4"));
        assert!(of(&[100.0, 180.0, 181.0]).finding.contains("1.8 times"));
        assert!(of(&[100.0]).finding.contains("with 1 process;"));
    }
}
