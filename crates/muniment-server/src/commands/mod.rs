//! The commands: one file each, one line each in the sorted registry.

use crate::auth;
use crate::context::CommandContext;
use crate::generic::session_key;
use crate::registry::CommandSpec;
use crate::uuid::random_uuid;
use muniment_auth::action::Action;
use muniment_exec::Hint;
use muniment_storage::SessionKey;
use muniment_value::args::Args;
use muniment_value::{Error, Result, Value};
use std::collections::HashSet;

mod accounts;
mod capped_copy;
mod clustering;
mod coll_mod_index;
mod collection_options;
pub(crate) mod cursor_reply;
pub(crate) mod explain_reply;
pub(crate) mod query_shape;
pub(crate) mod reduction;
pub(crate) mod renaming;
mod repl_set;
mod search_index;
mod time_series_index;
pub(crate) mod write_reply;

macro_rules! registry {
    ($($command:ident,)*) => {
        $(pub(crate) mod $command;)*
        /// All commands, sorted by name.
        pub(crate) const ALL: &[&CommandSpec] = &[$(&$command::COMMAND,)*];
    };
}

registry! {
    balancer_state,
    changes_up_to,
    cluster_accounts,
    cluster_commit,
    cluster_decision,
    cluster_prepare,
    cluster_resolve,
    merge_authz_collections,
    repl_set_export,
    repl_set_hand_over,
    repl_set_prove,
    repl_set_stream,
    shard_changes,
    shard_clean,
    shard_copy,
    shard_cursors,
    shard_drop_views,
    shard_give,
    shard_leave_database,
    shard_merge,
    shard_note,
    shard_out,
    shard_place,
    shard_receive,
    shard_rename,
    shard_rows,
    shard_sessions,
    shard_sizes,
    shard_split_points,
    shard_statement,
    abort_reshard_collection,
    abort_transaction,
    add_shard,
    add_shard_to_zone,
    aggregate,
    append_oplog_note,
    apply_ops,
    authenticate,
    balancer_collection_status,
    balancer_start,
    balancer_status,
    balancer_stop,
    build_info,
    bulk_write,
    check_metadata_consistency,
    cleanup_orphaned,
    cleanup_reshard_collection,
    clear_jumbo_flag,
    clone_collection_as_capped,
    coll_mod,
    coll_stats,
    commit_reshard_collection,
    commit_shard_removal,
    commit_transaction,
    commit_transition_to_dedicated_config_server,
    compact,
    configure_collection_balancing,
    configure_fail_point,
    conn_pool_stats,
    connection_status,
    convert_to_capped,
    count,
    create,
    create_indexes,
    create_role,
    create_search_indexes,
    create_user,
    current_op,
    data_size,
    db_hash,
    db_stats,
    delete,
    distinct,
    drop,
    drop_all_roles_from_database,
    drop_all_users_from_database,
    drop_database,
    drop_indexes,
    drop_role,
    drop_search_index,
    drop_user,
    enable_sharding,
    end_sessions,
    explain,
    filemd5,
    find,
    find_and_modify,
    flush_router_config,
    fsync,
    fsync_unlock,
    get_cluster_parameter,
    get_cmd_line_opts,
    get_default_rw_concern,
    get_diagnostic_data,
    get_log,
    get_more,
    get_parameter,
    get_shard_map,
    get_shard_version,
    get_transition_to_dedicated_config_server_status,
    grant_privileges_to_role,
    grant_roles_to_role,
    grant_roles_to_user,
    hello,
    host_info,
    insert,
    invalidate_user_cache,
    is_master,
    isdbgrid,
    kill_all_sessions,
    kill_all_sessions_by_pattern,
    kill_cursors,
    kill_op,
    kill_sessions,
    list_collections,
    list_commands,
    list_databases,
    list_indexes,
    list_search_indexes,
    list_shards,
    lock_info,
    log_application_message,
    log_rotate,
    logout,
    map_reduce,
    merge_all_chunks_on_shard,
    merge_chunks,
    move_chunk,
    move_collection,
    move_primary,
    move_range,
    ping,
    plan_cache_clear,
    plan_cache_clear_filters,
    plan_cache_list_filters,
    plan_cache_set_filter,
    profile,
    re_index,
    refine_collection_shard_key,
    refresh_logical_session_cache_now,
    refresh_sessions,
    remove_query_settings,
    remove_shard,
    remove_shard_from_zone,
    rename_collection,
    repl_set_abort_primary_catch_up,
    repl_set_freeze,
    repl_set_get_config,
    repl_set_get_rbid,
    repl_set_get_status,
    repl_set_heartbeat,
    repl_set_initiate,
    repl_set_maintenance,
    repl_set_reconfig,
    repl_set_resize_oplog,
    repl_set_step_down,
    repl_set_step_up,
    repl_set_sync_from,
    reshard_collection,
    revoke_privileges_from_role,
    revoke_roles_from_role,
    revoke_roles_from_user,
    roles_info,
    rotate_certificates,
    sasl_continue,
    sasl_start,
    server_status,
    set_cluster_parameter,
    set_default_rw_concern,
    set_feature_compatibility_version,
    set_index_commit_quorum,
    set_parameter,
    set_query_settings,
    shard_collection,
    shard_draining_status,
    shutdown,
    split,
    start_session,
    start_shard_draining,
    start_transition_to_dedicated_config_server,
    stop_shard_draining,
    stop_transition_to_dedicated_config_server,
    test_version2,
    top,
    transition_from_dedicated_config_server,
    transition_to_dedicated_config_server,
    unshard_collection,
    update,
    update_role,
    update_search_index,
    update_user,
    update_zone_key_range,
    users_info,
    validate,
    validate_db_metadata,
    whatsmyuri,
}

/// The sessions that a command's first element lists: `[{id: UUID}, …]`. Those of other users take the right
/// to `others`.
fn sessions_of(cx: &CommandContext<'_>, others: Action) -> Result<Vec<SessionKey>> {
    let name = cx.spec.name;
    let wrong = |field: &str, v: Value<'_>, wanted: &str| {
        Error::type_mismatch(format!(
            "BSON field '{name}.{field}' is the wrong type '{}', expected type '{wanted}'",
            v.type_name()
        ))
    };
    let Value::Array(list) = cx.typed_target(muniment_value::args::Types::ARRAY)? else {
        return Err(wrong(name, cx.target(), "array"));
    };
    list.iter()
        .filter(|e| !matches!(e.value(), Value::Null))
        .map(|e| match e.value() {
            Value::Document(d) => {
                let mut key = session_key(d)?;
                auth::own_session(cx.server, cx.local, &mut key, others)?;
                Ok(key)
            }
            v => Err(wrong(&format!("{name}.{}", e.name()), v, "object")),
        })
        .collect()
}

/// Interrupts what runs in the named sessions and in those that `of` chooses, and closes their cursors.
fn kill(cx: &CommandContext<'_>, named: &[SessionKey], of: impl Fn(&SessionKey) -> bool) {
    let known = cx.server.sessions.parts().flatten().map(|(key, _)| key);
    let all: HashSet<SessionKey> = known.filter(of).chain(named.iter().copied()).collect();
    // The session that sent the command is spared.
    let goes_on = |key: &SessionKey| cx.generic.session == Some(*key);
    for key in all.iter().filter(|key| !goes_on(key)) {
        cx.engine().operations.kill_session(key);
        cx.server.transactions.kill(cx.server, key);
    }
    cx.engine().cursors.kill_sessions(|key| all.contains(key));
}

/// The `hint`, by name or by pattern; an empty document is none.
///
/// # Errors
/// 9 FailedToParse for another type.
fn hint<'a>(args: &Args<'a>) -> Result<Option<Hint<'a>>> {
    args.get("hint").map_or(Ok(None), Hint::parse)
}
