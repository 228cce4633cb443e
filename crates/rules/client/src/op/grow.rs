//! Growing out of the metadata, and growing the layout.

use super::seal::{Stuck, may_move};
use super::write::StripeWrite;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::boxed::Box;
use skep_types::{Errno, Ino, Layout};
use skep_wire::meta::{Grow, GrowReply, LayoutReply, Switch};
use skep_wire::storage::Owner;
use skep_wire::{Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Makes the layout of `ino` reach `end`. The caller looks at the layout again: it may have to
    /// grow once more when other writers were in between.
    ///
    /// Inline content may have been made durable by its log, so its copy is made durable before the
    /// chunks take over.
    pub(crate) async fn grow(&self, ino: Ino, end: u64) -> Result<(), Refusal> {
        self.grow_like(ino, end, None).await
    }

    /// As [`Lane::grow`], if possible on the targets of `like`.
    pub(crate) async fn grow_like(&self, ino: Ino, end: u64, like: Option<Ino>) -> Result<(), Refusal> {
        // Content that is kept would not be copied.
        match self.shared.with(|s| s.inodes.get(ino).is_some_and(|inode| inode.held_content().is_some())) {
            true => Box::pin(self.move_content(ino, end, like)).await,
            false => self.grow_now(ino, end, like).await,
        }
    }

    pub(crate) async fn grow_now(&self, ino: Ino, end: u64, like: Option<Ino>) -> Result<(), Refusal> {
        let GrowReply { attr, layout, copy } = self.change(ino, &Grow { ino, end, like }).await?;
        let Some(copy) = copy else {
            self.grown(attr, layout);
            return Ok(());
        };
        let owner = Owner { uid: attr.uid, gid: attr.gid, project: attr.project };
        if !copy.data.0.is_empty() {
            let data = &copy.data.0;
            let write = StripeWrite { sync: true, ..StripeWrite::new(&layout, 0, data, owner) };
            self.shared.with(|s| s.inodes.entry(ino).change_begins());
            let copied = self.copy_out(ino, &write).await;
            self.shared.with(|s| s.inodes.entry(ino).change_ends());
            match copied {
                Ok(None) => {}
                // Another growth, on other targets: the shard has heard of the full one. The caller looks again.
                Ok(Some(stuck)) => return self.go_on_elsewhere(ino, &layout, stuck).await,
                // The intent was given up meanwhile.
                Err(refusal) if refusal.status == Status::STALE_GENERATION => return Ok(()),
                Err(refusal) => return Err(refusal),
            }
        }
        let copied = copy.data.0.len() as u64;
        let switch = Switch { ino, generation: layout.generation, inline_version: copy.version, copied };
        match self.change(ino, &switch).await {
            Ok(LayoutReply { attr, layout }) => self.grown(attr, layout),
            // Somebody wrote inline after the copy was taken, or was faster.
            Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                self.fetch_layout(ino).await?;
            }
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    /// Copies inline content to its chunk files. `Some`: where there is no room for it, and other targets may have some.
    async fn copy_out(&self, ino: Ino, write: &StripeWrite<'_>) -> Result<Option<Stuck>, Refusal> {
        let Err(failed) = self.try_stripes(ino, write).await else { return Ok(None) };
        if may_move(&failed.stuck.refusal) {
            return Ok(Some(failed.stuck));
        }
        // Part of a copy is none.
        self.settle_failed(ino, failed).await?;
        Err(Errno::EIO.into())
    }

    fn grown(&self, attr: skep_types::Attr, layout: Layout) {
        let (ino, change) = (attr.ino, attr.change);
        self.shared.with(|s| {
            s.inodes.merge(attr);
            s.inodes.set_layout(ino, change, layout);
        });
    }
}
