//! A program beside the others on each host that only looks, by paths, at the directory of all. It goes on while its mount
//! stands still, and for a while after its mount was killed: then the kernel shows what is valid, and asks nobody.

use crate::deeds::Theme;
use crate::drive::SimLane;
use crate::hub::{Hub, HubRef, LaneId};
use crate::kernel::kernel;
use crate::moments::Moment;
use crate::port::SharedRef;
use crate::program::session_of;
use crate::together::{NAMES, judge_list};
use crate::vfs::Vfs;
use skep_types::Ino;
use std::rc::Rc;

/// Longest pause between two looks, in milliseconds; in seeds that are about names.
const PAUSE_MS: [u64; 2] = [500, 60];
/// Looks after the mount was killed.
const LAST_LOOKS: u32 = 8;
/// Of a hundred looks so many are told to another host.
const TOLD: u64 = 25;
/// Where there are leases, so many of a hundred looks are at all names.
const LISTS: u64 = 25;
/// Of a hundred looks so many hold on to what they found ...
const HOLDS: u64 = 30;
/// ... and of those at something else so many are at that first.
const THROUGH: u64 = 60;
/// Of a thousand pauses so many see a notification that nobody needed ...
const NOTICES: u64 = 40;
/// ... and so many a kernel that is short of memory.
const SHRINKS: u64 = 20;
/// The same in seeds that are about such.
const UNAPPLIED_SHRINKS: u64 = 700;

/// Looks, until all is calm.
pub async fn look_on(hub: HubRef, lane: Rc<SimLane>, shared: SharedRef, id: LaneId) {
    let mut left = LAST_LOOKS;
    let mut held = None;
    while left > 0 && !hub.borrow().calm {
        let vfs = Vfs::enter(&hub, &lane, id);
        let pause = {
            let hub = &mut *hub.borrow_mut();
            let longest = PAUSE_MS[usize::from(hub.deeds.theme == Theme::Names)];
            hub.rng.below(longest) + 1
        };
        vfs.sleep(pause).await;
        while hub.borrow().lending.sleeps(hub.borrow().now) {
            vfs.sleep(pause).await;
        }
        let has_ended = kernel(&hub, id.life, |k| k.has_ended());
        if has_ended {
            hub.borrow_mut().coverage.hit("a kernel outlived its mount");
            left -= 1;
        } else if session_of(&shared).is_none() {
            continue;
        }
        let Some(dir) = hub.borrow().shared.dir else { continue };
        disturb(&hub, &lane, id, dir).await;
        look_through(&hub, &lane, id, &mut held).await;
        look(&hub, &lane, id, &mut held).await;
    }
    if kernel(&hub, id.life, |k| k.has_ended()) {
        hub.borrow_mut().kernels.remove(&id.life);
    }
}

/// Lists the directory, with attributes or without.
async fn look_at_all(hub: &HubRef, lane: &Rc<SimLane>, id: LaneId) {
    let (plus, from) = {
        let hub = &mut *hub.borrow_mut();
        (hub.rng.percent(50), hub.now)
    };
    let found = Vfs::enter(hub, lane, id).list(plus).await;
    let hub = &mut *hub.borrow_mut();
    hub.say(format_args!("{id} lists and sees {found:?}"));
    let since = hub.cut_at.filter(|at| at + hub.lending.shows_lost_ms() >= from).unwrap_or(from);
    if let Ok(found) = found
        && let Err(what) = judge_list(&found, &hub.shared.states(since.min(from), hub.now))
    {
        hub.fail(format!("{id} lists {found:?}: {what}"));
    }
}

/// Looks at what it has opened, without a path (as O_PATH has it: no server is told), now and then.
async fn look_through(hub: &HubRef, lane: &Rc<SimLane>, id: LaneId, held: &mut Option<Ino>) {
    let Some(ino) = held.filter(|_| hub.borrow_mut().rng.percent(THROUGH)) else { return };
    let found = Vfs::enter(hub, lane, id).attributes(ino).await;
    let hub = &mut *hub.borrow_mut();
    hub.say(format_args!("{id} looks through what it holds, inode {}, and sees {found:?}", ino.0));
    if found.is_ok() {
        return hub.coverage.hit("a program looked through what it held");
    }
    hold(hub, id, held, None);
}

/// Holds an inode, which its kernel keeps from then on, instead of another one.
fn hold(hub: &mut Hub, id: LaneId, held: &mut Option<Ino>, ino: Option<Ino>) {
    if let Some(kernel) = hub.kernels.get_mut(&id.life) {
        kernel.hold(ino);
        *held = ino;
    }
}

async fn look(hub: &HubRef, lane: &Rc<SimLane>, id: LaneId, held: &mut Option<Ino>) {
    let lists = {
        let hub = &mut *hub.borrow_mut();
        hub.lending.on && hub.rng.percent(LISTS)
    };
    if lists {
        look_at_all(hub, lane, id).await;
    }
    let (name, stopped) = {
        let hub = &mut *hub.borrow_mut();
        let name = hub.eyed().unwrap_or_else(|| hub.rng.pick(&NAMES));
        (name, hub.is_stopped(id.life))
    };
    let found = Vfs::enter(hub, lane, id).stat(name).await;
    let hub = &mut *hub.borrow_mut();
    hub.say(format_args!("{id} looks at {} and sees {found:?}", name.escape_ascii()));
    if let Ok((ino, _)) = found
        && hub.lending.on
        && (hub.is_about(Moment::Unapplied) || hub.is_about(Moment::Held) || hub.rng.percent(HOLDS))
    {
        hold(hub, id, held, Some(ino));
    }
    if stopped {
        hub.coverage.hit("a program looked while its mount stood still");
    }
    if hub.rng.percent(TOLD) {
        let (from, now) = (Hub::host_of(id.life), hub.now);
        let other = hub.rng.pick(&[1, 2]);
        let host = Hub::host_of(id.life + other);
        hub.truth.hears(host, from, now);
        hub.coverage.hit("a host heard what another one had seen");
    }
}

/// What may come at any time, and must do no harm.
async fn disturb(hub: &HubRef, lane: &Rc<SimLane>, id: LaneId, dir: Ino) {
    let (drawn, name, ino) = {
        let hub = &mut *hub.borrow_mut();
        let name = hub.rng.pick(&NAMES);
        (hub.rng.below(1_000), name, hub.shared.names.get(name).copied().unwrap_or(dir))
    };
    let shrinks = if hub.borrow().is_about(Moment::Unapplied) { UNAPPLIED_SHRINKS } else { SHRINKS };
    let ended = kernel(hub, id.life, |k| k.has_ended());
    match drawn {
        _ if drawn < shrinks => {
            let mut rng = std::mem::replace(&mut hub.borrow_mut().rng, skep_model::Rng::new(0));
            kernel(hub, id.life, |k| k.shrink(&mut rng));
            hub.borrow_mut().rng = rng;
        }
        // Nobody is there who could.
        _ if ended || drawn >= shrinks + NOTICES => {}
        _ if drawn % 4 == 0 => drop(kernel(hub, id.life, |k| k.inval_inode(ino, None))),
        _ if drawn % 4 == 1 => {
            kernel(hub, id.life, |k| k.inc_epoch());
        }
        _ => Vfs::enter(hub, lane, id).drop_name(dir, name).await,
    }
}
