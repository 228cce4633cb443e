//! Descriptions that come with the program: the systems of the documents, as examples for users.

#[derive(Debug, Clone, Copy)]
pub struct System {
    /// What `skep plan example` calls it.
    pub name: &'static str,
    /// The TOML text, comments included.
    pub text: &'static str,
}

macro_rules! systems {
    ($($name:literal),* $(,)?) => {
        /// All of them; the first one is shown when no name is given.
        pub const SYSTEMS: &[System] = &[
            $(System { name: $name, text: include_str!(concat!("../systems/", $name, ".toml")) }),*
        ];
    };
}

systems![
    "example",
    "sizing-6gbs-a",
    "sizing-6gbs-b",
    "sizing-6gbs-c",
    "sizing-6gbs-d",
    "hp-apollo",
    "hp-apollo-p440",
    "hp-apollo-p840ar",
    "hp-apollo-24-on-p840ar",
    "clusterstor-ssu",
    "clusterstor-2-ssu",
    "dell-2020-medium",
    "dell-2021-small",
    "dell-2021-small-plus-1",
    "dell-2021-small-24",
    "dell-2021-small-plus-1-24",
    "dell-2021-medium",
];

/// One by name.
pub fn system(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::forecast;
    use crate::hardware::Hardware;

    /// Goal: every description that is shipped can be planned with, and says where it comes from.
    #[test]
    fn all_are_good() {
        for system in SYSTEMS {
            let hardware = Hardware::from_toml(system.name, system.text).unwrap_or_else(|faults| {
                panic!("{}", faults.iter().map(|f| f.to_string()).collect::<Vec<_>>().join("\n"))
            });
            assert_eq!(hardware.name, system.name);
            assert!(!hardware.description.is_empty());
            let forecast = forecast(&hardware).unwrap();
            assert!(forecast.write.limit.0 > 0.0 && forecast.read.limit.0 > 0.0, "{}", system.name);
        }
    }

    /// Goal: a description that is written out again and read back is the same.
    #[test]
    fn round_trip() {
        for system in SYSTEMS {
            let hardware = Hardware::from_toml(system.name, system.text).unwrap();
            let text = toml::to_string(&hardware).unwrap();
            assert_eq!(Hardware::from_toml(system.name, &text).unwrap(), hardware);
        }
    }
}
