//! Aliases: unique over nodes, targets and pools.

use crate::command::{SetNode, SetPool, SetTarget};
use crate::registry::{Output, Registry};
use alloc::format;
use alloc::string::{String, ToString};
use skep_types::limits::ALIAS_MAX;
use skep_types::{Errno, NodeId, PoolId, TargetId};
use skep_wire::mgmt::{RenamePool, SetNodeAlias, SetTargetAlias};
use skep_wire::{Empty, Refusal, Status};

/// There is no such thing; `list` shows those there are.
pub(crate) fn unknown(what: &str, id: u32, list: &str) -> Refusal {
    let text = format!("there is no {what} {id}; see `skep {list} list`");
    Refusal::with(Status::errno(Errno::ENOENT), text)
}

impl Registry {
    pub(crate) fn set_node_alias(
        &mut self,
        to: u64,
        m: SetNodeAlias,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let node = self.state.nodes.get(&m.node).cloned();
        let mut node = node.ok_or_else(|| unknown("node", m.node.0, "node"))?;
        if node.alias != m.alias {
            self.wished_alias(&m.alias)?;
            out.notes.push(format!("node {}: {} is called {} from now on", node.id, node.alias, m.alias));
            node.alias = m.alias;
            self.commit(SetNode { node }, out);
            self.map_changed();
        }
        out.body(to, &Empty {});
        Ok(())
    }

    pub(crate) fn set_target_alias(
        &mut self,
        to: u64,
        m: SetTargetAlias,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let target = self.state.targets.get(&m.target).cloned();
        let mut target = target.ok_or_else(|| unknown("target", m.target.0, "target"))?;
        if target.alias != m.alias {
            self.wished_alias(&m.alias)?;
            let was = core::mem::replace(&mut target.alias, m.alias);
            out.notes.push(format!("target {}: {was} is called {} from now on", target.id, target.alias));
            self.commit(SetTarget { target }, out);
            self.map_changed();
        }
        out.body(to, &Empty {});
        Ok(())
    }

    pub(crate) fn rename_pool(&mut self, to: u64, m: RenamePool, out: &mut Output) -> Result<(), Refusal> {
        let pool = self.state.pools.get(&m.pool).cloned();
        let mut pool = pool.ok_or_else(|| unknown("pool", m.pool.0, "pool"))?;
        if pool.alias != m.alias {
            self.wished_alias(&m.alias)?;
            let was = core::mem::replace(&mut pool.alias, m.alias);
            out.notes.push(format!("pool {}: {was} is called {} from now on", pool.id, pool.alias));
            self.commit(SetPool { pool }, out);
            self.map_changed();
        }
        out.body(to, &Empty {});
        Ok(())
    }

    /// Refuses an alias that is badly formed or taken.
    pub(crate) fn wished_alias(&self, alias: &str) -> Result<(), Refusal> {
        let well_formed = !alias.is_empty()
            && alias.len() <= ALIAS_MAX
            && alias.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && !alias.bytes().all(|b| b.is_ascii_digit());
        if !well_formed {
            let text = format!(
                "alias \"{alias}\": use 1 to {ALIAS_MAX} letters, digits, '-', '_' or '.', not digits only"
            );
            return Err(Refusal::with(Status::errno(Errno::EINVAL), text));
        }
        match self.holder(alias) {
            None => Ok(()),
            Some(holder) => {
                let text = format!("alias \"{alias}\" is taken by {holder}; choose another one");
                Err(Refusal::with(Status::errno(Errno::EEXIST), text))
            }
        }
    }

    /// Who has this alias.
    fn holder(&self, alias: &str) -> Option<String> {
        let node = |id: &NodeId| format!("node {id}");
        let target = |id: &TargetId| format!("target {id}");
        let pool = |id: &PoolId| format!("pool {id}");
        let state = &self.state;
        let mut nodes = state.nodes.values().filter(|node| node.alias == alias);
        let mut targets = state.targets.values().filter(|target| target.alias == alias);
        let mut pools = state.pools.values().filter(|pool| pool.alias == alias);
        let of_node = nodes.next().map(|found| node(&found.id));
        let of_target = || targets.next().map(|found| target(&found.id));
        of_node.or_else(of_target).or_else(|| pools.next().map(|found| pool(&found.id)))
    }

    /// The wished alias, or a refusal; one made up from `stem` when none is wished. Somebody else may
    /// have been given that one: a newcomer is not refused for it.
    pub(crate) fn free_alias(&self, wish: &str, stem: &str) -> Result<String, Refusal> {
        if !wish.is_empty() {
            return self.wished_alias(wish).map(|()| wish.to_string());
        }
        let mut alias = stem.to_string();
        let mut number = 2;
        while self.holder(&alias).is_some() {
            alias = format!("{stem}-{number}");
            number += 1;
        }
        Ok(alias)
    }
}
