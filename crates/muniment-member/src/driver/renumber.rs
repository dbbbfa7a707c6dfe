//! The driver's part on which member this is: it is told that it was removed, that a configuration was
//! forced elsewhere, or that the set has another member at this address than the directory's.
//!
//! A directory may be that of a member that was removed and is added again, or a copy of another
//! member's. The number by which the set means it is new then, and as nobody has voted or acknowledged
//! by it, the data serve as they are: the log goes on where it ends. Whether the number is new only the
//! leader knows, so it is asked first. If the member has voted under that number, with a directory that
//! is gone, it begins with a copy as if it had none.
//!
//! Invariant: a server that takes a number keeps what was promised under it, or does not count under it
//! before everything is copied.

use super::{Driver, Request};
use crate::greeting::{Greeting, check_config, config_of, is_here, own_address};
use crate::lifecycle::Restart;
use crate::set::ReplicaSet;
use crate::{Role, SetConfig};
use muniment_consensus::{Fatal, InForce, MemberId, Role as CoreRole};
use muniment_value::{Code, Doc, Error, Result, Value, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Longest wait for the leader's answer: it may have to ask the others.
const PATIENCE: Duration = Duration::from_secs(8);
/// After so many ticks without a name of its own in the configuration, this server looks for one again.
const LOOKS: u64 = 20;

impl Driver {
    /// A caller has addressed this member by another number, which by the caller's configuration is that of
    /// the member at this address.
    pub(super) fn renumbered(&mut self, greeting: Greeting) -> Result<()> {
        let (to, config) = (greeting.to, &greeting.in_force.config);
        if self.node.is_syncing() || self.core.role() == CoreRole::Leader {
            return Ok(());
        }
        if self.core.in_force().voters.is_empty() {
            // This member has nothing yet, and so has promised nothing under its old number.
            return self.become_member(to, Some(config.clone()));
        }
        if self.node.renumbering.swap(true, SeqCst) {
            return Ok(());
        }
        let (set, node) = (Arc::clone(&self.set), Arc::clone(&self.node));
        let ask = move || {
            match votes(&set, &greeting) {
                Ok(votes) => {
                    // An arbiter gets no log, so it could not learn from it that it is one.
                    let anew = votes || greeting.in_force.config.is_arbiter(to);
                    let config = anew.then(|| Box::new(greeting.in_force.config));
                    node.ask(Request::Become(to, config));
                }
                // The caller does not lead. The leader will call this server, too.
                Err(e) if e.code() == Code::NotWritablePrimary => {}
                Err(e) => {
                    let told = doc! { "member": to as i64, "error": e.to_string() };
                    let what = "This server is to become another member of the set, and was not told \
                                whether that one has voted";
                    set.home.log.info("REPL", 21_408, "ReplCoord", what, &told);
                }
            }
            node.renumbering.store(false, SeqCst);
        };
        self.set.home.world.beside("renumber", Box::new(ask))
    }

    /// Goes on as another member; if `config` is given, as one that has to copy everything first.
    pub(super) fn become_member(
        &mut self,
        id: MemberId,
        config: Option<muniment_consensus::Config>,
    ) -> Result<()> {
        if id == self.node.id || self.node.is_syncing() || self.core.role() == CoreRole::Leader {
            return Ok(());
        }
        let told = doc! {
            "was": self.node.id as i64,
            "is": id as i64,
            "copies": config.is_some(),
        };
        self.info(
            21_409,
            "This server goes on as another member of the set: its directory was that of one that was \
             removed, or a copy",
            &told,
        );
        self.begin_as(id, config)
    }

    /// The log ends before what this member has acknowledged, as the leader knows: the directory is an older
    /// copy of itself. So the member has lost what it had promised, and begins with a copy of another
    /// member's data as if it had nothing.
    pub(super) fn begin_empty(&mut self, why: &Fatal) -> Result<()> {
        let told = doc! { "why": why.to_string() };
        let what = "This member has lost what it had acknowledged: it copies everything anew";
        self.info(21_412, what, &told);
        let config = self.core.in_force().config.clone();
        self.begin_as(self.node.id, Some(config))
    }

    fn begin_as(&mut self, id: MemberId, config: Option<muniment_consensus::Config>) -> Result<()> {
        let Some(mut state) = self.file.read()? else {
            return Err(crate::ended());
        };
        state.renumber(id, config);
        self.when_there_is_room("the state", || self.file.write(&state))?;
        self.restart(Restart::Storage);
        Ok(())
    }

    /// Takes over a configuration that was forced on another member.
    pub(super) fn take_forced(&mut self, newer: &InForce) -> Result<()> {
        let joining = self.core.in_force().voters.is_empty();
        if joining || self.node.is_syncing() {
            return Ok(());
        }
        if self.takes_forced_later(newer) {
            return Ok(());
        }
        let told = doc! { "version": newer.config.version as i64 };
        let what = "A configuration that was forced on another member is in force";
        self.info(21_410, what, &told);
        self.force(newer.config.clone())?;
        self.lead_alone("electionTimeout")?;
        self.effects()
    }

    /// Another member has refused this one, and may have sent the newer configuration with the refusal.
    pub(super) fn refused_with(&mut self, e: &Error) -> Result<()> {
        let sound = |c: &InForce| check_config(&c.config, self.set.name()).is_ok();
        let Some(newer) = config_of(e) else {
            return Ok(());
        };
        let version = newer.config.version;
        let known = self
            .core
            .in_force()
            .config
            .version
            .max(self.left_out.unwrap_or(0));
        if version <= known || !sound(&newer) {
            return Ok(());
        }
        if newer.config.is_forced() {
            return self.take_forced(&newer);
        }
        let leads = self.core.role() == CoreRole::Leader;
        if leads || is_here(self.set.home.address.port, &newer.config, self.node.id) {
            // A configuration that names this server comes with the log.
            return Ok(());
        }
        let Ok(config) = SetConfig::parse(document(&newer)) else {
            return Ok(());
        };
        self.left_out = Some(version);
        self.named = false;
        self.core.freeze(u64::MAX);
        let told = doc! { "version": version as i64 };
        self.info(
            21_411,
            "This member was removed from the set, or is not at the address that the set has for it",
            &told,
        );
        self.set.change(|m| {
            m.config = Some(Arc::new(config));
            (m.me, m.leader, m.role) = (None, None, Role::Removed);
        });
        self.moved = true;
        Ok(())
    }

    /// Looks up the names of this server again, which may not have resolved when the configuration came.
    pub(super) fn look_for_own_address(&mut self) -> Result<()> {
        self.unnamed = if self.named { 0 } else { self.unnamed + 1 };
        if self.unnamed < LOOKS || self.left_out.is_some() {
            return Ok(());
        }
        self.unnamed = 0;
        let in_force = Arc::clone(self.core.in_force());
        match is_here(self.set.home.address.port, &in_force.config, self.node.id) {
            true => self.take_config(&in_force),
            false => Ok(()),
        }
    }
}

fn document(in_force: &InForce) -> Doc<'_> {
    Doc::new(&in_force.config.document)
}

/// Asks the caller, which has to lead, whether the member that it means may have voted.
fn votes(set: &ReplicaSet, greeting: &Greeting) -> Result<bool> {
    let config = &greeting.in_force.config;
    let caller = config.member(greeting.from);
    let host = caller.map_or("", |m| m.host.as_str());
    let mut c = set.caller().call(host, PATIENCE)?;
    let asks = Greeting {
        set: greeting.set,
        from: greeting.to,
        to: greeting.from,
        host: own_address(set.home.address.port, config, greeting.to),
        in_force: greeting.in_force.clone(),
    };
    let command = doc! { "_replSetExport": set.name(), "greeting": asks.to_doc(), "asks": true };
    let reply = c.command("admin", &command)?;
    // Without a clear answer the member has to count as one that may have voted.
    Ok(!matches!(
        reply.as_doc().get("votes"),
        Some(Value::Bool(false))
    ))
}
