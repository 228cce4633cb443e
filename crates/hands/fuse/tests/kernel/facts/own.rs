//! K10: what the kernel drops by itself after changes of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::mounted::{Mounted, list};
use super::walks_ask_after_changes;

type Act = fn(&Path);

on_both! {
    /// Goal: after each own change of names the directory is asked for its attributes, once: at the next walk through it,
    /// or, by newer kernels, when somebody looks at it.
    fn k10_an_own_change_drops_the_attributes_of_the_directory(transport) {
        let cases: [(&str, Act); 8] = [
            ("create", |root| {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::open(root.join("d/created"), flags, Mode::RUSR).unwrap();
            }),
            ("mknod", |root| {
                rustix::fs::mknodat(CWD, root.join("d/node"), FileType::RegularFile, Mode::RUSR, 0).unwrap();
            }),
            ("mkdir", |root| rustix::fs::mkdir(root.join("d/made"), Mode::RWXU).unwrap()),
            ("symlink", |root| rustix::fs::symlink("to", root.join("d/symlink")).unwrap()),
            ("link", |root| rustix::fs::link(root.join("d/y"), root.join("d/link")).unwrap()),
            ("rename", |root| rustix::fs::rename(root.join("d/link"), root.join("d/renamed")).unwrap()),
            ("unlink", |root| rustix::fs::unlink(root.join("d/renamed")).unwrap()),
            ("rmdir", |root| rustix::fs::rmdir(root.join("d/made")).unwrap()),
        ];
        let mounted = Mounted::warm(transport);
        for (what, act) in cases {
            act(&mounted.path(""));
            let [walked, looked] = if walks_ask_after_changes() { [1, 0] } else { [0, 1] };
            assert_eq!(mounted.looked("d/x"), vec!["GETATTR 2"; walked], "{what}");
            assert_eq!(mounted.looked("d"), vec!["GETATTR 2"; looked], "{what}");
            assert_eq!(mounted.looked("d"), [""; 0], "{what}");
        }
    }
}

on_both! {
    /// Goal: so is the inode that was renamed, or unlinked where it has another name; one that was linked is not: it has
    /// what the answer said, for as long as that said.
    fn k10_an_own_change_drops_the_attributes_of_what_it_names_but_for_a_link(transport) {
        let cases: [(&str, &str, bool, Act); 3] = [
            ("link", "e/link", false, |root| rustix::fs::link(root.join("d/y"), root.join("e/link")).unwrap()),
            ("rename", "e/to", true, |root| rustix::fs::rename(root.join("d/y"), root.join("e/to")).unwrap()),
            ("unlink", "e/link", true, |root| rustix::fs::unlink(root.join("e/to")).unwrap()),
        ];
        let mounted = Mounted::warm(transport);
        for (what, path, drops, act) in cases {
            act(&mounted.path(""));
            let asked = mounted.looked(path);
            assert_eq!(asked.contains(&"GETATTR 11".to_owned()), drops, "{what}: {asked:?}");
            assert_eq!(mounted.looked(path), [""; 0], "{what}");
        }
    }
}

on_both! {
    /// Goal: a name that was removed is asked for again.
    fn k10_a_removed_name_is_not_known_as_absent(transport) {
        let mounted = Mounted::warm(transport);
        rustix::fs::unlink(mounted.path("d/y")).unwrap();
        rustix::fs::rmdir(mounted.path("e")).unwrap();
        for (path, asked) in [("d/y", "LOOKUP 2 y"), ("e", "LOOKUP 1 e")] {
            assert!(mounted.looked(path).contains(&asked.to_owned()), "{path}");
        }
    }
}

on_both! {
    /// Goal: what was read or listed is asked for once more by who wants its access time, as `stat` does; not by who walks
    /// through it, nor by who reads pages that are there.
    fn k10_an_own_read_drops_the_time_of_access(transport) {
        let mounted = Mounted::warm(transport);
        let file = File::open(mounted.path("d/y")).unwrap();
        assert_eq!(file.read_at(&mut [0], 0).unwrap(), 1);
        assert_eq!(mounted.looked("d/y"), ["GETATTR 11"]);
        assert_eq!(file.read_at(&mut [0], 0).unwrap(), 1);
        assert_eq!(mounted.looked("d/y"), [""; 0], "no request, so nothing was dropped");
        list(&mounted.path(""), "d");
        assert_eq!(mounted.looked("d/y"), [""; 0]);
        assert_eq!(mounted.looked("d"), ["GETATTR 2"]);
    }
}
