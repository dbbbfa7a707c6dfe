//! Updates of one document after which it may belong to another shard, because they change its shard key.
//!
//! Such a document is deleted on its shard and inserted on the other one, in a transaction: the client's, or one of the
//! router's own. The session of an own one is made of the client's session and the statement's number, if the command
//! is retryable: so a shard remembers that the statement has taken effect.

use super::choose::{ATTEMPTS, Chosen, Wanted, choose, context, too_often};
use super::place::options_of;
use super::{PAUSE, ask_shard, with_terms};
use crate::auth;
use crate::context::CommandContext;
use crate::placement::FIELD;
use crate::router::Router;
use crate::router::forward::{Beside, lsid};
use crate::router::over_shards::coordinate;
use crate::router::tables::Known;
use muniment_op::{Interrupt, sleep_until};
use muniment_query::{Filter, MatchInfo, MetaSet, Update};
use muniment_shard::KeyField;
use muniment_storage::{NOBODY, SessionKey};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};
use muniment_wire::client;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The option of a command that leaves empty timestamps as they are.
const KEEPS_EMPTY: &str = "bypassEmptyTsReplacement";

/// An update of one document.
pub struct Change<'c> {
    /// The document.
    pub wanted: Wanted<'c>,
    /// The change.
    pub update: Value<'c>,
    /// `arrayFilters`; empty for none.
    pub array_filters: Doc<'c>,
    /// What is to be told of a document that is moved.
    pub metadata: MetaSet,
    /// The number of the statement.
    pub id: i64,
}

/// What became of it.
pub enum Outcome {
    /// No document matches.
    None,
    /// The document stays where it is: the shard can change it.
    Stays(Chosen),
    /// It was moved.
    Moved(Moved),
    /// The statement was sent before, and has moved its document then.
    Before,
}

/// A document that was moved.
pub struct Moved {
    /// As it was.
    pub old: DocBuf,
    /// As it is.
    pub new: DocBuf,
    /// What the search has found out of it, by the names of [`Change::metadata`].
    pub metadata: DocBuf,
}

/// Whether an update may change the shard key of its document, or one that the collection had not long ago: then the
/// statement may have been sent before, and have moved its document.
pub fn may_move(known: &Known, update: Value<'_>, fixed: Option<Doc<'_>>) -> bool {
    let former = known.recent_keys().flat_map(|key| key.fields());
    let fields = known.key.fields().iter().chain(former);
    // An `_id` never changes.
    let mut fields = fields.filter(|f| f.path.as_str() != "_id");
    let operators = match update {
        Value::Document(d) if d.first().is_some_and(|e| e.name().starts_with('$')) => d,
        Value::Document(d) => {
            let same = |f: &KeyField| {
                let fixed = fixed.and_then(|fixed| fixed.get(f.path.as_str()));
                let new = d.get(f.path.as_str());
                new.is_some() && fixed.map(|v| v.to_display()) == new.map(|v| v.to_display())
            };
            return !fields.all(same);
        }
        _ => return fields.next().is_some(),
    };
    let named = |name: &str, f: &KeyField| {
        let path = f.path.as_str();
        let (short, long) = if name.len() < path.len() {
            (name, path)
        } else {
            (path, name)
        };
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    fields.any(|f| {
        operators.iter().any(|operator| {
            let operand = operator.value().as_doc().unwrap_or(Doc::EMPTY);
            operand.iter().any(|e| {
                let target = e.value().as_str().filter(|_| operator.name() == "$rename");
                named(e.name(), f) || target.is_some_and(|target| named(target, f))
            })
        })
    })
}

/// Whether an update with these constants may move its document. A shard refuses constants beside what is no pipeline.
pub fn changes_key(known: &Known, update: Value<'_>, constants: Option<Doc<'_>>) -> bool {
    let has_constants = constants.is_some_and(|c| !c.is_empty());
    let refused = has_constants && update.as_array().is_none();
    !refused && may_move(known, update, None)
}

/// Whether a document may be moved to another shard, or may have been not long ago.
pub fn is_possible(known: &Known) -> bool {
    known.table.shards().len() > 1 || known.recent_keys().next().is_some()
}

/// Runs an update of one document on one of these shards, as far as it has to be moved.
///
/// # Errors
/// Those of the update; 13388 StaleConfig; those of the transaction.
pub fn run(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    change: &Change<'_>,
    shards: &[usize],
) -> Result<Outcome> {
    let own = own_session(cx, change.id);
    let mut last = None;
    for attempt in 0..ATTEMPTS {
        cx.op.check()?;
        if is_repeatable(cx) && has_moved(cx, router, known, &own)? {
            return Ok(Outcome::Before);
        }
        let Some(chosen) = choose(cx, router, known, &change.wanted, shards)? else {
            return Ok(Outcome::None);
        };
        // The document's shard answers for an update that is not possible.
        if owner_after(cx, known, change, &chosen).is_none_or(|owner| owner == chosen.shard) {
            return Ok(Outcome::Stays(chosen));
        }
        let number = number_after(router).saturating_add(attempt as i64);
        match moved(cx, router, (known, change), &chosen, (&own, number)) {
            Ok(Done::Moved(moved)) => return Ok(Outcome::Moved(moved)),
            Ok(Done::Before) => return Ok(Outcome::Before),
            Ok(Done::Changed) => {}
            Err(e) if !cx.generic.in_transaction() && is_passing(cx, &e) => {
                last = Some(e);
                sleep_until(muniment_op::now() + PAUSE, &**cx.op)?;
            }
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(too_often))
}

/// The shard that a document belongs to after the update. `None` if the update leaves it as it is, or is not possible.
fn owner_after(
    cx: &CommandContext<'_>,
    known: &Known,
    change: &Change<'_>,
    chosen: &Chosen,
) -> Option<usize> {
    let new = changed(cx, known, change, chosen.doc.as_doc()).ok()??;
    let key = known.key.key_of(new.as_doc()).ok()?;
    Some(known.table.owner(&key))
}

/// To be called after a shard has said that an update moves its document, which [`run`] did not do.
///
/// # Errors
/// 2 BadValue if the router cannot make the document: the filter has `$text` below `$or`, which only an index answers, and
/// the update wants to know which element of an array has matched.
pub fn check_possible(
    cx: &CommandContext<'_>,
    known: &Known,
    (wanted, update): (&Wanted<'_>, Value<'_>),
    array_filters: Doc<'_>,
) -> Result<()> {
    let ctx = context(cx, known, wanted.collation, wanted.variables)?;
    let filter = Filter::parse_query(wanted.filter, &ctx)?.without_planned();
    let update = Update::parse(update, array_filters, &ctx)?;
    match update.needs_match_info() && filter.has_text() {
        true => Err(Error::bad_value(
            "the positional operator does not go together with $text below $or in an update of a \
             shard key",
        )),
        false => Ok(()),
    }
}

/// The document after the update; `None` if it is the same.
fn changed(
    cx: &CommandContext<'_>,
    known: &Known,
    change: &Change<'_>,
    old: Doc<'_>,
) -> Result<Option<DocBuf>> {
    let wanted = &change.wanted;
    let ctx = context(cx, known, wanted.collation, wanted.variables)?;
    let update = Update::parse(change.update, change.array_filters, &ctx)?
        .keep_empty_timestamps(cx.args.bool(KEEPS_EMPTY, false));
    let info = match update.needs_match_info() {
        true => match_info(cx, &Filter::parse_query(wanted.filter, &ctx)?, old)?,
        false => None,
    };
    let info = info.unwrap_or_default();
    let mut new = Vec::new();
    let differs = update.apply(old, info, &mut new, cx.op.work())?;
    Ok(differs.then(|| Doc::new(&new).to_buf()))
}

/// Which elements of its arrays make a document match; `None` if it does not. `$near` and `$text`, which need an index,
/// say nothing of that.
///
/// # Errors
/// Those of matching.
pub fn match_info(
    cx: &CommandContext<'_>,
    filter: &Filter,
    d: Doc<'_>,
) -> Result<Option<MatchInfo>> {
    let filter = filter.without_planned();
    filter.matches_info(d, cx.op.work())
}

/// Whether the statement may be sent again, and is to take effect once then.
fn is_repeatable(cx: &CommandContext<'_>) -> bool {
    cx.generic.txn_number.is_some() && !cx.generic.in_transaction()
}

/// The number of a transaction that begins now: above those of all that began before. A shard has told a time that is
/// later than these.
fn number_after(router: &Router) -> i64 {
    let newest = router.times.newest();
    let time = newest.as_ref().and_then(|d| d.as_doc().get("clusterTime"));
    match time {
        Some(Value::Timestamp { t, i }) => (i64::from(t) << 32 | i64::from(i)) & i64::MAX,
        _ => 1,
    }
}

/// Whether an own transaction may come through when it is tried again. It was not committed.
fn is_passing(cx: &CommandContext<'_>, e: &Error) -> bool {
    match e.code() {
        // Others were in its way, such as the move of a range.
        Code::LockTimeout | Code::WriteConflict => true,
        // The same statement, sent before, has got as far as this one, or farther.
        Code::ConflictingOperationInProgress
        | Code::TransactionTooOld
        | Code::TransactionCommitted
        | Code::NoSuchTransaction => is_repeatable(cx),
        _ => false,
    }
}

/// What became of a transaction.
enum Done {
    /// It was committed.
    Moved(Moved),
    /// The document does not match any more.
    Changed,
    /// The statement was sent before, and that was committed.
    Before,
}

/// Deletes the document where it is and inserts it where it belongs, in one transaction.
fn moved(
    cx: &CommandContext<'_>,
    router: &Router,
    (known, change): (&Known, &Change<'_>),
    chosen: &Chosen,
    own: (&SessionKey, i64),
) -> Result<Done> {
    let mut transaction = Transaction {
        cx,
        router,
        known,
        own,
        begun: Vec::new(),
    };
    let done = transaction.moves(change, chosen).map(|moved| match moved {
        Some(moved) => Done::Moved(moved),
        None => Done::Changed,
    });
    if cx.generic.in_transaction() {
        return done;
    }
    // The shards have ended what an earlier form of the statement had begun: it is committed by now, or never.
    let done = match done {
        Ok(Done::Moved(..)) if is_repeatable(cx) => match has_moved(cx, router, known, own.0) {
            Ok(true) => Ok(Done::Before),
            Ok(false) => done,
            Err(e) => Err(e),
        },
        other => other,
    };
    match done {
        Ok(Done::Moved(moved)) => transaction.commit().map(|()| Done::Moved(moved)),
        other => {
            transaction.abort();
            other
        }
    }
}

struct Transaction<'t, 'c> {
    cx: &'t CommandContext<'c>,
    router: &'t Router,
    known: &'t Known,
    /// The session of an own transaction, and its number.
    own: (&'t SessionKey, i64),
    /// The shards that have a part of it.
    begun: Vec<usize>,
}

impl Transaction<'_, '_> {
    fn moves(&mut self, change: &Change<'_>, chosen: &Chosen) -> Result<Option<Moved>> {
        let name = self.known.name();
        let filter = doc! { "$and": array![change.wanted.filter, &chosen.names] };
        let mut remove = doc! { "findAndModify": name, "query": filter, "remove": true };
        remove.append_some("collation", change.wanted.collation);
        remove.append_some("let", change.wanted.let_());
        if !change.metadata.is_empty() {
            let mut metadata = DocBuf::new();
            for kind in change.metadata.kinds() {
                metadata.append(kind.name(), doc! { "$meta": kind.name() });
            }
            let fields = doc! { "_id": 0, "document": "$$ROOT", "metadata": metadata };
            remove.append("fields", fields);
        }
        let removed = self.send(chosen.shard, remove)?;
        let Some(value) = removed.as_doc().get_doc("value") else {
            return Ok(None);
        };
        let part = |name: &str| value.get_doc(name).unwrap_or(Doc::EMPTY).to_buf();
        let (old, metadata) = match change.metadata.is_empty() {
            true => (value.to_buf(), DocBuf::new()),
            false => (part("document"), part("metadata")),
        };
        let new =
            changed(self.cx, self.known, change, old.as_doc())?.unwrap_or_else(|| old.clone());
        let owner = self
            .known
            .table
            .owner(&self.known.key.key_of(new.as_doc())?);
        let mut insert = doc! { "insert": name, "documents": array![&new] };
        // The update has filled in what it had to.
        insert.append(KEEPS_EMPTY, true);
        let bypass = "bypassDocumentValidation";
        let bypasses =
            self.cx.args.bool(bypass, false) || self.may_be_invalid(chosen.shard, old.as_doc())?;
        insert.append(bypass, bypasses);
        let inserted = self.send(owner, insert)?;
        let errors = inserted
            .as_doc()
            .get_array("writeErrors")
            .unwrap_or(Doc::EMPTY);
        match errors.values().next().and_then(|v| v.as_doc()) {
            None => Ok(Some(Moved { old, new, metadata })),
            Some(e) => {
                let code = client::code_of(e).unwrap_or(Code::UnknownError);
                let mut extra = DocBuf::new();
                for field in e
                    .iter()
                    .filter(|f| !["index", "code", "errmsg"].contains(&f.name()))
                {
                    extra.append_elem(field);
                }
                let why = e.get_str("errmsg").unwrap_or_default();
                Err(Error::new(code, why).with_extra(extra).while_executing())
            }
        }
    }

    /// Whether the document may be invalid after the update because it is before, which the validation level `moderate`
    /// allows. The shard that inserts it knows nothing of that.
    fn may_be_invalid(&self, shard: usize, old: Doc<'_>) -> Result<bool> {
        let (cx, known) = (self.cx, self.known);
        let set = known.set(shard)?;
        let options = options_of(&**cx.op, self.router, set, known.db(), known.name())?;
        let options = options.as_doc();
        let Some(validator) = options.get_doc("validator") else {
            return Ok(false);
        };
        if options.get_str("validationLevel") != Some("moderate") {
            return Ok(false);
        }
        let ctx = context(cx, known, None, Doc::EMPTY)?;
        let valid = Filter::parse(validator, &ctx)?.matches(old, cx.op.work());
        if valid.is_err() {
            // An operation that is ended says nothing of the document, as any other error does.
            cx.op.check()?;
        }
        Ok(!valid.unwrap_or(false))
    }

    /// Sends a statement to a shard.
    fn send(&mut self, shard: usize, command: DocBuf) -> Result<DocBuf> {
        if self.cx.generic.in_transaction() {
            let body = with_terms(self.cx, command);
            let to = (self.known, shard);
            let reply = ask_shard(self.cx, self.router, to, body.as_doc(), Beside::Nothing)?;
            client::check_ok(reply.body.as_doc())?;
            return Ok(reply.body);
        }
        let (set, versions) = (self.known.set(shard)?, self.known.versions(shard));
        let mut command = command;
        command.append(FIELD, versions);
        self.terms(&mut command);
        if !self.begun.contains(&shard) {
            command.append("startTransaction", true);
            self.begun.push(shard);
        }
        let time = self.router.times.newest();
        let reply = set.run(self.known.db(), &command, time, false, &**self.cx.op)?;
        self.router.times.heard(reply.as_doc());
        Ok(reply)
    }

    fn terms(&self, command: &mut DocBuf) {
        command.append("lsid", lsid(self.own.0));
        command.append("txnNumber", self.own.1);
        command.append("autocommit", false);
    }

    fn commit(&self) -> Result<()> {
        let mut sets = Vec::new();
        for shard in &self.begun {
            sets.push(self.known.set(*shard)?);
        }
        let (Some(first), id) = (sets.first(), (*self.own.0, self.own.1)) else {
            return Ok(());
        };
        let texts: ArrayBuf = sets.iter().map(|set| set.text()).collect();
        match coordinate(self.cx, self.router, &id, first, texts)? {
            true => Ok(()),
            false => Err(Error::new(
                Code::WriteConflict,
                "the document could not be moved to another shard: try again",
            )),
        }
    }

    fn abort(&self) {
        for shard in &self.begun {
            let mut abort = doc! { "abortTransaction": 1 };
            self.terms(&mut abort);
            let Ok(set) = self.known.set(*shard) else {
                continue;
            };
            // If it fails, the shard ends its part by itself after a while.
            let _ = set.run("admin", &abort, None, false, &**self.cx.op);
        }
    }
}

/// The session of the own transaction of a statement.
fn own_session(cx: &CommandContext<'_>, statement: i64) -> SessionKey {
    let of_client = cx.generic.session;
    let user = auth::user_of(cx.server, cx.local).map(|user| user.digest);
    let user = of_client.map(|s| s.user).or(user).unwrap_or(NOBODY);
    let id = match (of_client, cx.generic.txn_number) {
        (Some(session), Some(number)) => {
            let mut hash = Sha256::new();
            hash.update(b"a statement that moves a document");
            hash.update(session.id);
            hash.update(session.user);
            hash.update(number.to_le_bytes());
            hash.update(statement.to_le_bytes());
            let mut id = [0; 16];
            let digest = hash.finalize();
            id.copy_from_slice(digest.get(..16).unwrap_or(&[0; 16]));
            id
        }
        _ => crate::uuid::random_uuid(),
    };
    SessionKey { id, user }
}

/// Whether a shard remembers that a transaction of the session was committed.
fn has_moved(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    session: &SessionKey,
) -> Result<bool> {
    let ask =
        doc! { "_shardStatement": 1, "number": 0_i64, "statement": -1, "lsid": lsid(session) };
    // One of them may have given its last range away since.
    let all = router.catalog.shards(&**cx.op, router);
    let mut sets: Vec<_> = all
        .unwrap_or_default()
        .into_iter()
        .map(|(_, set)| set)
        .collect();
    for set in &known.sets {
        if !sets.iter().any(|s| s.name == set.name) {
            sets.push(Arc::clone(set));
        }
    }
    for set in &sets {
        let reply = set.run("admin", &ask, router.times.newest(), true, &**cx.op)?;
        if reply.as_doc().get("committed").is_some_and(|v| v.truthy()) {
            return Ok(true);
        }
    }
    Ok(false)
}
