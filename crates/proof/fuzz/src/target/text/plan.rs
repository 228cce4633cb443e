//! What plans are made from.

use skep_plan::hardware::Hardware;
use skep_plan::propose::Requirements;
use skep_plan::scale::{Calibration, Scenario};
use skep_plan::systems::SYSTEMS;

use super::{Reader, Understood, file};

const REQUIREMENTS: &str = "write = \"6 GB/s\"\ncapacity = \"500 TB\"\nfiles = 1e9\navailability = \"mirror\"\n\
                            software = \"beegfs\"\ndrives = [\"nvme\"]\n";

pub fn readers() -> Vec<Reader> {
    let systems: Vec<&str> = SYSTEMS.iter().take(4).map(|system| system.text).collect();
    let default = Scenario::default().to_text().unwrap_or_default();
    vec![
        Reader::new("hardware", hardware, &systems),
        Reader::new("requirements", requirements, &[REQUIREMENTS]),
        Reader::new("scenario", scenario, &[&default]),
        Reader::new("calibration", calibration, &[&file("know-how/plan/calibration.toml")]),
    ]
}

fn hardware(text: &str) -> Understood {
    let read = Hardware::from_toml("f.toml", text);
    let read = read.map_err(|faults| faults.iter().for_each(|fault| drop(fault.to_string())));
    read.ok().and_then(|read| toml::to_string(&read).ok()).into()
}

fn requirements(text: &str) -> Understood {
    let read = Requirements::parse("f.toml", text);
    let read = read.map_err(|faults| faults.iter().for_each(|fault| drop(fault.to_string())));
    read.inspect(|read| drop(read.check())).ok().and_then(|read| toml::to_string(&read).ok()).into()
}

fn scenario(text: &str) -> Understood {
    Scenario::parse(text).and_then(|read| read.to_text()).ok().into()
}

fn calibration(text: &str) -> Understood {
    Calibration::parse(text).is_ok().into()
}
