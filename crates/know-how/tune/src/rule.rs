//! What a rule is, and how the table of them is laid over a host.

use crate::Root;
use crate::change::{Change, Live, SYSCTL_FILE, reading};
use crate::finding::{Finding, Severity, Source, Verdict};
use crate::host::{Disk, DiskKind, Host, Role};
use crate::rules;

/// A setting, what it should be, and why. New ones are added to a file of [`rules`].
#[derive(Debug)]
pub struct Rule {
    /// Group of settings.
    pub area: &'static str,
    /// Name of the setting, as the kernel or Skep call it.
    pub setting: &'static str,
    /// Who wants it.
    pub roles: &'static [Role],
    /// What a wrong one costs.
    pub severity: Severity,
    /// Why it should be so.
    pub reason: &'static str,
    /// What a change brings.
    pub effect: &'static str,
    /// Who says what.
    pub sources: &'static [Source],
    /// Which was chosen where they disagree, and why; empty when they agree.
    pub choice: &'static str,
    /// How it is looked at.
    pub look: Look,
}

/// How a setting is found and judged.
#[derive(Debug, Clone, Copy)]
pub enum Look {
    /// `vm.swappiness`: one value of the host.
    Sysctl(fn(&Host<'_>) -> Wish),
    /// A file of `/sys/block/X/queue`, of each drive.
    Drive(fn(&Host<'_>, &Disk) -> Wish),
    /// The same, of each disk that a file system is on.
    Volume(fn(&Host<'_>, &Disk) -> Wish),
    /// Anything else.
    Special(fn(&Host<'_>) -> Vec<Seen>),
}

/// What a setting should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Want(Want),
    /// It means nothing here, because.
    Nothing(String),
}

/// A recommended value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// What is set when it is changed.
    pub set: String,
    /// What is good enough to stay.
    pub accept: Accept,
    /// What is special here.
    pub note: String,
}

/// Values that may stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accept {
    /// The recommended one alone.
    Same,
    /// Numbers in this range.
    Within(u64, u64),
    /// One of these words.
    OneOf(Vec<String>),
}

/// Exactly this value.
pub fn exactly(value: impl ToString) -> Wish {
    Wish::Want(Want { set: value.to_string(), accept: Accept::Same, note: String::new() })
}

/// This value; from `low` to `high` may stay.
pub fn within(value: u64, low: u64, high: u64) -> Wish {
    Wish::Want(Want { set: value.to_string(), accept: Accept::Within(low, high), note: String::new() })
}

/// The first of the words; the others may stay.
pub fn one_of(words: &[&str]) -> Wish {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let set = words.first().cloned().unwrap_or_default();
    Wish::Want(Want { set, accept: Accept::OneOf(words), note: String::new() })
}

/// Nothing is wanted.
pub fn nothing(why: impl Into<String>) -> Wish {
    Wish::Nothing(why.into())
}

impl Wish {
    /// With a word about what is special.
    pub fn because(self, note: impl Into<String>) -> Self {
        match self {
            Self::Want(want) => Self::Want(Want { note: note.into(), ..want }),
            Self::Nothing(_) => self,
        }
    }
}

impl Want {
    /// May this value stay?
    pub fn accepts(&self, value: &str) -> bool {
        match &self.accept {
            Accept::Same => value == self.set,
            Accept::Within(low, high) => {
                value.parse().is_ok_and(|number: u64| (*low..=*high).contains(&number))
            }
            Accept::OneOf(words) => words.iter().any(|word| word == value),
        }
    }

    /// For people: the value, and what else is fine.
    pub fn shown(&self) -> String {
        let set = &self.set;
        match &self.accept {
            Accept::Same => set.clone(),
            Accept::Within(low, high) => match (set == &low.to_string(), *high == u64::MAX) {
                (true, true) => format!(">= {set}"),
                (false, true) => format!("{set} (>= {low})"),
                (_, false) if low == high => set.clone(),
                (true, false) => format!("{set} (up to {high})"),
                (false, false) => format!("{set} ({low}..{high})"),
            },
            Accept::OneOf(words) if words.len() > 1 => {
                format!("{set} (or {})", words[1..].join(", "))
            }
            Accept::OneOf(_) => set.clone(),
        }
    }
}

/// What a special look saw of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What has the setting.
    pub subject: String,
    pub verdict: Verdict,
    /// What is set.
    pub current: Option<String>,
    /// What should be.
    pub recommended: Option<String>,
    /// What is special here, what to do by hand.
    pub note: String,
    /// How `apply` would change it.
    pub change: Option<Change>,
    /// Worse or milder than the rule says in general.
    pub severity: Option<Severity>,
}

impl Seen {
    /// Of this thing, with this value, which should be that.
    pub fn new(
        subject: impl Into<String>,
        current: impl Into<String>,
        recommended: impl Into<String>,
    ) -> Self {
        let (current, recommended) = (current.into(), recommended.into());
        Self {
            subject: subject.into(),
            verdict: if current == recommended { Verdict::Ok } else { Verdict::Change },
            current: Some(current),
            recommended: Some(recommended),
            note: String::new(),
            change: None,
            severity: None,
        }
    }

    /// Nothing can be said.
    pub fn unknown(subject: impl Into<String>, note: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, current: None, recommended: None, ..Self::new(subject, "", "") }
            .note(note)
    }

    /// It means nothing here.
    pub fn not_applicable(subject: impl Into<String>, note: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotApplicable,
            current: None,
            recommended: None,
            ..Self::new(subject, "", "")
        }
        .note(note)
    }

    /// Good when `good` says so.
    pub fn good_if(self, good: bool) -> Self {
        Self { verdict: if good { Verdict::Ok } else { Verdict::Change }, ..self }
    }

    /// With a word about what is special, or what to do.
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Changed so, when it should be another.
    pub fn change(self, change: Change) -> Self {
        let change = (self.verdict == Verdict::Change).then_some(change);
        Self { change, ..self }
    }

    /// With a word about a file that sets the same key to something else at boot: after ours, or ours itself where
    /// `apply` has nothing to change.
    pub fn set_again(self, root: &Root, key: &str, accepts: impl Fn(&str) -> bool) -> Self {
        match set_again(root, key, self.verdict == Verdict::Ok) {
            Some((file, value)) if !accepts(&value) => {
                let more = match file == SYSCTL_FILE {
                    true => format!("{file} sets it to {value} at the next boot: remove that line"),
                    false => format!("{file} sets it to {value} at every boot, after ours: remove it there"),
                };
                let note = if self.note.is_empty() { more } else { format!("{}; {more}", self.note) };
                self.note(note)
            }
            _ => self,
        }
    }

    /// With a word about how long a change of this disk holds; a disk that undo could not find again is not changed.
    pub fn of_disk(self, disk: &Disk) -> Self {
        let more = match &disk.identity {
            Some(identity) if identity.lasts() => return self,
            _ if self.change.is_none() => return self,
            Some(_) => {
                "it has no wwid, serial number or place that udev could know it by: changed in the running kernel only, \
                 it does not persist over a reboot"
            }
            None => {
                "it has nothing that tells it from other disks when names change places: set it by hand, and again after \
                 each reboot"
            }
        };
        let change = self.change.clone().filter(|_| disk.identity.is_some());
        let note = if self.note.is_empty() { more.to_owned() } else { format!("{}; {more}", self.note) };
        Self { change, note, ..self }
    }

    /// Of another weight than the rule says.
    pub fn severity(self, severity: Severity) -> Self {
        Self { severity: Some(severity), ..self }
    }
}

/// Where the kernel keeps a sysctl.
pub fn sysctl_path(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

/// Every setting of the table, beside what is recommended: what should change first, the worst first.
pub fn check(host: &Host<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::all().flat_map(|rule| findings(rule, host)).collect();
    findings.sort_by_key(|finding| (finding.verdict, finding.severity));
    findings
}

fn findings(rule: &'static Rule, host: &Host<'_>) -> Vec<Finding> {
    let roles: Vec<Role> = rule.roles.iter().copied().filter(|role| host.is(*role)).collect();
    let seen = match (roles.is_empty(), rule.look) {
        (true, _) => vec![Seen::not_applicable("host", format!("for {} only", words(rule.roles)))],
        (false, Look::Sysctl(wish)) => vec![sysctl(rule, host, &wish(host))],
        (false, Look::Special(look)) => or_none(host, look(host)),
        (false, Look::Drive(wish)) => or_none(
            host,
            drives(host, rule.roles).map(|one| disk(rule, host, one, &wish(host, one))).collect(),
        ),
        (false, Look::Volume(wish)) => or_none(
            host,
            volumes(host, rule.roles).map(|one| disk(rule, host, one, &wish(host, one))).collect(),
        ),
    };
    seen.into_iter().map(|seen| finding(rule, &roles, seen)).collect()
}

fn words(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

fn finding(rule: &'static Rule, roles: &[Role], seen: Seen) -> Finding {
    Finding {
        area: rule.area,
        setting: rule.setting,
        subject: seen.subject,
        roles: roles.to_vec(),
        verdict: seen.verdict,
        severity: seen.severity.unwrap_or(rule.severity),
        current: seen.current,
        recommended: seen.recommended,
        reason: rule.reason,
        effect: rule.effect,
        sources: rule.sources,
        choice: rule.choice,
        note: seen.note,
        change: seen.change,
    }
}

fn sysctl(rule: &Rule, host: &Host<'_>, wish: &Wish) -> Seen {
    let path = sysctl_path(rule.setting);
    let seen = judged("host", host.root.text(&path), wish, |value| Change::sysctl(rule.setting, value));
    match wish {
        Wish::Want(want) => seen.set_again(host.root, rule.setting, |value| want.accepts(value)),
        Wish::Nothing(_) => seen,
    }
}

/// The last file that is read after ours at boot, or is ours, and sets the same key.
fn set_again(root: &Root, key: &str, own: bool) -> Option<(String, String)> {
    let (dir, ours) = SYSCTL_FILE.rsplit_once('/')?;
    let after = |name: &str| name > ours || (own && name == ours);
    let later = root.names(dir).into_iter().filter(|name| name.ends_with(".conf") && after(name));
    let files = later.map(|name| format!("{dir}/{name}")).chain(["/etc/sysctl.conf".to_owned()]);
    let value = |text: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let plain = |name: &str| name.trim().trim_start_matches('-').replace('/', ".");
        let mut ours = lines.filter(|(name, _)| plain(name) == key);
        ours.next_back().map(|(_, value)| reading(value))
    };
    files.filter_map(|file| Some((file.clone(), value(&root.text(&file)?)?))).last()
}

/// Lays a wish beside a value.
pub fn judged(subject: &str, text: Option<String>, wish: &Wish, change: impl Fn(&str) -> Change) -> Seen {
    let want = match wish {
        Wish::Nothing(why) => {
            return Seen { current: text.as_deref().map(reading), ..Seen::not_applicable(subject, why) };
        }
        Wish::Want(want) => want,
    };
    let Some(text) = text else {
        let seen = Seen::unknown(subject, "this kernel does not have it, or it cannot be read");
        return Seen { recommended: Some(want.shown()), ..seen };
    };
    let current = reading(&text);
    let good = want.accepts(&current);
    Seen::new(subject, current, want.shown()).good_if(good).note(&want.note).change(change(&want.set))
}

/// Drives that serve one of the roles: those that are made of no others.
pub fn drives<'h>(host: &'h Host<'_>, roles: &'static [Role]) -> impl Iterator<Item = &'h Disk> {
    serving(host, roles).filter(|disk| disk.members.is_empty() && disk.kind != DiskKind::Made)
}

/// Disks that serve one of the roles and are no part of another: those that file systems are on.
fn volumes<'h>(host: &'h Host<'_>, roles: &'static [Role]) -> impl Iterator<Item = &'h Disk> {
    serving(host, roles).filter(|disk| !host.disks.iter().any(|other| other.members.contains(&disk.name)))
}

fn serving<'h>(host: &'h Host<'_>, roles: &'static [Role]) -> impl Iterator<Item = &'h Disk> {
    let serves = |disk: &&Disk| roles.iter().any(|role| disk.roles.contains(role));
    host.disks.iter().filter(|disk| disk.kind != DiskKind::Other).filter(serves)
}

fn disk(rule: &Rule, host: &Host<'_>, disk: &Disk, wish: &Wish) -> Seen {
    let change = |value: &str| Change::queue(disk, rule.setting, value);
    judged(&disk.name, host.root.text(&disk.queue(rule.setting)), wish, change).of_disk(disk)
}

/// When there is nothing to look at, that is said.
fn or_none(host: &Host<'_>, seen: Vec<Seen>) -> Vec<Seen> {
    match seen.is_empty() {
        false => seen,
        true if host.in_memory(&host.places) => {
            vec![Seen::not_applicable("disks", "all directories are in memory, on no disk")]
        }
        true => {
            let why = "no disk of a target or of metadata is known: name directories by --path";
            vec![Seen::unknown("disks", why)]
        }
    }
}

impl Change {
    /// A value of the kernel, kept in sysctl.d.
    pub fn sysctl(key: &str, value: &str) -> Self {
        Self { live: vec![Live::set(sysctl_path(key), value)], keep: vec![Change::kept_sysctl(key, value)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is accepted and what is shown agree, at the edges too.
    #[test]
    fn wants() {
        let want = |wish: Wish| match wish {
            Wish::Want(want) => want,
            Wish::Nothing(why) => panic!("{why}"),
        };
        let range = want(within(8, 4, 16));
        assert!(range.accepts("4") && range.accepts("16") && !range.accepts("17") && !range.accepts("x"));
        assert_eq!(range.shown(), "8 (4..16)");
        assert_eq!(want(within(8, 8, u64::MAX)).shown(), ">= 8");
        assert_eq!(want(within(9, 8, u64::MAX)).shown(), "9 (>= 8)");
        assert_eq!(
            (want(within(8, 8, 16)).shown(), want(within(8, 8, 8)).shown()),
            ("8 (up to 16)".into(), "8".into())
        );
        let word = want(one_of(&["none", "noop"]));
        assert!(word.accepts("noop") && !word.accepts("bfq"));
        assert_eq!((word.shown().as_str(), want(exactly(0)).shown().as_str()), ("none (or noop)", "0"));
    }
}
