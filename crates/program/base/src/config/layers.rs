//! Lays file, environment and command line over the defaults of a service.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::error::{ConfigError, Origin, Problem};
use super::nearest::nearest;
use super::service::{Service, Wrong};

/// A checked configuration and what is worth a warning in the log.
#[derive(Debug)]
pub struct Loaded<S> {
    /// The configuration.
    pub config: S,
    /// Environment variables of this service that name no key. They are no errors: container
    /// platforms set such variables unasked.
    pub warnings: Vec<String>,
}

/// Values by key, each with the place that set it last.
type Layers = BTreeMap<String, (Value, Origin)>;

/// Collects the values of all layers and the problems found on the way.
struct Assembly {
    service: &'static str,
    defaults: Table,
    layers: Layers,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

/// Builds the configuration; pure, so that tests need neither files nor the real environment.
pub fn assemble<S: Service>(
    file: Option<(&Path, &str)>,
    environment: &[(String, String)],
    sets: &[String],
) -> Result<Loaded<S>, ConfigError> {
    let defaults = Table::try_from(S::default()).map_err(|error| internal(S::NAME, &error.to_string()))?;
    let mut assembly = Assembly {
        service: S::NAME,
        defaults,
        layers: Layers::new(),
        problems: Vec::new(),
        warnings: Vec::new(),
    };
    if let Some((path, text)) = file {
        assembly.file(path, text)?;
    }
    assembly.environment(environment);
    for set in sets {
        assembly.flag(set);
    }
    assembly.finish()
}

fn internal(service: &'static str, error: &str) -> ConfigError {
    ConfigError::from(Problem {
        origin: Origin::Default(service),
        what: format!("cannot put the configuration together: {error}"),
        remedy: "report this as a bug".to_owned(),
    })
}

impl Assembly {
    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let origin = |at: usize| Origin::File { path: path.to_owned(), line: line_of(text, at) };
        let broken = |error: toml::de::Error| {
            ConfigError::from(Problem {
                origin: origin(error.span().map_or(0, |span| span.start)),
                what: error.message().to_owned(),
                remedy: "write `key = value`, texts and units in quotes".to_owned(),
            })
        };
        let places = toml::de::DeTable::parse(text).map_err(broken)?;
        let values: Table = toml::from_str(text).map_err(broken)?;
        let lines: BTreeMap<String, usize> =
            places.get_ref().keys().map(|key| (key.get_ref().to_string(), key.span().start)).collect();
        for (key, value) in values {
            let origin = origin(lines.get(&key).copied().unwrap_or(0));
            self.value(&key, value, origin);
        }
        Ok(())
    }

    fn environment(&mut self, environment: &[(String, String)]) {
        let prefix = format!("SKEP_{}_", self.service.to_ascii_uppercase());
        for (name, raw) in environment {
            let Some(key) = name.strip_prefix(&prefix).map(str::to_ascii_lowercase) else { continue };
            if self.defaults.contains_key(&key) {
                let value = self.typed(&key, raw);
                self.value(&key, value, Origin::Environment(name.clone()));
            } else {
                let meant = nearest(&key, self.defaults.keys().map(String::as_str))
                    .map(|near| format!("; did you mean {prefix}{}?", near.to_ascii_uppercase()))
                    .unwrap_or_default();
                let service = self.service;
                self.warnings.push(format!("environment variable {name} names no key of {service}{meant}"));
            }
        }
    }

    fn flag(&mut self, set: &str) {
        let origin = Origin::Flag(set.to_owned());
        match set.split_once('=') {
            Some((key, raw)) => {
                let key = key.trim().replace('-', "_");
                let value = self.typed(&key, raw.trim());
                self.value(&key, value, origin);
            }
            None => self.problems.push(Problem {
                origin,
                what: "has no \"=\"".to_owned(),
                remedy: "write --set key=value".to_owned(),
            }),
        }
    }

    /// Takes a value if its key exists.
    fn value(&mut self, key: &str, value: Value, origin: Origin) {
        if self.defaults.contains_key(key) {
            self.layers.insert(key.to_owned(), (value, origin));
            return;
        }
        let remedy = match nearest(key, self.defaults.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let keys: Vec<&str> = self.defaults.keys().map(String::as_str).collect();
                format!("its keys are {}", keys.join(", "))
            }
        };
        let what = format!("`{key}` is not a key of {}", self.service);
        self.problems.push(Problem { origin, what, remedy });
    }

    /// Gives a text from environment or command line the type that the key's default has; a text
    /// that does not fit stays one, and the typed configuration refuses it with the reason.
    fn typed(&self, key: &str, raw: &str) -> Value {
        let text = || Value::String(raw.to_owned());
        match self.defaults.get(key) {
            Some(Value::Boolean(_)) => match raw {
                "true" | "1" => Value::Boolean(true),
                "false" | "0" => Value::Boolean(false),
                _ => text(),
            },
            Some(Value::Integer(_)) => raw.parse().map_or_else(|_| text(), Value::Integer),
            Some(Value::Array(_)) if raw.trim_start().starts_with('[') => {
                let parsed = toml::from_str::<Table>(&format!("list = {raw}"));
                parsed.ok().and_then(|mut table| table.remove("list")).unwrap_or_else(text)
            }
            Some(Value::Array(_)) => {
                let parts = raw.split(',').map(str::trim).filter(|part| !part.is_empty());
                Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
            }
            _ => text(),
        }
    }

    /// Types each value by itself, so that a wrong one is blamed on its own place, then all.
    fn finish<S: Service>(mut self) -> Result<Loaded<S>, ConfigError> {
        for (key, (value, origin)) in &self.layers {
            let single: Table = [(key.clone(), value.clone())].into_iter().collect();
            if let Err(error) = single.try_into::<S>() {
                self.problems.push(Problem {
                    origin: origin.clone(),
                    what: format!("`{key}`: {}", error.message().trim_end()),
                    remedy: self.remedy(key),
                });
            }
        }
        if !self.problems.is_empty() {
            return Err(ConfigError(self.problems));
        }
        let all: Table = self.layers.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        let config: S = all.try_into().map_err(|error| internal(S::NAME, error.message()))?;
        let mut wrong = Wrong::default();
        config.check(&mut wrong);
        for (key, what, remedy) in wrong.0 {
            let set = self.layers.get(key).map(|(_, origin)| origin.clone());
            let origin = set.unwrap_or(Origin::Default(S::NAME));
            self.problems.push(Problem { origin, what: format!("`{key}` {what}"), remedy });
        }
        match self.problems.is_empty() {
            true => Ok(Loaded { config, warnings: self.warnings }),
            false => Err(ConfigError(self.problems)),
        }
    }

    fn remedy(&self, key: &str) -> String {
        let default = self.defaults.get(key).map(ToString::to_string).unwrap_or_default();
        format!("the default is {key} = {default}")
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
