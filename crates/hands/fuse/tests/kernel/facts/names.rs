//! K6, K7, K12, K13: what INVAL_ENTRY waits for, what it leaves behind, and which names are asked for though valid.

use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use skep_fuse::Dropped;
use skep_fuse::abi::opcode;

use super::mounted::{Mounted, list, walk};
use super::script::LONG;
use super::{D, E, Y, kernel, seen, waits_for_what_is_absent, walks_ask_after_changes};

/// Where INVAL_ENTRY waits for the lock of the directory.
const NOTICE: &str = "fuse_reverse_inval_entry";

type Act = fn(&Path);

fn create(path: &Path, flags: OFlags) -> rustix::io::Result<()> {
    rustix::fs::open(path, OFlags::CREATE | OFlags::WRONLY | flags, Mode::RUSR).map(drop)
}

/// Requests that are asked with the directory `/d` locked, and what asks them.
const HOLDING: [(u32, &str, Act); 10] = [
    (opcode::CREATE, "created", |root| create(&root.join("d/created"), OFlags::EXCL).unwrap()),
    (opcode::MKNOD, "node", |root| {
        rustix::fs::mknodat(CWD, root.join("d/node"), FileType::RegularFile, Mode::RUSR, 0).unwrap();
    }),
    (opcode::MKDIR, "made", |root| rustix::fs::mkdir(root.join("d/made"), Mode::RWXU).unwrap()),
    (opcode::SYMLINK, "symlink", |root| rustix::fs::symlink("to", root.join("d/symlink")).unwrap()),
    (opcode::LINK, "link", |root| rustix::fs::link(root.join("d/x"), root.join("d/link")).unwrap()),
    (opcode::RENAME, "link", |root| rustix::fs::rename(root.join("d/link"), root.join("e/link")).unwrap()),
    (opcode::UNLINK, "symlink", |root| rustix::fs::unlink(root.join("d/symlink")).unwrap()),
    (opcode::RMDIR, "made", |root| rustix::fs::rmdir(root.join("d/made")).unwrap()),
    (opcode::LOOKUP, "absent", |root| walk(root, "d/absent")),
    (opcode::READDIRPLUS, "", |root| list(root, "d")),
];

on_both! {
    /// Goal: INVAL_ENTRY waits while anything that changes names of the directory, looks for one for the first time, or
    /// lists them, is under way, whether its name is there or not; INVAL_INODE of the directory and INC_EPOCH do not.
    fn k6_changes_first_looks_and_listings_hold_the_directory(transport) {
        let mounted = Mounted::warm(transport);
        for (opcode, name, act) in HOLDING {
            mounted.look("d/y");
            let gate = mounted.hold(opcode, D, name);
            let program = mounted.program(act);
            gate.arrived();
            let mut there = mounted.notice(|notifier| notifier.inval_entry(D, b"y"));
            let mut absent = mounted.notice(|notifier| notifier.inval_entry(D, b"nothing"));
            assert!(there.waits_in(NOTICE), "{opcode} {name}");
            let waits = absent.waits_in(NOTICE);
            assert_eq!(waits, waits_for_what_is_absent().unwrap_or(waits), "{opcode} {name}");
            assert_eq!(mounted.drop_attributes(D), Dropped::Done);
            if mounted.negotiated().has_epochs() {
                let bump = mounted.notice(|notifier| notifier.inc_epoch());
                bump.done().unwrap();
            }
            gate.open();
            program.done();
            assert_eq!(there.done(), Ok(Dropped::Done), "{opcode} {name}");
            assert_eq!(absent.done(), Ok(Dropped::Unknown), "{opcode} {name}");
            assert!(mounted.looked("d/y").contains(&"LOOKUP 2 y".to_owned()), "{opcode} {name}");
        }
    }
}

on_both! {
    /// Goal: when INVAL_ENTRY of the name that is being made, looked for or listed returns, the answer was applied, and the
    /// name dropped.
    fn k6_a_name_that_is_being_answered_is_dropped_when_the_notice_returns(transport) {
        let cases: [(u32, &str, Act); 4] = [
            (opcode::LOOKUP, "absent", |root| walk(root, "d/absent")),
            (opcode::LOOKUP, "found", |root| walk(root, "d/found")),
            (opcode::READDIRPLUS, "listed", |root| list(root, "d")),
            (opcode::CREATE, "created", |root| create(&root.join("d/created"), OFlags::empty()).unwrap()),
        ];
        let mounted = Mounted::warm(transport);
        for (opcode, name, act) in cases {
            if ["found", "listed"].contains(&name) {
                mounted.script.add(D, name);
            }
            let gate = mounted.hold(opcode, D, if opcode == opcode::READDIRPLUS { "" } else { name });
            let program = mounted.program(act);
            gate.arrived();
            let mut notice = mounted.notice(|notifier| notifier.inval_entry(D, name.as_bytes()));
            let waits = notice.waits_in(NOTICE);
            gate.open();
            program.done();
            match notice.done().unwrap() {
                Dropped::Done => {
                    let asked = mounted.looked(&format!("d/{name}"));
                    assert!(asked.contains(&format!("LOOKUP 2 {name}")), "{name}: {asked:?}");
                }
                Dropped::Unknown => assert_ne!(waits_for_what_is_absent(), Some(true), "{name}"),
            }
            assert!(waits || waits_for_what_is_absent() != Some(true), "{name}");
        }
    }
}

on_both! {
    /// Goal: with a name that is there the kernel drops the attributes of the directory; with one that it does not know it
    /// drops nothing.
    fn k6_the_directory_loses_its_attributes_with_a_name(transport) {
        let mounted = Mounted::warm(transport);
        assert_eq!(mounted.drop_name(D, "unknown"), Dropped::Unknown);
        assert_eq!(mounted.looked("d/x"), [""; 0]);
        assert_eq!(mounted.drop_name(D, "y"), Dropped::Done);
        let [walked, looked] = if walks_ask_after_changes() { [1, 0] } else { [0, 1] };
        assert_eq!(mounted.looked("d/x"), vec!["GETATTR 2"; walked]);
        assert_eq!(mounted.looked("d"), vec!["GETATTR 2"; looked]);
        assert_eq!(mounted.looked("d/y"), ["LOOKUP 2 y"]);
    }
}

on_both! {
    /// Goal: a name that is known as absent is dropped like any other, but by kernels that look for it without the lock:
    /// there it stays for as long as it is valid.
    fn k6_a_name_that_is_known_as_absent_can_be_dropped(transport) {
        let mounted = Mounted::warm(transport);
        mounted.look("d/absent");
        assert_eq!(mounted.looked("d/absent"), [""; 0]);
        let dropped = mounted.drop_name(D, "absent");
        mounted.look("d");
        let asked = mounted.looked("d/absent");
        match dropped {
            Dropped::Done => assert_eq!(asked, ["LOOKUP 2 absent"]),
            Dropped::Unknown => assert_eq!(asked, [""; 0]),
        }
        assert_eq!(dropped == Dropped::Done, waits_for_what_is_absent().unwrap_or(dropped == Dropped::Done));
    }
}

on_both! {
    /// Goal: a look at a name that the kernel knows holds nothing, so INVAL_ENTRY comes before its answer, which revives
    /// nothing; it does revive what was only expired.
    fn k7_a_late_revalidation_does_not_revive_a_dropped_name(transport) {
        for expires in [false, true] {
            let mounted = Mounted::new(transport);
            mounted.script.valid(opcode::LOOKUP, Duration::ZERO, LONG);
            mounted.look("d/y");
            mounted.script.valid(opcode::LOOKUP, LONG, LONG);
            // Without it an expired name is dropped.
            if expires && kernel() < (6, 2) {
                continue;
            }
            let gate = mounted.hold(opcode::LOOKUP, D, "y");
            let program = mounted.walk("d/y");
            gate.arrived();
            let notice = mounted.notice(move |notifier| match expires {
                true => notifier.expire_entry(D, b"y"),
                false => notifier.inval_entry(D, b"y"),
            });
            assert_eq!(notice.done(), Ok(Dropped::Done), "while it is asked");
            gate.open();
            program.done();
            let asked = mounted.looked("d/y");
            match expires {
                false => assert!(asked.contains(&"LOOKUP 2 y".to_owned()), "{asked:?}"),
                true => assert!(!seen() || !asked.contains(&"LOOKUP 2 y".to_owned()), "{asked:?}"),
            }
        }
    }
}

on_both! {
    /// Goal: what must not find a name looks for it even when it is valid, absent or not, and so does what replaces one;
    /// O_CREAT alone does not.
    fn k12_what_must_not_find_a_name_looks_for_it_though_it_is_valid(transport) {
        let cases: [(&str, bool, Act); 9] = [
            ("plain", false, |root| create(&root.join("d/plain"), OFlags::empty()).unwrap()),
            ("excl", true, |root| create(&root.join("d/excl"), OFlags::EXCL).unwrap()),
            ("node", true, |root| {
                rustix::fs::mknodat(CWD, root.join("d/node"), FileType::RegularFile, Mode::RUSR, 0).unwrap();
            }),
            ("made", true, |root| rustix::fs::mkdir(root.join("d/made"), Mode::RWXU).unwrap()),
            ("symlink", true, |root| rustix::fs::symlink("to", root.join("d/symlink")).unwrap()),
            ("link", true, |root| rustix::fs::link(root.join("d/x"), root.join("d/link")).unwrap()),
            ("to", true, |root| rustix::fs::rename(root.join("d/link"), root.join("d/to")).unwrap()),
            ("y", true, |root| rustix::fs::rename(root.join("d/to"), root.join("d/y")).unwrap()),
            ("other", true, |root| {
                let (from, to) = (root.join("d/y"), root.join("d/other"));
                rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).unwrap();
            }),
        ];
        let mounted = Mounted::warm(transport);
        for (name, looks, act) in cases {
            let path = format!("d/{name}");
            mounted.look(&path);
            assert!(!mounted.looked(&path).contains(&format!("LOOKUP 2 {name}")), "{name} is valid");
            let ((), asked) = mounted.asks(|| act(&mounted.path("")));
            assert_eq!(asked.contains(&format!("LOOKUP 2 {name}")), looks, "{name}: {asked:?}");
        }
    }
}

on_both! {
    /// Goal: a renamed name is valid for as long as the old one was, though nobody ever answered a look at it; INVAL_ENTRY
    /// drops it.
    fn k13_a_renamed_name_keeps_its_validity(transport) {
        let mounted = Mounted::warm(transport);
        let to_e = || rustix::fs::rename(mounted.path("d/y"), mounted.path("e/z")).unwrap();
        to_e();
        mounted.script.valid(opcode::LOOKUP, Duration::ZERO, LONG);
        assert!(mounted.looked("d/y").contains(&"LOOKUP 2 y".to_owned()), "the old name is asked for");
        mounted.script.take(E, "z");
        let (stat, asked) = mounted.asks(|| mounted.stat("e/z"));
        assert!(stat.is_ok() && !asked.contains(&"LOOKUP 3 z".to_owned()), "{asked:?}");
        assert_eq!(mounted.drop_name(E, "z"), Dropped::Done);
        mounted.stat("e/z").unwrap_err();

        mounted.script.name(D, "y", Y);
        mounted.look("d/y");
        to_e();
        mounted.script.valid(opcode::LOOKUP, LONG, LONG);
        assert!(mounted.looked("e/z").contains(&"LOOKUP 3 z".to_owned()), "as little valid as before");
    }
}

on_both! {
    /// Goal: so do two names that are exchanged.
    fn k13_exchanged_names_keep_their_validity(transport) {
        let mounted = Mounted::warm(transport);
        let truth = mounted.script.change(Y);
        mounted.drop_attributes(Y);
        let (x, y) = (mounted.path("d/x"), mounted.path("d/y"));
        rustix::fs::renameat_with(CWD, x, CWD, y, RenameFlags::EXCHANGE).unwrap();
        for (path, size) in [("d/x", truth), ("d/y", truth - 1)] {
            let (shown, asked) = mounted.look(path);
            assert_eq!(shown, size);
            assert!(asked.iter().all(|asked| !asked.starts_with("LOOKUP")), "{asked:?}");
        }
    }
}
