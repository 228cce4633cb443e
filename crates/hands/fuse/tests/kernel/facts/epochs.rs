//! K8: bumps of the epoch. (That one takes no lock is shown with K6.)

use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::mount_bind;
use skep_fuse::abi::opcode;
use skep_fuse::{Dropped, Errno, Transport};

use super::mounted::{Mounted, list, walk};
use super::script::LONG;
use super::{D, E, ROOT};
use crate::served::{Directory, mounts_on};

/// `None` where the kernel has no epochs, and says so.
fn with_epochs(mounted: Mounted) -> Option<Mounted> {
    if mounted.negotiated().has_epochs() {
        return Some(mounted);
    }
    assert_eq!(mounted.notifier().inc_epoch(), Err(Errno::EINVAL));
    None
}

on_both! {
    /// Goal: every name that was known is asked for once more, an absent one too, and one bump is enough for one question.
    fn k8_a_bump_of_the_epoch_drops_all_names(transport) {
        let Some(mounted) = with_epochs(Mounted::warm(transport)) else { return };
        mounted.look("d/absent");
        mounted.notifier().inc_epoch().unwrap();
        assert_eq!(mounted.looked("d/x"), ["LOOKUP 1 d", "LOOKUP 2 x"]);
        assert_eq!(mounted.looked("d/absent"), ["LOOKUP 2 absent"]);
        assert_eq!(mounted.looked("d/x"), [""; 0]);
    }
}

/// What `ask` was answered before a bump of the epoch, and not told until after it, is asked for again.
fn is_asked_again(transport: Transport, opcode: u32, name: &str, prepare: fn(&Mounted), ask: fn(&Path)) {
    let Some(mounted) = with_epochs(Mounted::warm(transport)) else { return };
    prepare(&mounted);
    mounted.script.valid(opcode::LOOKUP, LONG, LONG);
    let gate = mounted.hold(opcode, D, if opcode == opcode::READDIRPLUS { "" } else { name });
    let program = mounted.program(ask);
    gate.arrived();
    mounted.notifier().inc_epoch().unwrap();
    gate.open();
    program.done();
    let asked = mounted.looked(&format!("d/{name}"));
    assert!(asked.contains(&format!("LOOKUP 2 {name}")), "{name}: {asked:?}");
}

on_both! {
    /// Goal: an answer to a question from before the bump counts as from before it, whatever asked.
    fn k8_a_late_answer_is_of_the_epoch_of_its_question(transport) {
        let add = |mounted: &Mounted| assert!(mounted.script.add(D, "new") > 0);
        is_asked_again(transport, opcode::LOOKUP, "new", add, |root| walk(root, "d/new"));
        is_asked_again(transport, opcode::READDIRPLUS, "new", add, |root| list(root, "d"));
        let expire = |mounted: &Mounted| {
            mounted.drop_name(D, "y");
            mounted.script.valid(opcode::LOOKUP, Duration::ZERO, LONG);
            mounted.look("d/y");
        };
        is_asked_again(transport, opcode::LOOKUP, "y", expire, |root| walk(root, "d/y"));
        is_asked_again(transport, opcode::CREATE, "created", |_| {}, |root| {
            rustix::fs::open(root.join("d/created"), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        });
        is_asked_again(transport, opcode::MKDIR, "made", |_| {}, |root| {
            rustix::fs::mkdir(root.join("d/made"), Mode::RWXU).unwrap();
        });
    }
}

on_both! {
    /// Goal: what is mounted below outlives a thousand recalls of other names, but not one bump of the epoch, which loses
    /// it at the next walk without asking whether its directory is there. INVAL_ENTRY of that directory loses it, too.
    fn k8_a_bump_of_the_epoch_loses_what_is_mounted_below(transport) {
        let mounted = Mounted::warm(transport);
        let source = Directory::new();
        let bound = mounted.path("e");
        let bind = || mount_bind(source.path(), &bound).unwrap();
        let is_there = || mounts_on(&bound) == 1;
        bind();
        assert!(is_there());
        for round in 0..1_000 {
            assert_eq!(mounted.drop_attributes(ROOT), Dropped::Done);
            assert_eq!(mounted.drop_attributes(E), Dropped::Done);
            mounted.drop_name(ROOT, &format!("other{round}"));
        }
        mounted.look("e/x");
        assert!(is_there());
        assert_eq!(mounted.drop_name(ROOT, "e"), Dropped::Done);
        assert!(!is_there());
        mounted.look("e");
        let Some(mounted) = with_epochs(mounted) else { return };
        bind();
        assert_eq!(mounts_on(&bound), 1);
        mounted.notifier().inc_epoch().unwrap();
        assert_eq!(mounts_on(&bound), 1, "nothing happens before somebody walks there");
        mounted.look("e");
        assert_eq!(mounts_on(&bound), 0);
    }
}
