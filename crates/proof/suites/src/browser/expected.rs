//! What a page must show of a survey, counted in the document and not by the code that draws.
//!
//! Every chart names the measurements that it shows. A curve with samples is in one chart, with a mark for each of its
//! places, a line when there are several, and a band when samples differ; a member and a layer have a mark each.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// How charts call the layers of a waterfall.
const WATERFALL: &str = "waterfall";

/// What a chart on the screen says of itself.
#[derive(Debug, Deserialize)]
pub struct Shown {
    /// Names of its measurements, in the order of its series.
    pub shows: Vec<String>,
    /// Marks of each series.
    pub series: BTreeMap<usize, usize>,
    /// Numbers that are told when one points at them.
    pub numbers: usize,
}

/// One measurement.
#[derive(Debug, Default, PartialEq)]
struct Measured {
    /// Numbers that a reader can point at.
    numbers: usize,
    /// Marks of each of its lines; none where marks have no series of their own.
    lines: Vec<usize>,
    /// The page must have it.
    needed: bool,
}

/// What a page must show.
#[derive(Debug)]
pub struct Expected {
    measured: BTreeMap<String, Measured>,
    /// Charts of layers on top of each other.
    falls: usize,
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn name(value: &Value) -> String {
    value["id"].as_str().unwrap_or_default().to_owned()
}

fn samples(value: &Value) -> Vec<f64> {
    list(value, "samples").filter_map(Value::as_f64).collect()
}

/// Places with samples, and the marks that they leave.
fn line(curve: &Value) -> (usize, usize) {
    let places: Vec<Vec<f64>> = list(curve, "points").map(samples).filter(|all| !all.is_empty()).collect();
    let differ = places.iter().any(|all| all.iter().any(|value| *value != all[0]));
    (places.len(), places.len() + usize::from(places.len() > 1) + usize::from(differ))
}

impl Expected {
    /// Of the report on a survey: everything.
    pub fn of(survey: &Value) -> Self {
        let mut measured = BTreeMap::new();
        for layer in list(survey, "layers") {
            for curve in list(layer, "curves") {
                let (numbers, marks) = line(curve);
                let one = Measured { numbers, lines: vec![marks], needed: numbers > 0 };
                measured.insert(name(curve), one);
            }
            for side in list(layer, "sides") {
                let numbers = list(side, "members").filter(|member| !samples(member).is_empty()).count();
                measured.insert(name(side), Measured { numbers, lines: Vec::new(), needed: numbers > 0 });
            }
        }
        let steps: Vec<usize> =
            list(survey, "waterfalls").map(|fall| list(fall, "steps").count()).filter(|n| *n > 0).collect();
        let numbers = steps.iter().sum();
        measured.insert(WATERFALL.to_owned(), Measured { numbers, lines: Vec::new(), needed: false });
        Self { measured, falls: steps.len() }
    }

    /// Of the page on two surveys: curves of which `changed` says so by the name of their layer, and maybe others.
    pub fn compared(before: &Value, after: &Value, changed: impl Fn(&str) -> bool) -> Self {
        let mut measured = BTreeMap::new();
        for layer in list(after, "layers") {
            let needed = layer["id"].as_str().is_some_and(&changed);
            for curve in list(layer, "curves") {
                let mut earlier = list(before, "layers").flat_map(|layer| list(layer, "curves"));
                let Some(then) = earlier.find(|then| then["id"] == curve["id"]) else { continue };
                let ((late, marks), (early, were)) = (line(curve), line(then));
                let one = Measured { numbers: late + early, lines: vec![marks, were], needed };
                measured.insert(name(curve), one);
            }
        }
        Self { measured, falls: 0 }
    }

    /// What the charts of a page lack.
    pub fn faults(&self, charts: &[&Shown]) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, _) in self.measured.iter().filter(|(_, one)| one.needed) {
            let count = charts.iter().filter(|chart| chart.shows.contains(name)).count();
            if count != 1 {
                faults.push(format!("{name} was measured and is in {count} charts instead of one"));
            }
        }
        for chart in charts.iter().filter(|chart| !chart.shows.is_empty()) {
            faults.extend(self.of_chart(chart));
        }
        let falls = |chart: &&&Shown| chart.shows.iter().any(|name| name == WATERFALL);
        let count = charts.iter().filter(falls).count();
        if count != self.falls {
            faults.push(format!("{count} waterfalls instead of {}", self.falls));
        }
        let told: usize = charts.iter().filter(falls).map(|chart| chart.numbers).sum();
        let steps = self.measured.get(WATERFALL).map_or(0, |one| one.numbers);
        if told != steps {
            faults.push(format!("{told} layers in the waterfalls instead of {steps}"));
        }
        faults
    }

    fn of_chart(&self, chart: &Shown) -> Vec<String> {
        let mut faults = Vec::new();
        let (mut seen, mut numbers): (BTreeMap<&str, usize>, usize) = (BTreeMap::new(), 0);
        for (series, name) in chart.shows.iter().enumerate() {
            let Some(one) = self.measured.get(name) else {
                faults.push(format!("a chart shows {name}, which was not measured"));
                continue;
            };
            let nth = seen.entry(name).or_default();
            if *nth == 0 {
                numbers += one.numbers;
            }
            if let Some(expected) = one.lines.get(*nth) {
                let marks = chart.series.get(&series).copied().unwrap_or(0);
                if marks != *expected {
                    faults.push(format!("the line of {name} has {marks} marks instead of {expected}"));
                }
            }
            *nth += 1;
        }
        let fall = chart.shows.iter().any(|name| name == WATERFALL);
        if !fall && chart.numbers != numbers {
            let shows = chart.shows.join(", ");
            faults.push(format!("the chart of {shows} tells {} numbers instead of {numbers}", chart.numbers));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn survey() -> Value {
        let point = |x: u32, samples: &[f64]| json!({ "x": x, "samples": samples });
        json!({
            "layers": [{
                "id": "clients",
                "curves": [
                    { "id": "a.write", "points": [point(1, &[1.0, 2.0]), point(2, &[3.0])] },
                    { "id": "a.read", "points": [point(1, &[5.0]), point(2, &[])] },
                    { "id": "a.none", "points": [] },
                ],
                "sides": [{ "id": "a.each", "members": [{ "samples": [1.0] }, { "samples": [] }] }],
            }],
            "waterfalls": [{ "steps": [{}, {}] }, { "steps": [] }],
        })
    }

    fn chart(shows: &[&str], series: &[usize], numbers: usize) -> Shown {
        let shows = shows.iter().map(|name| (*name).to_owned()).collect();
        Shown { shows, series: series.iter().copied().enumerate().collect(), numbers }
    }

    fn page() -> Vec<Shown> {
        vec![
            chart(&["a.write", "a.read", "a.none"], &[4, 1], 3),
            chart(&["a.each"], &[3], 1),
            chart(&[WATERFALL], &[2], 2),
        ]
    }

    fn faults(charts: &[Shown]) -> Vec<String> {
        Expected::of(&survey()).faults(&charts.iter().collect::<Vec<_>>())
    }

    /// Goal: a page with everything passes; a lost line, a lost chart, a lost number, a measurement that is shown
    /// twice and one that is made up are found.
    #[test]
    fn losses_are_found() {
        assert_eq!(faults(&page()), Vec::<String>::new());
        let with = |change: &dyn Fn(&mut Vec<Shown>)| {
            let mut charts = page();
            change(&mut charts);
            faults(&charts).join("; ")
        };
        assert!(with(&|page| page[0].series = [(0, 4)].into()).contains("a.read has 0 marks instead of 1"));
        assert!(with(&|page| page[0].shows.truncate(1)).contains("a.read was measured and is in 0 charts"));
        assert!(with(&|page| page[0].numbers = 2).contains("tells 2 numbers instead of 3"));
        assert!(with(&|page| drop(page.remove(1))).contains("a.each was measured and is in 0 charts"));
        assert!(with(&|page| page.push(chart(&["a.each"], &[3], 1))).contains("is in 2 charts"));
        assert!(with(&|page| page.push(chart(&["b"], &[], 0))).contains("b, which was not measured"));
        assert!(with(&|page| drop(page.pop())).contains("0 waterfalls instead of 1"));
        assert!(with(&|page| page[2].numbers = 1).contains("1 layers in the waterfalls instead of 2"));
    }

    /// Goal: of two surveys, both lines of a curve that changed are on the page.
    #[test]
    fn both_lines_are_expected() {
        let expected = Expected::compared(&survey(), &survey(), |layer| layer == "clients");
        let good = [chart(&["a.write", "a.write"], &[4, 4], 4), chart(&["a.read", "a.read"], &[1, 1], 2)];
        let none = chart(&["a.none", "a.none"], &[], 0);
        let all: Vec<&Shown> = good.iter().chain([&none]).collect();
        assert_eq!(expected.faults(&all), Vec::<String>::new());
        assert_eq!(expected.faults(&all[..1]).len(), 2);
        let lost = chart(&["a.write", "a.write"], &[4], 4);
        assert!(expected.faults(&[&lost, all[1], all[2]])[0].contains("0 marks instead of 4"));
    }
}
