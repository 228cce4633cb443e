//! What a check found: one line for each setting and each thing that has it.

use crate::change::Change;
use crate::host::Role;

/// How a setting stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Should be another.
    Change,
    /// Cannot be read here.
    Unknown,
    /// As it should be.
    Ok,
    /// Means nothing on this machine or for this role.
    NotApplicable,
}

impl Verdict {
    /// Its word in tables and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::NotApplicable => "not-applicable",
        }
    }
}

/// What a wrong setting costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data can be lost, or a service may stop.
    Danger,
    /// Much speed.
    Major,
    /// Some speed, or only under some loads.
    Minor,
    /// Good to know.
    Info,
}

impl Severity {
    /// Its word in tables and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Danger => "danger",
            Self::Major => "major",
            Self::Minor => "minor",
            Self::Info => "info",
        }
    }
}

/// Who recommends what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    pub name: &'static str,
    /// What it says about the setting.
    pub says: &'static str,
}

/// One setting of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Group of settings: `memory`, `queue`, ...
    pub area: &'static str,
    /// Name of the setting.
    pub setting: &'static str,
    /// What has it: a device, a directory, an interface, a service, or the host.
    pub subject: String,
    /// Roles that want it so.
    pub roles: Vec<Role>,
    pub verdict: Verdict,
    /// What a wrong one costs.
    pub severity: Severity,
    /// What is set; none when it cannot be read.
    pub current: Option<String>,
    /// What should be; none when nothing is recommended.
    pub recommended: Option<String>,
    pub reason: &'static str,
    /// What is to be expected of the change.
    pub effect: &'static str,
    /// Who says so.
    pub sources: &'static [Source],
    /// Which was chosen where they disagree; empty when they agree.
    pub choice: &'static str,
    /// What is special here: a translated name, a limit of the device, what to do by hand.
    pub note: String,
    /// How `apply` would change it; none when it must be done by hand.
    pub change: Option<Change>,
}
