//! K9 and K11: pages, and who asks before using them.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use skep_fuse::Dropped;
use skep_fuse::abi::opcode;

use super::mapping::Mapping;
use super::mounted::Mounted;
use super::{E, X, kernel, seen, waits_for_what_is_absent};

/// Where INVAL_INODE waits for pages.
const NOTICE: &str = "fuse_reverse_inval_inode";
const ACL: &str = "system.posix_acl_access";

fn acl(mounted: &Mounted, path: &str) {
    let error = rustix::fs::getxattr(mounted.path(path), ACL, &mut [0; 64][..]).unwrap_err();
    assert_eq!(error, rustix::io::Errno::NODATA);
}

fn first_byte(file: &File) -> u8 {
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 0).unwrap(), 1);
    byte[0]
}

on_both! {
    /// Goal: attributes and ACLs are dropped without waiting for pages that are being filled, with a range of pages and
    /// without; pages are waited for.
    fn k9_attributes_and_acls_go_first_and_pages_are_waited_for(transport) {
        let mounted = Mounted::warm(transport);
        acl(&mounted, "d/x");
        assert_eq!(mounted.asks(|| acl(&mounted, "d/x")).1, [""; 0], "it is remembered that there is none");
        let gate = mounted.hold(opcode::READ, X, "");
        let reader = mounted.program(|root| first_byte(&File::open(root.join("d/x")).unwrap()));
        gate.arrived();
        let dropped = |what: &str| {
            assert_eq!(mounted.looked("d/x"), ["GETATTR 10"], "{what}");
            let asked = mounted.asks(|| acl(&mounted, "d/x")).1;
            assert_eq!(asked, [format!("GETXATTR 10 {ACL}")], "{what}");
            assert_eq!(mounted.looked("d/x"), [""; 0], "{what}");
        };
        assert_eq!(mounted.drop_attributes(X), Dropped::Done, "no page, so no waiting");
        dropped("attributes");
        let mut notice = mounted.notice(|notifier| notifier.inval_inode(X, 0, 0));
        assert!(notice.waits_in(NOTICE));
        dropped("pages, while they are waited for");
        mounted.script.change(X);
        gate.open();
        assert_eq!(notice.done(), Ok(Dropped::Done));
        // It may have found the page gone, and have read again.
        assert!([b'a', b'b'].contains(&reader.done()));
        assert_eq!(first_byte(&File::open(mounted.path("d/x")).unwrap()), b'b', "the old page is gone");
    }
}

on_both! {
    /// Goal: an answer about an ACL from before a drop is not remembered.
    fn k9_a_late_acl_is_not_remembered(transport) {
        let mounted = Mounted::warm(transport);
        let gate = mounted.hold(opcode::GETXATTR, X, ACL);
        let program = mounted.program(|root| {
            rustix::fs::getxattr(root.join("d/x"), ACL, &mut [0; 64][..]).unwrap_err()
        });
        gate.arrived();
        assert_eq!(mounted.drop_attributes(X), Dropped::Done);
        gate.open();
        assert_eq!(program.done(), rustix::io::Errno::NODATA);
        let asked = mounted.asks(|| acl(&mounted, "d/x")).1;
        assert_eq!(asked, [format!("GETXATTR 10 {ACL}")]);
        assert_eq!(mounted.asks(|| acl(&mounted, "d/x")).1, [""; 0]);
    }
}

on_both! {
    /// Goal: a page that has to be written back is waited for, and with it a change of the size that is under way, during
    /// which none is.
    fn k9_write_backs_wait_for_a_change_of_the_size(transport) {
        let mounted = Mounted::warm(transport);
        let file = File::options().read(true).write(true).open(mounted.path("d/x")).unwrap();
        let mapping = Mapping::new(&file);
        let gate = mounted.hold(opcode::SETATTR, X, "");
        let other = file.try_clone().unwrap();
        let truncates = mounted.program(move |_| rustix::fs::ftruncate(other, 9_000));
        gate.arrived();
        mapping.write(b'!');
        let mut notice = mounted.notice(|notifier| notifier.inval_inode(X, 0, 0));
        assert!(notice.waits_in(NOTICE));
        assert_eq!(mounted.drop_attributes(X), Dropped::Done, "attributes do not wait");
        assert!(!mounted.script.asked().contains(&"WRITE 10".to_owned()));
        gate.open();
        truncates.done().unwrap();
        assert_eq!(notice.done(), Ok(Dropped::Done));
        assert!(mounted.script.asked().contains(&"WRITE 10".to_owned()), "written back before it was dropped");
    }
}

on_both! {
    /// Goal: `read` asks for attributes that are not valid before it uses a page, and reads again where size or time have
    /// changed; `splice`, `sendfile` and mappings ask for nothing.
    fn k11_read_asks_before_it_uses_a_page_and_splice_does_not(transport) {
        let mounted = Mounted::warm(transport);
        let file = File::open(mounted.path("d/x")).unwrap();
        assert_eq!(first_byte(&file), b'a');
        assert_eq!(mounted.asks(|| first_byte(&file)), (b'a', vec![]), "all is valid");
        mounted.drop_attributes(X);
        let asked = vec!["GETATTR 10".to_owned()];
        assert_eq!(mounted.asks(|| first_byte(&file)), (b'a', asked), "nothing has changed: the page stays");
        mounted.drop_attributes(X);
        mounted.script.change(X);
        let asked = vec!["GETATTR 10".to_owned(), "READ 10".to_owned()];
        assert_eq!(mounted.asks(|| first_byte(&file)), (b'b', asked));

        let mapped = File::options().read(true).write(true).open(mounted.path("d/x")).unwrap();
        let mapping = Mapping::new(&mapped);
        assert_eq!(mapping.read(), b'b');
        mounted.drop_attributes(X);
        mounted.script.change(X);
        assert_eq!(mounted.asks(|| mapping.read()), (b'b', vec![]), "a mapping shows what is there");
        if seen() && kernel() >= (6, 5) {
            assert_eq!(mounted.asks(|| sent(&file)), (b'b', vec![]), "and so does sendfile");
            assert_eq!(mounted.asks(|| spliced(&file)), (b'b', vec![]), "and splice");
        }
        assert_eq!(mounted.notifier().inval_inode(X, 0, 0), Ok(Dropped::Done));
        assert_eq!((mapping.read(), sent(&file), spliced(&file), first_byte(&file)), (b'c', b'c', b'c', b'c'));
    }
}

on_both! {
    /// Goal: an answer that was handed over need not be applied: one that shows another size or time drops all pages where
    /// it is applied, and waits there for those that are being filled. A look at a name holds its directory for so long.
    fn k1_k11_an_answer_that_was_handed_over_waits_for_pages_before_it_is_applied(transport) {
        let mounted = Mounted::warm(transport);
        mounted.script.name(E, "x", X);
        let gate = mounted.hold(opcode::READ, X, "");
        let reader = mounted.program(|root| first_byte(&File::open(root.join("d/x")).unwrap()));
        gate.arrived();
        mounted.script.change(X);
        let mut look = mounted.walk("e/x");
        assert!(look.waits_in("fuse_change_attributes"));
        let mut notice = mounted.notice(|notifier| notifier.inval_entry(E, b"x"));
        let waits = notice.waits_in("fuse_reverse_inval_entry");
        assert!(waits || waits_for_what_is_absent() != Some(true), "the name is not there yet");
        gate.open();
        look.done();
        reader.done();
        assert_eq!(notice.done(), Ok(if waits { Dropped::Done } else { Dropped::Unknown }));
    }
}

fn sent(file: &File) -> u8 {
    let (receiver, sender) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    assert_eq!(rustix::fs::sendfile(sender, file, Some(&mut 0), 1).unwrap(), 1);
    received(receiver)
}

fn spliced(file: &File) -> u8 {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let flags = rustix::pipe::SpliceFlags::empty();
    assert_eq!(rustix::pipe::splice(file, Some(&mut 0), writer, None, 1, flags).unwrap(), 1);
    received(reader)
}

fn received(from: impl AsFd) -> u8 {
    let mut byte = [0];
    assert_eq!(rustix::io::read(from, &mut byte).unwrap(), 1);
    byte[0]
}
