//! The context of a running command.

use crate::auth::{Conversation, User};
use crate::concern::WriteConcern;
use crate::connections::ConnShared;
use crate::generic::Generic;
use crate::metrics::OpKind;
use crate::registry::CommandSpec;
use crate::state::ServerState;
use crate::transactions::CheckedOut;
use muniment_exec::{
    BatchLimits, Cursor, CursorOwner, Database, OpContext, Origin, ReplyRoom, Source,
};
use muniment_op::Interrupt;
use muniment_storage::{Collection, CommitId, SessionKey};
use muniment_value::args::{Args, Types, check_type, missing_field};
use muniment_value::{Code, Doc, Error, Result, Value};
use muniment_wire::{Compressor, DocSeq, DocWriter, Sequence};
use std::sync::Arc;

/// A command as the client sent it.
pub struct Request<'a> {
    /// The database.
    pub db: &'a str,
    /// The command's name as the client wrote it.
    pub name: &'a str,
    /// The document whose first element is the command.
    pub body: Doc<'a>,
    /// The document sequences beside it.
    pub sequences: &'a [Sequence<'a>],
    /// The message allows several replies.
    pub exhaust_allowed: bool,
    /// The client wants no reply, and may have closed the connection as soon as it had sent the command.
    pub unacknowledged: bool,
    /// The command came as OP_QUERY.
    pub legacy: bool,
}

impl<'a> Request<'a> {
    /// The documents of a field that may come as an array or as a document sequence. Elements of other types
    /// are left out.
    pub fn documents(&self, field: &str) -> impl Iterator<Item = Doc<'a>> + use<'a> {
        let sequence = self.sequence(field);
        let array = match sequence {
            Some(_) => Doc::EMPTY,
            None => self.body.get_array(field).unwrap_or(Doc::EMPTY),
        };
        let array = array.values().filter_map(|v| v.as_doc());
        sequence.into_iter().flatten().chain(array)
    }

    /// The document sequence of this name.
    pub fn sequence(&self, name: &str) -> Option<DocSeq<'a>> {
        let found = self.sequences.iter().find(|s| s.name == name);
        found.map(|s| s.docs)
    }
}

/// A connection's own state.
#[derive(Default)]
pub struct ConnLocal {
    /// The compressors that were negotiated.
    pub compressors: Vec<Compressor>,
    /// A hello was answered on this connection.
    pub greeted: bool,
    /// The topology's counter in the last reply of a stream of hello replies. The request of the stream still
    /// names the counter before the first of them.
    pub streamed: Option<i64>,
    /// The namespace of the last command, and its entry of `top`.
    pub top: Option<(String, Arc<crate::metrics::TopEntry>)>,
    /// The last session, and when its use was noted.
    pub session: Option<(SessionKey, std::time::Instant)>,
    /// The account in which the connection books the memory of its replies.
    pub reply_room: Option<Arc<ReplyRoom>>,
    /// The user who has logged in.
    pub user: Option<Arc<User>>,
    /// The login that has begun.
    pub login: Option<Box<Conversation>>,
    /// How far the caller has proven that it is a member of the set.
    pub proof: muniment_member::Proof,
    /// What another member of the set sends on this connection.
    pub member: Option<muniment_member::Incoming>,
}

/// The context of a running command, with its reply.
pub struct CommandContext<'a> {
    /// The server.
    pub server: &'a Arc<ServerState>,
    /// The connection as others see it.
    pub conn: &'a Arc<ConnShared>,
    /// The connection's own state.
    pub local: &'a mut ConnLocal,
    /// The running operation.
    pub op: &'a Arc<OpContext>,
    /// The command.
    pub spec: &'static CommandSpec,
    /// The command as the client sent it.
    pub request: &'a Request<'a>,
    /// Its checked fields.
    pub args: Args<'a>,
    /// Its checked generic arguments.
    pub generic: Generic<'a>,
    /// The write concern that is in force.
    pub write_concern: WriteConcern,
    /// The reply; `ok` is added afterwards.
    pub reply: DocWriter<'a>,
    /// The last commit, for `j: true`.
    pub commit: Option<CommitId>,
    /// Another reply follows without a request.
    pub exhaust: bool,
    /// How many operations this command counts as in `opcounters`; `None` for one.
    pub op_count: Option<u64>,
    /// How many operations of other kinds it counts as in addition.
    pub more_ops: Vec<(OpKind, u64)>,
    /// The UUID of the collection that the command creates, if applyOps gives one.
    pub uuid: Option<[u8; 16]>,
    /// The session, for a command of a transaction.
    pub transaction: Option<CheckedOut>,
    /// The command has itself appended `ok`.
    pub said_ok: bool,
    /// Another member has run the command, and waited for its write concern.
    pub elsewhere: bool,
}

/// The documents of a field that may come as an array or as a document sequence.
#[derive(Clone)]
pub enum DocList<'a> {
    /// A kind-1 section.
    Sequence(DocSeq<'a>),
    /// An array whose elements were all checked to be documents.
    Array(Doc<'a>, usize),
}

impl<'a> DocList<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            DocList::Sequence(s) => s.len(),
            DocList::Array(_, n) => *n,
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The documents.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Doc<'a>> + 'a> {
        match self {
            DocList::Sequence(s) => Box::new(*s),
            DocList::Array(d, _) => Box::new(d.values().map(|v| v.as_doc().unwrap_or(Doc::EMPTY))),
        }
    }
}

impl<'a> CommandContext<'a> {
    /// Counts a statement of another kind than the command's in `opcounters`.
    pub fn count(&mut self, kind: OpKind) {
        match self.more_ops.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, n)) => *n += 1,
            None => self.more_ops.push((kind, 1)),
        }
    }

    /// Storage, cursors, operations.
    pub fn engine(&self) -> &'a Database {
        &self.server.engine
    }

    /// Runs a reading command. If its plan is killed, because an index or a collection was dropped or
    /// replaced between planning and the first row, the reply is reset and the command runs again, several
    /// times at most.
    ///
    /// # Errors
    /// The command's own.
    pub fn replan(&mut self, mut run: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let begun = self.reply.buffer().len();
        let mut left = 5;
        loop {
            match run(self) {
                Err(e) if e.code() == Code::QueryPlanKilled && left > 0 => {
                    left -= 1;
                    self.reply.buffer().truncate(begun);
                    self.op.check()?;
                }
                other => return other,
            }
        }
    }

    /// The database.
    pub fn db(&self) -> &'a str {
        self.request.db
    }

    /// `db.collection` of a command on a collection.
    pub fn ns(&self) -> &'a str {
        self.op.namespace()
    }

    /// The value of the command's first element.
    pub fn target(&self) -> Value<'a> {
        self.request.body.first().map_or(Value::Null, |e| e.value())
    }

    /// The value of the command's first element, which must be of one of `types`.
    ///
    /// # Errors
    /// 40414 for null, 14 for another type.
    pub fn typed_target(&self, types: Types) -> Result<Value<'a>> {
        let v = self.target();
        if matches!(v, Value::Null | Value::Undefined) {
            return Err(missing_field(self.spec.name, self.spec.name));
        }
        check_type(self.spec.name, self.spec.name, types, v.ty())?;
        Ok(v)
    }

    /// Fails or waits here if the failpoint of steps names this one.
    ///
    /// # Errors
    /// The failpoint's; what the operation says.
    pub fn at_step(&self, step: &str) -> Result<()> {
        self.server.failpoints.at_step(step, &**self.op)
    }

    /// The cursors that `killCursors` names.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub fn cursors_named(&self) -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        for e in self.args.array("cursors").into_iter().flatten() {
            match e.value() {
                Value::Int64(id) => ids.push(id),
                Value::Null => {}
                v => {
                    return Err(Error::type_mismatch(format!(
                        "BSON field 'killCursors.cursors.{}' is the wrong type '{}', expected type \
                         'long'",
                        e.name(),
                        v.type_name()
                    )));
                }
            }
        }
        Ok(ids)
    }

    /// The text that is the command's first element.
    ///
    /// # Errors
    /// Those of [`CommandContext::typed_target`].
    pub fn text_target(&self) -> Result<&'a str> {
        let v = self.typed_target(Types::STRING)?;
        Ok(v.as_str().unwrap_or_default())
    }

    /// The collection's name of a command on a collection.
    pub fn collection_name(&self) -> &'a str {
        match self.target() {
            Value::String(s) | Value::Symbol(s) => s,
            // The command named the collection by its UUID.
            Value::Binary { .. } => self.ns().split_once('.').map_or("", |(_, c)| c),
            _ => "",
        }
    }

    /// The collection, which must exist.
    ///
    /// # Errors
    /// 26 NamespaceNotFound.
    pub fn collection(&self) -> Result<Arc<Collection>> {
        self.engine()
            .store
            .collection(self.ns())
            .ok_or_else(|| self.ns_not_found())
    }

    /// 26 NamespaceNotFound.
    pub fn ns_not_found(&self) -> Error {
        Error::new(
            Code::NamespaceNotFound,
            format!("Collection [{}] not found.", self.ns()),
        )
    }

    /// The documents of a required field that may come as a document sequence.
    ///
    /// # Errors
    /// 40414 when missing, 14 for an element that is no document.
    pub fn documents(&self, field: &'static str) -> Result<DocList<'a>> {
        if let Some(s) = self.request.sequence(field) {
            return Ok(DocList::Sequence(s));
        }
        let array = self
            .args
            .array(field)
            .ok_or_else(|| missing_field(self.spec.name, field))?;
        let mut n = 0;
        for e in array {
            if e.ty() != muniment_value::Type::Document {
                let element = format!("{field}.{}", e.name());
                check_type(self.spec.name, &element, Types::OBJECT, e.ty())?;
            }
            n += 1;
        }
        Ok(DocList::Array(array, n))
    }

    /// Answers with a cursor's first batch, and keeps the cursor if there is more.
    ///
    /// # Errors
    /// The errors of the plan.
    pub fn first_batch(&mut self, cursor: Cursor, limits: BatchLimits) -> Result<()> {
        let (engine, owner) = (self.engine(), self.cursor_owner());
        let id = engine.first_batch(self.op, cursor, owner, limits, self.reply.buffer())?;
        if id != 0 {
            let origin = Origin::new(self.request.body, self.op.plan_summary());
            engine.cursors.opened_by(id, origin);
        }
        Ok(())
    }

    /// The session and the transaction that a cursor of this command belongs to.
    pub fn cursor_owner(&self) -> CursorOwner {
        CursorOwner {
            session: self.generic.session,
            user: self.local.user.as_ref().map(|u| Arc::clone(&u.key)),
            as_of: self.local.user.as_ref().map_or(0, |u| u.generation),
            // The cursor of a retryable write belongs to no transaction, and its getMore has no number.
            txn_number: self
                .generic
                .txn_number
                .filter(|_| self.generic.in_transaction()),
        }
    }

    /// Notes a commit that the acknowledgement may wait for.
    pub fn note_commit(&mut self, commit: Option<CommitId>) {
        self.commit = self.commit.max(commit);
    }

    /// Notes that something was written without a commit number of its own (DDL).
    pub fn note_write(&mut self) {
        // If the last commit cannot be told now, the acknowledgement asks again, and fails if it has to.
        self.commit = self.engine().store.last_commit().ok();
    }

    /// The source that the command's namespace stands for now.
    ///
    /// # Errors
    /// As [`Database::source`].
    pub fn source(&self) -> Result<Source> {
        self.engine().source(self.ns())
    }

    /// Refuses a view and a time-series collection.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn reject_view(&self) -> Result<()> {
        self.source()?.refuse_view_like(self.ns())
    }

    /// Refuses the command unless it runs in the database "admin".
    ///
    /// # Errors
    /// 13 Unauthorized.
    pub fn require_admin(&self) -> Result<()> {
        if self.db() == "admin" {
            return Ok(());
        }
        Err(Error::new(
            Code::Unauthorized,
            format!(
                "{} may only be run against the admin database.",
                self.spec.name
            ),
        ))
    }
}
