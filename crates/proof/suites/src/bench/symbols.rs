//! Which part of the system a sample of the profiler belongs to.

/// A kernel address begins with it.
const KERNEL: &str = "ffff";

/// What a function of the kernel stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// The group.
    Is(&'static str),
    /// Copies bytes; the group is the copying of the part that called it.
    Copies,
}

use Means::{Copies, Is};

const SWITCHING: &str = "switching between processes";
const ENTRY: &str = "system call entry and exit";
const INTERRUPTS: &str = "timer and interrupts";

/// Beginnings of names; the first that fits decides. What is not listed is its caller's.
const MEANINGS: &[(&str, Means)] = &[
    ("rep_movs", Copies),
    ("copy_user", Copies),
    ("memcpy", Copies),
    ("_copy_", Copies),
    ("copy_page", Copies),
    ("__schedule", Is(SWITCHING)),
    ("schedule", Is(SWITCHING)),
    ("try_to_wake_up", Is(SWITCHING)),
    ("finish_task_switch", Is(SWITCHING)),
    ("switch_mm", Is(SWITCHING)),
    ("__switch_to", Is(SWITCHING)),
    ("pick_", Is(SWITCHING)),
    ("enqueue_", Is(SWITCHING)),
    ("dequeue_", Is(SWITCHING)),
    ("update_", Is(SWITCHING)),
    ("select_task", Is(SWITCHING)),
    ("__wake_up", Is(SWITCHING)),
    ("autoremove_wake", Is(SWITCHING)),
    ("default_wake", Is(SWITCHING)),
    ("prepare_to_wait", Is(SWITCHING)),
    ("finish_wait", Is(SWITCHING)),
    ("futex", Is("futex")),
    ("sysvec_", Is(INTERRUPTS)),
    ("asm_sysvec_", Is(INTERRUPTS)),
    ("handle_softirqs", Is(INTERRUPTS)),
    ("hrtimer_", Is(INTERRUPTS)),
    ("asm_exc_page_fault", Is("page faults")),
    ("exc_page_fault", Is("page faults")),
    ("fuse_uring", Is("FUSE in the kernel")),
    ("fuse_", Is("FUSE in the kernel")),
    ("io_poll", Is("io_uring")),
    ("io_", Is("io_uring")),
    ("__io_", Is("io_uring")),
    ("__do_sys_io_uring", Is("io_uring")),
    ("ep_", Is("epoll")),
    ("do_epoll", Is("epoll")),
    ("__x64_sys_epoll", Is("epoll")),
    ("unix_", Is("Unix sockets")),
    ("sock_", Is("Unix sockets")),
    ("__sock", Is("Unix sockets")),
    ("__skb", Is("Unix sockets")),
    ("skb_", Is("Unix sockets")),
    ("consume_skb", Is("Unix sockets")),
    ("__sys_send", Is("Unix sockets")),
    ("__sys_recv", Is("Unix sockets")),
    ("___sys_sendmsg", Is("Unix sockets")),
    ("tcp_", Is("TCP")),
    ("ip_", Is("TCP")),
    ("pipe_", Is("pipes")),
    ("eventfd_", Is("eventfd")),
    ("shmem_", Is("local file system")),
    ("ext4_", Is("local file system")),
    ("generic_perform_write", Is("local file system")),
    ("filemap_", Is("local file system")),
    ("file_remove_privs", Is("local file system")),
    ("link_path_walk", Is("path walk")),
    ("path_", Is("path walk")),
    ("lookup_", Is("path walk")),
    ("walk_component", Is("path walk")),
    ("getname_", Is("path walk")),
    ("entry_SYSCALL", Is(ENTRY)),
    ("do_syscall_64", Is(ENTRY)),
    ("syscall_", Is(ENTRY)),
    ("exit_to_user_mode", Is(ENTRY)),
];

/// The group of a sample: frames from the innermost, as (address, name); `process` is whose it is.
pub fn group(frames: &[(&str, &str)], process: &str) -> String {
    let Some((address, _)) = frames.first() else { return format!("code of {process}") };
    if !address.starts_with(KERNEL) {
        return format!("code of {process}");
    }
    let mut copies = false;
    for (_, name) in frames.iter().filter(|(address, _)| address.starts_with(KERNEL)) {
        let meaning = MEANINGS.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, means)| *means);
        match meaning {
            Some(Copies) => copies = true,
            // A name outside of any part: the copy belongs to no one in particular.
            Some(Is(group)) if copies && group != ENTRY => return format!("copying: {group}"),
            Some(Is(group)) => return group.to_owned(),
            None => {}
        }
    }
    "kernel, other".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a sample counts for the innermost part that is known, copies for the part that copies.
    #[test]
    fn innermost_part_decides() {
        let kernel = |names: &[&'static str]| -> Vec<(&str, &str)> {
            names.iter().map(|name| ("ffffffff81000000", *name)).collect()
        };
        let of = |names: &[&'static str]| group(&kernel(names), "metad");
        assert_eq!(of(&["_raw_spin_unlock", "try_to_wake_up", "unix_stream_sendmsg"]), SWITCHING);
        assert_eq!(of(&["kfree", "consume_skb", "do_syscall_64"]), "Unix sockets");
        assert_eq!(
            of(&["rep_movs_alternative", "_copy_to_iter", "unix_stream_read_actor"]),
            "copying: Unix sockets"
        );
        assert_eq!(of(&["do_syscall_64", "entry_SYSCALL_64"]), ENTRY);
        assert_eq!(of(&["something"]), "kernel, other");
        assert_eq!(group(&[("55d0", "skep::main")], "mount"), "code of mount");
    }
}
