//! The user of a connection, and what that user may do here: logging in, the users and roles that are
//! stored, and the check of each request.
//!
//! Invariants: if clients have to log in, no command begins before [`admit`] has let it pass; what is stored
//! of users and roles is in force on every connection with its next command.

mod first_user;
mod mechanisms;
mod needs;
mod sasl;
mod seen;
mod slowing;
mod store;
mod user;

pub use first_user::exception as localhost_exception;
pub use mechanisms::{Iterations, MONGODB_X509, Mechanisms};
pub use muniment_storage::{ROLES, USERS};
pub use needs::{Asks, Needs};
pub use sasl::{Begin, Conversation, by_certificate, go_on, speculative, start};
pub use seen::databases as seen;
pub use store::{DB, SCHEMA_ID, all, find, mechanisms_of, privileges_of, remove, replace, schema};
pub use user::User;

use crate::audit::Who;
use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::registry::{CommandSpec, Secret};
use crate::state::ServerState;
use muniment_auth::action::{Action, Actions};
use muniment_auth::names::UserName;
use muniment_auth::resource::Target;
use muniment_exec::Opens;
use muniment_logger::Severity;
use muniment_member::Proof;
use muniment_op::Lock;
use muniment_storage::{NOBODY, SessionKey};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The database of users whose credentials are elsewhere, such as in certificates.
pub const EXTERNAL: &str = "$external";
/// The bytes of a command that an error shows.
const LONGEST_SHOWN: usize = 1000;
/// Commands within commands are looked at down to this depth.
const MAX_NESTED: usize = 100;

/// What the server knows about logging in.
pub struct Auth {
    /// Clients have to log in.
    pub required: bool,
    /// Held while users or roles are read to be changed, until they are.
    pub changing: Lock<()>,
    /// There was a user, so the localhost exception has ended.
    had_users: AtomicBool,
    /// The log says that the exception holds.
    told_of_none: AtomicBool,
    /// The secret from which the salts of unknown users are made.
    secret: [u8; 32],
    /// Tells this process from others, whose users may be others.
    process: String,
    /// What is read instead of a user that does not exist.
    nobody: DocBuf,
    /// Slows the guessing of passwords.
    slowing: Arc<slowing::Slowing>,
    /// Held while a password is stretched, so that clients who set many passwords at once take one core.
    pub stretching: Lock<()>,
    /// Logins by mechanism: tried and succeeded.
    pub figures: mechanisms::Figures,
}

impl Auth {
    /// For a server that starts now.
    pub fn new(required: bool) -> Auth {
        let mut secret = [0; 32];
        // Without it, the salts of unknown users could be guessed; they protect nothing else.
        let _ = getrandom::fill(&mut secret);
        Auth {
            required,
            changing: Lock::new(()),
            had_users: AtomicBool::new(false),
            told_of_none: AtomicBool::new(false),
            process: muniment_value::new_object_id()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect(),
            nobody: sasl::nobody(&secret),
            secret,
            slowing: Arc::default(),
            stretching: Lock::new(()),
            figures: mechanisms::Figures::default(),
        }
    }
}

/// A text that is another one after each change of users and roles, and in another process.
pub fn state_of(server: &ServerState) -> String {
    let generation = server.engine.store.accounts_generation();
    format!("{}-{generation}", server.auth.process)
}

/// Decides whether a connection may run a command, before anything of the request is looked up.
///
/// # Errors
/// 13 Unauthorized if nobody has logged in.
pub fn admit(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    spec: &CommandSpec,
    request: &Request<'_>,
) -> Result<()> {
    refresh(server, conn, local);
    if !server.auth.required
        || local.user.is_some()
        || matches!(spec.needs, Needs::Nothing)
        || matches!(local.proof, Proof::Given)
        || ((spec.before_first_user)(request) && localhost_exception(server, conn))
    {
        return Ok(());
    }
    Err(Error::new(
        Code::Unauthorized,
        format!("Command {} requires authentication", spec.name),
    ))
}

/// Checks whether a connection's user may run a command, which [`admit`] has let pass.
///
/// # Errors
/// 13 Unauthorized.
pub fn check(
    server: &ServerState,
    local: &ConnLocal,
    spec: &CommandSpec,
    request: &Request<'_>,
    namespace: &str,
) -> Result<()> {
    if !server.auth.required || matches!(local.proof, Proof::Given) {
        return Ok(());
    }
    // Without a user, the command needs none, or the exception holds.
    let Some(user) = &local.user else {
        return Ok(());
    };
    let asks = Asks {
        request,
        namespace,
        user,
    };
    match asks.meets(&spec.needs) {
        true => Ok(()),
        false => Err(refused(spec, request)),
    }
}

/// The error for a command that its user may not run.
pub fn refused(spec: &CommandSpec, request: &Request<'_>) -> Error {
    let shown = match hidden(spec, request.body, "") {
        Some(hidden) => hidden,
        None => request.body.abridged(LONGEST_SHOWN),
    };
    let shown = Value::Document(shown.as_doc()).to_display();
    Error::new(
        Code::Unauthorized,
        format!(
            "not authorized on {} to execute command {shown}",
            request.db
        ),
    )
}

/// Whether documents with credentials are in a collection: that of the users, and that into which mongorestore
/// puts users before it has them merged.
fn holds_credentials(namespace: &str) -> bool {
    matches!(namespace, USERS | "admin.tempusers")
}

/// What is shown of a command instead of its body, if that may hold a password or a key, or is about what is
/// stored of users.
pub fn hidden(spec: &CommandSpec, body: Doc<'_>, namespace: &str) -> Option<DocBuf> {
    let hides = holds_credentials(namespace)
        || match spec.secret {
            Secret::Never => false,
            Secret::Always => true,
            Secret::Within => is_secret(Value::Document(body)),
            Secret::If(secret) => secret(body),
        };
    hides.then(|| {
        let mut shown = DocBuf::new();
        shown.append(spec.name, "xxx");
        shown
    })
}

/// As [`hidden`], for a command with the documents beside it.
pub fn hidden_request(
    spec: &CommandSpec,
    request: &Request<'_>,
    namespace: &str,
) -> Option<DocBuf> {
    let named = request.documents("nsInfo").any(names_users);
    let namespace = if named { USERS } else { namespace };
    hidden(spec, request.body, namespace)
}

/// Whether a document is about what is stored of users: an operation of applyOps, or a namespace of
/// bulkWrite.
fn names_users(d: Doc<'_>) -> bool {
    d.get_str("ns").is_some_and(holds_credentials)
}

/// Whether the body of a bulkWrite writes to what is stored of users.
pub fn writes_users_in_bulk(body: Doc<'_>) -> bool {
    let named = body.get_array("nsInfo").unwrap_or(Doc::EMPTY);
    named.values().filter_map(|v| v.as_doc()).any(names_users)
}

/// Whether a value has, at any depth, a document that is a command whose body may hold a password or a key,
/// or that is about what is stored of users.
pub fn is_secret(v: Value<'_>) -> bool {
    secret_within(v, 0)
}

fn secret_within(v: Value<'_>, depth: usize) -> bool {
    let (Value::Document(d) | Value::Array(d)) = v else {
        return false;
    };
    let spec = d.first().and_then(|e| crate::registry::find(e.name()));
    let own = match spec.map(|spec| spec.secret) {
        Some(Secret::Always) => true,
        Some(Secret::If(secret)) => secret(d),
        // What is within is looked at below.
        Some(Secret::Within | Secret::Never) | None => false,
    };
    // What is nested too deeply to be looked at may hold anything.
    own || names_users(d) || depth > MAX_NESTED || d.values().any(|v| secret_within(v, depth + 1))
}

/// Looks a connection's user up again if users or roles have changed since. A user who is gone, or whose
/// document cannot be read, is logged out.
fn refresh(server: &ServerState, conn: &ConnShared, local: &mut ConnLocal) {
    let Some(user) = &local.user else {
        return;
    };
    let generation = server.engine.store.accounts_generation();
    if user.generation == generation {
        return;
    }
    let now = store::resolve(server, &user.name, generation).unwrap_or_else(|e| {
        store::unusable(server, "user", &user.key, &e);
        None
    });
    // A user who was dropped and created again is another one.
    let same = now.filter(|now| now.id == user.id && now.may_come_from(conn));
    if same.is_none() {
        // The user is logged out, whether or not that can be written.
        let reason = "the user was dropped, or may no longer come from there";
        let _ = audit_logout(server, conn, local, reason);
    }
    local.user = same.map(Arc::new);
    *conn.user.lock() = local.user.as_ref().map(|u| Arc::clone(&u.key));
}

/// Whether nobody has logged in on a connection on which somebody has to.
pub fn is_unknown(server: &ServerState, local: &ConnLocal) -> bool {
    let member = local.member.is_some() || matches!(local.proof, Proof::Given);
    server.auth.required && local.user.is_none() && !member
}

/// Whether a user may run a command of before, which a cursor comes from. One that was too large to be kept
/// whole counts as refused.
pub fn may_still(request: &Request<'_>, user: &User, command: Doc<'_>) -> bool {
    let name = command.first().map_or("", |e| e.name());
    let db = command.get_str("$db").unwrap_or(request.db);
    let asks = Asks {
        request,
        namespace: "",
        user,
    };
    crate::registry::find(name).is_some() && asks.may_run(db, command)
}

/// The connection's user, if users count.
pub fn user_of(server: &ServerState, local: &ConnLocal) -> Option<Arc<User>> {
    let counts = server.auth.required && !matches!(local.proof, Proof::Given);
    local.user.as_ref().filter(|_| counts).map(Arc::clone)
}

/// Which collections the connection's user may open at all, if users count.
pub fn opens(server: &ServerState, local: &ConnLocal) -> Option<Arc<dyn Opens>> {
    user_of(server, local).map(|user| user as Arc<dyn Opens>)
}

/// Makes a session that the client names one of the connection's user. Two users who choose the same id have
/// a session each, and it takes the right to `others` to name that of another one.
///
/// # Errors
/// 13 Unauthorized for the session of another user.
pub fn own_session(
    server: &ServerState,
    local: &ConnLocal,
    session: &mut SessionKey,
    others: Action,
) -> Result<()> {
    let own = local.user.as_ref().map_or(NOBODY, |u| u.digest);
    if session.user == NOBODY {
        session.user = own;
        return Ok(());
    }
    match session.user == own || may_on_cluster(server, local, others) {
        true => Ok(()),
        false => Err(Error::new(
            Code::Unauthorized,
            "not authorized to use the session of another user",
        )),
    }
}

/// The originator of an event of the audit log: a connection with its user. Another member of the set, which
/// has proven itself, counts as the user `__system`.
pub fn who(conn: &ConnShared, local: &ConnLocal) -> Who {
    let user = local.user.as_ref();
    let user = user.map(|user| (&user.name, user.roles.as_slice()));
    match (user, &local.proof) {
        (None, Proof::Given) => Who::of(conn, Some((&UserName::new("__system", "local"), &[]))),
        (user, _) => Who::of(conn, user),
    }
}

/// Notes in the audit log that a connection's user, if there is one, is about to be logged out.
///
/// # Errors
/// 96 OperationFailed if it cannot be written.
pub fn audit_logout(
    server: &ServerState,
    conn: &ConnShared,
    local: &ConnLocal,
    reason: &str,
) -> Result<()> {
    match (&server.audit, &local.user) {
        (Some(audit), Some(user)) => audit.logs_out(&who(conn, local), &user.name, reason),
        _ => Ok(()),
    }
}

/// Ends the login of a connection.
pub fn log_out(conn: &ConnShared, local: &mut ConnLocal) {
    local.user = None;
    local.login = None;
    *conn.user.lock() = None;
}

/// Whether the connection's user may do this on the server. Without authorization everybody may.
pub fn may_on_cluster(server: &ServerState, local: &ConnLocal, action: Action) -> bool {
    if !server.auth.required || matches!(local.proof, Proof::Given) {
        return true;
    }
    let actions = Actions::of(&[action]);
    let target = Target::Cluster;
    local
        .user
        .as_ref()
        .is_some_and(|u| u.privileges.allows(&target, &actions))
}

fn tell(server: &ServerState, conn: &ConnShared, said: Said<'_>) {
    let mut attr = doc! {
        "client": &*conn.peer,
        "mechanism": said.mechanism,
        "user": said.user,
        "db": said.db,
        "result": said.error.map_or(0, |e| e.code().0),
    };
    attr.append_some("error", said.error.map(|e| server.log.error(e)));
    let (id, msg) = match said.error {
        None => (5_286_306, "Successfully authenticated"),
        Some(_) => (5_286_307, "Failed to authenticate"),
    };
    server.log.log(
        Severity::Info,
        "ACCESS",
        id,
        &format!("conn{}", conn.id),
        msg,
        Some(&attr),
    );
}

/// What the log says of a try to log in.
struct Said<'a> {
    mechanism: &'a str,
    user: &'a str,
    db: &'a str,
    error: Option<&'a Error>,
}
