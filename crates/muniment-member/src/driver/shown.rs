//! What the member shows of what the core says: its role, its leader, and the configuration in force.

use super::Driver;
use crate::config::SetConfig;
use crate::greeting::is_here;
use crate::role::Role;
use muniment_consensus::{InForce, MemberId, Role as CoreRole};
use muniment_value::{Doc, Result};
use std::sync::Arc;

/// The role of an arbiter: `Startup` while it waits for the leader to tell it that it may begin.
pub fn role_of_arbiter(waits: bool) -> Role {
    match waits {
        true => Role::Startup,
        false => Role::Arbiter,
    }
}

impl Driver {
    pub(super) fn take_role(&mut self, role: CoreRole, term: u64, leader: Option<MemberId>) {
        let before = std::mem::replace(&mut self.role, (role, term, leader));
        if role == CoreRole::Follower && (before.0, before.2) != (role, leader) {
            self.set.figures().follows(leader);
        }
        self.moved = true;
        self.forget_calm();
        if role != CoreRole::Leader {
            self.node.set_leads(false);
        }
        let follows = self.follower();
        self.set.change(|m| {
            if role == CoreRole::Leader {
                // That this member is primary is shown once the door is open: see `open_door`.
                return;
            }
            m.term = term as i64;
            m.leader = leader;
            if leader.is_some() {
                m.show_term();
            }
            if m.role == Role::Primary {
                m.role = Role::Secondary;
            }
            if m.role == Role::Startup {
                m.role = follows;
            }
        });
    }

    pub(super) fn take_config(&mut self, in_force: &InForce) -> Result<()> {
        let config = SetConfig::parse(Doc::new(&in_force.config.document))?;
        let version = in_force.config.version;
        self.left_out = self.left_out.filter(|left_out| *left_out > version);
        let me = in_force.config.member(self.node.id).map(|m| m.key);
        // The configuration may name this member with an address that is not this server's.
        let here = is_here(self.set.home.address.port, &in_force.config, self.node.id);
        let me = me.filter(|_| here && self.left_out.is_none());
        if me.is_some() != self.named {
            self.named = me.is_some();
            self.core.freeze(if self.named { 0 } else { u64::MAX });
        }
        let follows = self.follower();
        self.set.change(|m| {
            m.me = me;
            m.config = Some(Arc::new(config.clone()));
            if m.leader.is_some() {
                m.show_term();
            }
            match (me, m.role) {
                (None, _) => m.role = Role::Removed,
                (Some(_), Role::Removed) => m.role = follows,
                (Some(_), Role::Startup) if follows == Role::Arbiter => m.role = follows,
                _ => {}
            }
        });
        self.set_times(&config);
        self.connect_to_others(&config, in_force)?;
        self.node
            .heard
            .lock()
            .retain(|id| in_force.config.member(id).is_some());
        self.node.inbox.set_eager(!self.is_alone());
        self.store().set_others(!self.is_alone());
        self.moved = true;
        self.persist();
        Ok(())
    }

    /// The role of this member while it is neither primary nor in any special state.
    fn follower(&self) -> Role {
        match self.core.is_arbiter(self.node.id) {
            true => role_of_arbiter(self.core.is_empty_arbiter()),
            false => Role::Secondary,
        }
    }
}
