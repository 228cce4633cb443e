//! Tests on layers of made-up figures.

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
            let layers = system(100_000.0, storage, network, clients);
            let found = limits(&layers, place).remove(0);
            told.insert((
                place == Place::Apart,
                found.layer,
                found.finding.contains("the network") || found.finding.contains("network ("),
            ));
            assert!(found.finding.contains("too close to be told apart"), "{}", found.finding);
            let all: Vec<LayerId> = found.layers().collect();
            let text = |name: &str| found.finding.contains(name);
            let said = [
                (LayerId::Storage, text("storage daemons")),
                (LayerId::Network, text("the network") || text("network (")),
                (LayerId::Clients, text("the clients")),
            ];
            let said: Vec<LayerId> =
                said.into_iter().filter(|(_, there)| *there).map(|(layer, _)| layer).collect();
            assert_eq!(all, said, "{}", found.finding);
        }
    }
    assert_eq!(told.len(), 2, "{told:?}");
}

/// Goal: a network that is as fast as what is stored hides no device: the layer that is named beside it is the one that
/// would be named without it; and a network that is slower than devices is named though no daemon was measured.
#[test]
fn a_close_network_hides_no_device() {
    let named = |layers: &[Layer]| limits(layers, Place::Apart).remove(0).layers().collect::<Vec<LayerId>>();
    for (device, beside) in [(1_000.0, LayerId::Device), (2_000.0, LayerId::Storage)] {
        let layers = system(device, 990.0, 1_050.0, 950.0);
        assert_eq!(named(&layers), [beside, LayerId::Network]);
        assert_eq!(named(&system(device, 990.0, 3_000.0, 950.0)), [beside]);
    }
    let told = limits(&system(1_000.0, 990.0, 1_050.0, 950.0), Place::Apart).remove(0).finding;
    assert!(told.starts_with("devices through their daemons (990 MB/s) and network (1050 MB/s)"), "{told}");
    for (network, clients, expected) in [(500.0, 450.0, LayerId::Network), (3_000.0, 900.0, LayerId::Device)]
    {
        let mut layers = system(1_000.0, 0.0, network, clients);
        layers.retain(|layer| layer.id != LayerId::Storage);
        assert_eq!(named(&layers), [expected]);
    }
}

/// Goal: one file that is faster than a file per process is no work of caches that nobody saw; a network above its
/// interfaces is none either.
#[test]
fn faster_without_caches() {
    let mut layers = system(1_000.0, 900.0, 2_000.0, 400.0);
    layers[3].curves.push(curve("clients.write.n-1", &[600.0]));
    let links = Theory {
        layer: LayerId::Network,
        work: "write".to_owned(),
        rate: Some(1_250.0),
        because: "interfaces".to_owned(),
    };
    let steps = waterfalls(&layers, &[links], Place::Apart).remove(0).steps;
    let (network, shared) = (&steps[2], &steps[4]);
    assert_eq!((network.theoretical, shared.theoretical), (None, None));
    assert!(shared.because.contains("it is not the sharing that costs"), "{}", shared.because);
    assert!(network.because.contains("hosts use several"), "{}", network.because);
    assert!(!steps.iter().any(|step| step.because.contains("cache")), "{steps:?}");
}

/// Goal: processes that are faster than a figure that was composed of earlier ones prove no cache: what is known is said,
/// and both that may be behind it.
#[test]
fn faster_than_composed_proves_no_cache() {
    for place in [Place::Together, Place::Apart, Place::Namespaces] {
        let layers = system(400.0, 300.0, 338.0, 600.0);
        let found = limits(&layers, place).remove(0);
        let said = &found.finding;
        assert!(found.layer.is_none() && said.contains("reach 600 MB/s, more than the "), "{said}");
        assert!(!said.contains("so caches answered") && said.contains("or the machine was busier"), "{said}");
        assert!(said.contains("some time before"), "{said}");
        let steps = waterfalls(&layers, &[], place).remove(0).steps;
        let because = &steps.last().unwrap().because;
        assert!(because.contains("caches answered or the machine was busier"), "{because}");
    }
    let daemons = limits(&system(500.0, 2_500.0, 9_000.0, 2_400.0), Place::Apart).remove(0).finding;
    assert!(daemons.contains("caches answered, or the machine was busier"), "{daemons}");
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
    let told = |layer, work: &str, rate| Theory { layer, work: work.into(), rate, because: "a sheet".into() };
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
    assert!(steps(&[told(LayerId::Device, "write", Some(700.0))])[0].1.contains("more than its hardware"));
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
    assert!(cached.layer.is_none() && cached.finding.contains("caches answered, or"), "{}", cached.finding);
    let mut both = system(2_500.0, 2_873.0, 4_900.0, 2_400.0);
    let reads = system(2_000.0, 1_000.0, 3_000.0, 950.0).into_iter().map(|mut layer| {
        layer.curves.iter_mut().for_each(|curve| curve.id = curve.id.replace("write", "read"));
        layer
    });
    both.extend(reads);
    let order: Vec<bool> = limits(&both, Place::Apart).iter().map(|limit| limit.layer.is_some()).collect();
    assert_eq!(order, [true, false]);
}

/// Goal: what is above its ceiling by no more than noise says so beside its share.
#[test]
fn a_little_more_than_possible() {
    let falls = waterfalls(&system(1_000.0, 1_080.0, 2_000.0, 500.0), &[], Place::Apart);
    let storage = &falls[0].steps[1];
    assert!(storage.theoretical.is_some() && storage.because.ends_with(WITHIN_NOISE), "{storage:?}");
}

/// Goal: a figure that stands nowhere else is told with those from which it follows; so is the ceiling of clients.
#[test]
fn what_lies_below_can_be_reckoned() {
    let layers = system(1_500.0, 1_438.0, 3_495.0, 2_300.0);
    let told = limits(&layers, Place::Together).remove(0).finding;
    assert!(told.contains("more than the 1019 MB/s that follow from"), "{told}");
    assert!(told.contains("storage daemons (1438 MB/s) and network (3495 MB/s)"), "{told}");
    assert!(told.contains("1 / (1/1438 + 1/3495)"), "{told}");
    let because = waterfalls(&system(1_500.0, 1_438.0, 3_495.0, 900.0), &[], Place::Together)[0].steps[3]
        .because
        .clone();
    assert!(because.ends_with("1 / (1/1438 + 1/3495)"), "{because}");
    let apart = limits(&layers, Place::Apart).remove(0).finding;
    assert!(
        apart.contains("the 1438 MB/s") && apart.contains("the slower of storage daemons (1438 MB/s)"),
        "{apart}"
    );
    let mut lone = layers;
    lone.retain(|layer| layer.id != LayerId::Network);
    let told = limits(&lone, Place::Together).remove(0).finding;
    assert!(told.contains("before (storage daemons (1438 MB/s))"), "{told}");
}

/// Goal: a slow disk under the log of a metadata server is named, and not the clients that wait for it.
#[test]
fn a_slow_log_is_no_fault_of_the_clients() {
    for place in [Place::Together, Place::Apart] {
        let mut layers = system(2_000.0, 1_500.0, 4_000.0, 90.0);
        // A file of 16 MiB waits 300 ms for the log: 56 MB/s for each of two processes.
        layers.push(layer(LayerId::Log, vec![curve("log.write", &[56.0])]));
        let found = limits(&layers, place);
        assert_eq!(found[0].layer, Some(LayerId::Log), "{place:?}: {}", found[0].finding);
        let steps = &waterfalls(&layers, &[], place)[0].steps;
        let clients = steps.iter().find(|step| step.layer == LayerId::Clients).unwrap();
        assert!(clients.theoretical.unwrap() < 120.0 && clients.because.contains("logs of"), "{clients:?}");
        layers.pop();
        assert_eq!(limits(&layers, place)[0].layer, Some(LayerId::Clients));
        // A log that is quick costs nothing.
        layers.push(layer(LayerId::Log, vec![curve("log.write", &[20_000.0])]));
        assert_eq!(limits(&layers, place)[0].layer, Some(LayerId::Clients));
    }
}

/// Goal: two files on two of four targets are measured against two targets, not four.
#[test]
fn the_targets_that_files_lie_on() {
    let layers = system(176.0, 170.0, 4_000.0, 77.0);
    assert_eq!(limits(&layers, Place::Apart)[0].layer, Some(LayerId::Clients), "without knowing");
    let spread = Some(crate::model::Spread { per_file: 1, targets: 4 });
    for place in [Place::Apart, Place::Together] {
        let found = limits(&layers, Setting { place, spread });
        assert_eq!(found[0].layer, Some(LayerId::Device), "{place:?}: {}", found[0].finding);
    }
    let all = Some(crate::model::Spread { per_file: 4, targets: 4 });
    assert_eq!(
        limits(&layers, Setting { place: Place::Apart, spread: all })[0].layer,
        Some(LayerId::Clients)
    );
}
