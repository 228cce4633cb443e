//! Files that are written in pieces and were there before: a lane opens one that was closed, and whose pieces all count, looked at
//! or not, and goes on as its writer: in order, at its end or from its beginning again, over what is there; or by appending. Mounts
//! may hold such a file by then, or ask to; where they do not, each piece is with its targets when it is answered. Judged as those
//! that are new (`pieced.rs`).

use crate::hub::Hub;
use crate::moments::Moment;
use crate::pieced::{Again, Pieced};
use crate::pieces::About;
use crate::program::{Actor, session_of};
use crate::turns::BOTH;
use skep_types::{Ino, Term};

/// Of a hundred times that a lane meets a closed file so many are such.
const TAKEN_UP: u64 = 30;
/// And of those so many append, and so many begin at the beginning again; where seeds are about who has them open, more.
const APPENDS: u64 = 35;
const OVER: u64 = 25;
const OFTEN_OVER: u64 = 50;

impl Actor {
    /// The term of the file's shard, as the mount knows it.
    pub(crate) fn term_of(&self, ino: Ino) -> Term {
        self.shared.borrow().shards.term(ino.shard())
    }

    /// An append that began in this term has ended. Where the answer with its place was lost with the server it has another one, and
    /// there are zeros in front of it (`docs/design/locks.md`): how many only the server knew.
    pub(crate) fn append_ended(&self, about: About, term: Term) {
        let has_moved = self.term_of(about.ino) != term;
        self.with_pieced(about, |file, hub| {
            file.has_appended();
            if has_moved {
                hub.coverage.hit("a piece was appended over a restart");
                file.spoilt = true;
            }
        });
    }

    /// Becomes the writer of a file that was closed. `false`: not now.
    pub(crate) async fn takes_up(&self, about: About) -> bool {
        let draws = |file: &mut Pieced, hub: &mut Hub| file.may_be_taken_up() && hub.rng.percent(TAKEN_UP);
        if self.with_pieced(about, draws) != Some(true) || !self.begins_turn(about, None) {
            return false;
        }
        let opened = self.lane.open(about.ino, BOTH).await;
        let is_taken_up = self.with_pieced(about, |file, hub| {
            file.turn = None;
            let counts = self.is_of_file(about, file, hub) && file.may_be_taken_up();
            let Some(opened) = opened.as_ref().ok().filter(|_| counts) else { return false };
            let is_anothers = file.life != self.id.life;
            let over = if hub.is_about(Moment::Beside) { OFTEN_OVER } else { OVER };
            let how = match hub.rng.below(100) {
                drawn if drawn < APPENDS => Again::Appends,
                drawn if drawn < APPENDS + over => Again::Over,
                _ => Again::AtItsEnd,
            };
            file.taken_up((self.id.life, about.client), how);
            if how == Again::Over {
                hub.coverage.hit("a file was written from its beginning once more");
            }
            hub.pieces.opens((self.id, about.at), (about.ino, opened.handle, about.client));
            hub.say(format_args!("{} goes on writing inode {}: {how:?}", self.id, about.ino.0));
            hub.coverage.hit(if is_anothers {
                "a file that another mount had made was written in pieces"
            } else {
                "a file was opened again and written in pieces"
            });
            true
        });
        if is_taken_up != Some(true)
            && let Ok(opened) = opened
        {
            self.lane.release(opened.handle).await;
        }
        is_taken_up == Some(true) && session_of(&self.shared) == Some(about.client)
    }
}
