//! Commit: tells the shard how far and when chunks were written.

use super::attr::is_gone;
use crate::lane::Lane;
use crate::limits::STALE_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Inode, Mark, News, Shared, Telling, Word};
use alloc::boxed::Box;
use alloc::vec::Vec;
use skep_types::{Attr, ChunkId, Generation, Ino, Stripe, Timestamp};
use skep_wire::meta::{AttrReply, Commit};
use skep_wire::{Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Commits what is marked, if anything is, and tells what is kept of a file that is held.
    pub(crate) async fn commit(&self, ino: Ino) -> Result<(), Refusal> {
        self.commit_and(ino, Word::Ends).await
    }

    /// The same; by `word` a file that is held may go on being held, if nobody waits for the end of that.
    pub(crate) async fn commit_and(&self, ino: Ino, mut word: Word) -> Result<(), Refusal> {
        let _stopped = self.stop_gathering(ino);
        for _ in 0..STALE_ROUNDS_MAX {
            if !self.shared.with(|s| s.limits.canary_tells_unput) {
                self.put_gathered(ino).await?;
            }
            self.settle_mark(ino).await?;
            if self.shared.with(|s| s.inodes.get(ino).is_some_and(Inode::has_content_to_move)) {
                Box::pin(self.move_content(ino, 0, None)).await?;
            }
            self.until_told(ino).await?;
            let Some(known) =
                self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.begin_commit(word)))
            else {
                return Ok(());
            };
            let Some((mark, cuts, telling, news)) = known else { continue };
            let answers = news.as_ref().is_some_and(News::answers);
            let result = match mark {
                Some(mark) => {
                    let telling = telling.filter(|telling| telling.point.0 == mark.generation);
                    self.commit_once(ino, &mark, cuts, telling, news).await
                }
                None if news.is_some() => match self.tell_news(ino, &news.unwrap_or_default()).await {
                    // What came meanwhile is told when it is time.
                    Ok(()) if answers && self.goes_on_behind(ino) => return Ok(()),
                    Ok(()) => {
                        word = word.said(answers);
                        continue;
                    }
                    Err(refusal) if is_not_held(refusal.status) => continue,
                    // It has got chunks, by a growth of which nobody knows here what became.
                    Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                        self.fetch_layout(ino).await?;
                        continue;
                    }
                    told => told,
                },
                None => match telling.filter(|telling| !telling.held.extents.is_empty()) {
                    Some(telling) => self.commit_held(ino, telling).await,
                    None => Ok(()),
                },
            };
            match result {
                // Nor does it mean anything what chunk files held then; the rest is told.
                Err(refusal) if refusal.status == Status::CUT_SINCE => {
                    self.shared.with(|s| s.inodes.entry(ino).held_is_void());
                }
                Ok(()) if answers && self.goes_on_behind(ino) => return Ok(()),
                Ok(()) if mark.is_some() && self.has_more(ino) => word = word.said(answers),
                // It was told before, by a try of which nobody knew what became; what was written since was not.
                Err(refusal) if is_not_held(refusal.status) => {}
                // Another mount has cut the file since: the targets tell what is left.
                Err(refusal) if refusal.status == Status::STALE_SIZE => self.learn_end(ino).await?,
                result => return result,
            }
        }
        Err(super::unsettled(ino))
    }

    pub(crate) async fn commit_once(
        &self,
        ino: Ino,
        mark: &Mark,
        cuts: u64,
        telling: Option<Telling>,
        news: Option<News>,
    ) -> Result<(), Refusal> {
        debug_assert!(
            self.shared
                .with(|s| { s.limits.canary_tells_unput || !s.inodes.get(ino).is_some_and(Inode::has_run) }),
            "what is committed is not with its targets"
        );
        let blocks = self.blocks(ino, mark.generation).await;
        let held = telling.as_ref().map(|telling| telling.held.clone());
        let Mark { size, mtime, time_sets, generation, kill_suidgid, serial, .. } = *mark;
        let message = Commit { ino, generation, size, cuts, mtime, time_sets, blocks, kill_suidgid, held };
        let truncations = self.shared.with(|s| s.inodes.get(ino).map_or(0, |inode| inode.truncations));
        let asked = self.port.boot();
        let result = match &news {
            Some(news) => self.tell_file(ino, &news.tell(ino, Some(message))).await,
            None => self.change(ino, &message).await.map(|reply| (reply, false)),
        };
        let stale = matches!(&result, Err(refusal) if refusal.status == Status::STALE_GENERATION);
        let blind = self.shared.with(|s| s.limits.canary_keeps_layout || s.limits.canary_keeps_beliefs);
        if stale && !blind {
            // Why? A truncate of another mount is counted. Without an answer it is taken for a loss.
            self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.layout = None));
            let _ = self.fetch_layout(ino).await;
        }
        let lost = self.shared.with(|s| {
            let committed = result.is_ok() || stale;
            let mut lost = false;
            if let Some(inode) = s.inodes.get_mut(ino)
                && committed
                && inode.mark.is_some_and(|mark| mark.serial == serial)
            {
                // An end that is in doubt was not told.
                inode.mark = inode.mark.filter(|mark| !stale && mark.doubtful > 0);
                // The generation that was written to is not the file's, and no truncate is why: a power cut undid a
                // growth.
                let truncated = inode.truncating > 0 || inode.truncations != truncations;
                lost = stale && !blind && !truncated && inode.foreign_cuts == mark.foreign_cuts;
            }
            if lost {
                s.loses(ino);
            }
            if let (Ok(_), Some(telling), Some(inode)) = (&result, &telling, s.inodes.get_mut(ino)) {
                inode.told(telling);
            }
            if let (Ok((AttrReply { attr, .. }, _)), None) = (&result, &news) {
                // It changes nothing where that time is known already (another lane has committed the same): the counter may
                // have been moved by another mount then.
                let is_time = |attr: &Attr| attr.mtime == mtime;
                let was = s.inodes.get(ino).and_then(|inode| inode.attr.as_ref()).is_some_and(is_time);
                match is_time(attr) && was {
                    true => s.inodes.merge(attr.clone()),
                    false => s.inodes.merge_own(attr.clone()),
                };
            }
            lost
        });
        if lost {
            self.port.log(format_args!(
                "inode {ino}: what was written to its generation {generation} is not part of the file any more (its \
                 metadata server lost its power); its next fsync fails"
            ));
        }
        let result = match news {
            Some(_) => self.news_told(ino, result, asked),
            None => result.map(drop),
        };
        match result {
            Ok(()) => Ok(()),
            // There is nothing to commit: truncated meanwhile, or lost, which is recorded.
            Err(_) if stale => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Behind a word for who looks: is it held on, with nothing that must be told before anything else?
    fn goes_on_behind(&self, ino: Ino) -> bool {
        let goes_on = |inode: &Inode| inode.may_go_on() && !inode.mark_is_doubtful();
        self.shared.with(|s| s.inodes.get(ino).is_some_and(goes_on))
    }

    /// Is there something of it that was not told yet, if only that nothing more is?
    fn has_more(&self, ino: Ino) -> bool {
        let has_more = |inode: &Inode| inode.mark_is_doubtful() || inode.has_news() || inode.is_ending();
        self.shared.with(|s| s.inodes.get(ino).is_some_and(has_more))
    }

    /// Another mount may have cut the file: its shard says how often that was, and the targets where it ends. (Not by what is
    /// known here, which would have this told first.)
    pub(crate) async fn learn_end(&self, ino: Ino) -> Result<(), Refusal> {
        let AttrReply { attr, live } = self.ask_attr(ino).await?;
        Box::pin(self.shown(attr, live)).await.map(drop)
    }

    /// Where the file was cut since something of the mark was written, the targets tell what is left of it.
    pub(crate) async fn settle_mark(&self, ino: Ino) -> Result<(), Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            // They do not know of what waits to be with them.
            if self.shared.with(|s| s.inodes.get(ino).is_some_and(Inode::mark_is_doubtful)) {
                Box::pin(self.put_gathered(ino)).await?;
            }
            let doubt = self.shared.with(|s| {
                let inode = s.inodes.get_mut(ino)?;
                Some((inode.doubt()?, inode.layout.clone()))
            });
            match doubt {
                None => return Ok(()),
                Some((_, None)) => drop(self.fetch_layout(ino).await?),
                Some((doubt, Some(layout))) => {
                    let end = self.live_size(&layout).await?;
                    self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.settle(doubt, end)));
                }
            }
        }
        Err(super::unsettled(ino))
    }

    /// Tells the shard what chunk files hold, and nothing else.
    async fn commit_held(&self, ino: Ino, mut telling: Telling) -> Result<(), Refusal> {
        telling.held.alone = true;
        let message = Commit {
            ino,
            generation: telling.point.0,
            size: 0,
            cuts: 0,
            mtime: Timestamp::default(),
            time_sets: 0,
            blocks: None,
            kill_suidgid: false,
            held: Some(telling.held.clone()),
        };
        match self.change(ino, &message).await {
            Ok(AttrReply { attr, .. }) => {
                self.shared.with(|s| {
                    s.inodes.entry(ino).told(&telling);
                    s.inodes.merge(attr);
                });
                Ok(())
            }
            // Cut off or removed meanwhile, with its chunk files.
            Err(refusal) if refusal.status == Status::STALE_GENERATION || is_gone(refusal.status) => {
                self.shared.with(|s| s.inodes.entry(ino).held.clear());
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// 512-byte blocks of all chunk files: those that this mount has not written are asked for.
    async fn blocks(&self, ino: Ino, generation: Generation) -> Option<u64> {
        let (layout, missing) = self.shared.with(|s| {
            let inode = s.inodes.get(ino)?;
            let layout = inode.layout.clone().filter(|layout| layout.generation == generation)?;
            let unknown = |(chunk, _): &(ChunkId, &Stripe)| !inode.blocks.contains_key(chunk);
            let missing = layout.stripes().filter(unknown).map(|(chunk, stripe)| (chunk, *stripe));
            let missing: Vec<(ChunkId, Stripe)> = missing.collect();
            Some((layout, missing))
        })?;
        let stats = if missing.is_empty() { Vec::new() } else { self.stat_chunks(&missing).await.ok()? };
        self.shared.with(|s| {
            let inode = s.inodes.get_mut(ino)?;
            for (chunk, stat, _) in stats {
                inode.blocks.entry(chunk).or_insert(stat.blocks);
            }
            Some(layout.stripes().filter_map(|(chunk, _)| inode.blocks.get(&chunk)).sum())
        })
    }
}

/// What there is to be told of a file: writes to chunks, what chunk files hold, and what is kept of it.
type Untold = (Option<Mark>, u64, Option<Telling>, Option<News>);

impl Inode {
    /// A lane is about to tell it. `None`: another one does.
    fn begin_commit(&mut self, word: Word) -> Option<Untold> {
        (!self.is_being_told()).then(|| (self.mark, self.cuts, self.telling(), self.begin_telling(word)))
    }
}

/// The mount holds the file no longer; it is told of as any other.
fn is_not_held(status: Status) -> bool {
    [Status::NOT_HELD, Status::HOLD_PASSED].contains(&status)
}
