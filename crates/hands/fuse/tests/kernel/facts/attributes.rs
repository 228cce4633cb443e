//! K1 to K4: answers about attributes that come after the kernel was told to drop them.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use skep_fuse::abi::opcode;
use skep_fuse::{Dropped, Transport};

use super::mounted::{ATTRIBUTES, Mounted, list, walk};
use super::script::{DEADLINE, LONG};
use super::{D, E, X, Y, kernel, seen};

/// What a program does that makes an inode, and a descriptor of it if there is no name.
type Make = fn(&Path) -> rustix::io::Result<Option<OwnedFd>>;

on_both! {
    /// Goal: validity counts from the moment when the answer is applied, however late that is.
    fn k1_validity_counts_from_when_the_answer_is_applied(transport) {
        const VALID: Duration = Duration::from_secs(1);
        let mounted = Mounted::warm(transport);
        mounted.script.valid(opcode::GETATTR, LONG, VALID);
        for attempt in 1.. {
            assert_eq!(mounted.drop_attributes(X), Dropped::Done);
            let gate = mounted.hold(opcode::GETATTR, X, "");
            let program = mounted.program(|root| rustix::fs::lstat(root.join("d/x")));
            gate.arrived();
            // What passes meanwhile is what is tested.
            sleep(VALID + VALID / 10);
            let let_go = Instant::now();
            gate.open();
            program.done().unwrap();
            let asked = mounted.looked("d/x");
            if let_go.elapsed() < VALID {
                assert_eq!(asked, [""; 0], "valid for as long as was said, and no less");
                break;
            }
            assert!(attempt < 20, "this machine is too busy to tell");
        }
    }
}

/// An answer to a question from before INVAL_INODE of `ino`, about `path`, is not believed, where the kernel has the inode.
fn is_not_believed(mounted: &Mounted, question: (u32, u64, &str), (ino, path): (u64, &str), ask: fn(&Path)) {
    let gate = mounted.hold(question.0, question.1, question.2);
    let program = mounted.program(ask);
    gate.arrived();
    assert_eq!(mounted.drop_attributes(ino), Dropped::Done);
    let truth = mounted.script.change(ino);
    gate.open();
    program.done();
    assert_eq!(mounted.look(path), (truth, vec![format!("GETATTR {ino}")]));
    assert_eq!(mounted.look(path), (truth, vec![]));
}

on_both! {
    /// Goal: as the name says.
    fn k2_a_late_getattr_does_not_revive_attributes(transport) {
        let mounted = Mounted::warm(transport);
        assert_eq!(mounted.drop_attributes(X), Dropped::Done);
        is_not_believed(&mounted, (opcode::GETATTR, X, ""), (X, "d/x"), |root| {
            rustix::fs::lstat(root.join("d/x")).unwrap();
        });
    }
}

on_both! {
    /// Goal: nor does a look at a name that the kernel knows, though the name is believed.
    fn k2_a_late_revalidation_does_not_revive_attributes(transport) {
        let mounted = Mounted::new(transport);
        mounted.script.valid(opcode::LOOKUP, Duration::ZERO, LONG);
        mounted.look("d/y");
        mounted.script.valid(opcode::LOOKUP, LONG, LONG);
        is_not_believed(&mounted, (opcode::LOOKUP, D, "y"), (Y, "d/y"), |root| walk(root, "d/y"));
    }
}

on_both! {
    /// Goal: nor does the first look at another name of an inode.
    fn k2_a_late_look_at_another_name_does_not_revive_attributes(transport) {
        let mounted = Mounted::warm(transport);
        mounted.script.name(E, "x", X);
        is_not_believed(&mounted, (opcode::LOOKUP, E, "x"), (X, "e/x"), |root| walk(root, "e/x"));
    }
}

on_both! {
    /// Goal: nor does a listing with attributes.
    fn k2_a_late_listing_does_not_revive_attributes(transport) {
        let mounted = Mounted::warm(transport);
        is_not_believed(&mounted, (opcode::READDIRPLUS, D, ""), (X, "d/x"), |root| list(root, "d"));
    }
}

const MAKING: [(u32, &str, Make); 6] = [
    (opcode::CREATE, "d/created", |root| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        rustix::fs::open(root.join("d/created"), flags, Mode::RUSR).map(|_| None)
    }),
    (opcode::MKNOD, "d/node", |root| {
        rustix::fs::mknodat(CWD, root.join("d/node"), FileType::RegularFile, Mode::RUSR, 0).map(|()| None)
    }),
    (opcode::MKDIR, "d/directory", |root| {
        rustix::fs::mkdir(root.join("d/directory"), Mode::RWXU).map(|()| None)
    }),
    (opcode::SYMLINK, "d/symlink", |root| {
        rustix::fs::symlink("target", root.join("d/symlink")).map(|()| None)
    }),
    (opcode::LINK, "d/link", |root| rustix::fs::link(root.join("d/x"), root.join("d/link")).map(|()| None)),
    (opcode::TMPFILE, "", |root| {
        rustix::fs::open(root.join("d"), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).map(Some)
    }),
];

/// Has the inode made while the kernel is told to drop it, just before it has the answer. Then: what the kernel believes,
/// the truth, and what it asks.
fn made(transport: Transport, (opcode, path, make): (u32, &str, Make), valid: Duration) -> (u64, u64, usize) {
    let mounted = Mounted::warm(transport);
    mounted.script.valid(opcode, LONG, valid);
    let gate = mounted.hold(opcode, D, "");
    let program = mounted.program(make);
    gate.arrived();
    let (ino, dropped) = match opcode {
        opcode::LINK => (X, Dropped::Done),
        _ => (mounted.script.newest(), Dropped::Unknown),
    };
    assert_eq!(mounted.drop_attributes(ino), dropped, "{path}");
    let truth = mounted.script.change(ino);
    // A program that makes a file asks at once, for permission to open it.
    let (stat, asked) = mounted.asks(|| {
        gate.open();
        match program.done().unwrap() {
            Some(file) => rustix::fs::fstat(file),
            None => mounted.stat(path),
        }
    });
    let asked = asked.iter().filter(|asked| **asked == format!("GETATTR {ino}")).count();
    (u64::try_from(stat.unwrap().st_size).unwrap(), truth, asked)
}

on_both! {
    /// Goal: answers that make inodes have no version: what they say of attributes is believed, though the kernel was told
    /// to drop them meanwhile. Without a validity it is asked for.
    fn k3_what_makes_an_inode_is_believed_though_it_was_dropped_meanwhile(transport) {
        for case in MAKING {
            if seen() {
                let (believed, truth, asked) = made(transport, case, LONG);
                assert_eq!((believed, asked), (truth - 1, 0), "{}", case.1);
            }
            let (believed, truth, asked) = made(transport, case, Duration::ZERO);
            assert_eq!((believed, asked), (truth, 1), "{}", case.1);
        }
    }
}

on_both! {
    /// Goal: an answer to SETATTR from before a drop is not believed by newer kernels; older ones believe it. Without a
    /// validity it is asked for.
    fn k3_setattr_has_a_version_in_newer_kernels(transport) {
        for valid in [LONG, Duration::ZERO] {
            let mounted = Mounted::warm(transport);
            mounted.script.valid(opcode::SETATTR, LONG, valid);
            let gate = mounted.hold(opcode::SETATTR, X, "");
            let program = mounted.program(|root| rustix::fs::chmod(root.join("d/x"), Mode::RWXU));
            gate.arrived();
            assert_eq!(mounted.drop_attributes(X), Dropped::Done);
            let truth = mounted.script.change(X);
            gate.open();
            program.done().unwrap();
            let (believed, asked) = mounted.look("d/x");
            if kernel() >= (6, 18) || valid.is_zero() {
                assert_eq!((believed, asked), (truth, vec!["GETATTR 10".to_owned()]));
            }
        }
    }
}

on_both! {
    /// Goal: an inode that the kernel does not have has no version: it says that it does not know it, and believes the
    /// answer that comes later, be it to LOOKUP or to READDIRPLUS.
    fn k4_an_inode_that_is_not_there_yet_is_not_dropped(transport) {
        type Ask = fn(&Path);
        let cases: [(u32, &str, Ask); 2] = [
            (opcode::LOOKUP, "x", |root| walk(root, "d/x")),
            (opcode::READDIRPLUS, "", |root| list(root, "d")),
        ];
        for (opcode, name, ask) in cases {
            let mounted = Mounted::new(transport);
            mounted.look("d");
            let gate = mounted.hold(opcode, D, name);
            let program = mounted.program(ask);
            gate.arrived();
            assert_eq!(mounted.drop_attributes(X), Dropped::Unknown);
            let truth = mounted.script.change(X);
            gate.open();
            program.done();
            if seen() {
                assert_eq!(mounted.look("d/x"), (truth - 1, vec![]), "believed");
            }
            assert_eq!(mounted.drop_attributes(X), Dropped::Done, "known now");
            assert_eq!(mounted.look("d/x"), (truth, vec!["GETATTR 10".to_owned()]));
        }
    }
}

on_both! {
    /// Goal: told again and again until it knows the inode, the kernel believes nothing older from then on, whenever that
    /// is: while the answer is applied, too.
    fn k4_from_the_moment_that_the_inode_is_known_the_drop_holds(transport) {
        let mounted = Mounted::new(transport);
        mounted.look("d");
        for round in 0..100 {
            let name = format!("n{round}");
            let ino = mounted.script.add(D, &name);
            let path = format!("d/{name}");
            let gate = mounted.hold(opcode::LOOKUP, D, &name);
            let program = mounted.walk(&path);
            gate.arrived();
            let truth = mounted.script.change(ino);
            let notice = mounted.notice(move |notifier| {
                let end = Instant::now() + DEADLINE;
                while notifier.inval_inode(ino, ATTRIBUTES, 0)? == Dropped::Unknown {
                    assert!(Instant::now() < end, "never known");
                    std::hint::spin_loop();
                }
                Ok(())
            });
            gate.open();
            notice.done().unwrap();
            program.done();
            assert_eq!(mounted.look(&path), (truth, vec![format!("GETATTR {ino}")]), "round {round}");
        }
    }
}

on_both! {
    /// Goal: an answer whose asker was killed meanwhile is applied all the same, so it counts as a look-up; the program ends
    /// behind it.
    fn k4_an_answer_whose_asker_was_killed_is_applied(transport) {
        let mounted = Mounted::new(transport);
        mounted.look("d");
        let gate = mounted.hold(opcode::LOOKUP, D, "x");
        let mut program = Command::new("stat").arg(mounted.path("d/x")).stdout(Stdio::null()).spawn().unwrap();
        gate.arrived();
        program.kill().unwrap();
        assert_eq!(mounted.drop_attributes(X), Dropped::Unknown);
        gate.open();
        assert!(!program.wait().unwrap().success());
        assert_eq!(mounted.drop_attributes(X), Dropped::Done);
        mounted.script.until_looked_up(X, 1);
    }
}
