//! The mount's own socket, as the mount serves it.

use super::hands::Hands;
use skep_base::control::{self, LIMIT, NOTE, SOCKET, State, Wait};
use skep_base::process::process_exists;
use skep_client::Cell;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

/// Answers, in a thread of its own, until the process ends. Everybody on this machine may ask.
pub fn serve(path: &Path, hands: &Arc<Hands>) -> std::io::Result<()> {
    // One of a process that had this number before, and what killed mounts left.
    let _ = std::fs::remove_file(path);
    let beside = path.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    beside.map(|entry| entry.path()).filter(|path| is_left(path)).for_each(|path| {
        let _ = std::fs::remove_file(path);
    });
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    let hands = hands.clone();
    let answer = move || {
        for stream in listener.incoming().flatten() {
            // Who does not read the answer goes without.
            let _ = tell(stream, &state(&hands));
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(answer).map(drop)
}

/// Is it of a mount that has ended?
fn is_left(path: &Path) -> bool {
    let pid = [SOCKET, NOTE].into_iter().find_map(|kind| control::pid_of(path, kind));
    pid.is_some_and(|pid| !process_exists(pid))
}

fn state(hands: &Hands) -> State {
    let now = hands.now();
    hands.shared.with(|shared| State {
        waits: shared
            .waits(now)
            .into_iter()
            .map(|one| Wait { server: one.server, seconds: one.ms / 1_000, why: one.why })
            .collect(),
        drops_contents: hands.netbench.get().is_some(),
        losses: shared.losses(),
        looks_lost: shared.kernel.lost(),
    })
}

fn tell(mut stream: UnixStream, state: &State) -> std::io::Result<()> {
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(serde_json::to_string(state)?.as_bytes())
}
