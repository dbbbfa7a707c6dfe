//! MongoDB's commands that this server has not: in a transaction it says of them what MongoDB says,
//! because that comes before anything else.
//!
//! Source: `listCommands` of a mongod 8.0, without what transactions may have and without what only a
//! mongos has.

/// Their names, sorted.
const NAMES: &[&str] = &[
    "_addShard",
    "_flushDatabaseCacheUpdates",
    "_flushDatabaseCacheUpdatesWithWriteConcern",
    "_flushReshardingStateChange",
    "_flushRoutingTableCacheUpdates",
    "_flushRoutingTableCacheUpdatesWithWriteConcern",
    "_getAuditConfigGeneration",
    "_getNextSessionMods",
    "_getUserCacheGeneration",
    "_hashBSONElement",
    "_isSelf",
    "_killOperations",
    "_mergeAuthzCollections",
    "_migrateClone",
    "_recvChunkAbort",
    "_recvChunkCommit",
    "_recvChunkReleaseCritSec",
    "_recvChunkStart",
    "_recvChunkStatus",
    "_refreshQueryAnalyzerConfiguration",
    "_transferMods",
    "analyze",
    "analyzeShardKey",
    "authenticate",
    "autoCompact",
    "autoSplitVector",
    "captrunc",
    "checkShardingIndex",
    "cleanupOrphaned",
    "cleanupStructuredEncryptionData",
    "clearLog",
    "clusterCount",
    "compactStructuredEncryptionData",
    "connPoolSync",
    "cpuload",
    "createRole",
    "createUser",
    "dbCheck",
    "donorAbortMigration",
    "donorForgetMigration",
    "donorStartMigration",
    "driverOIDTest",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropConnections",
    "dropRole",
    "dropUser",
    "echo",
    "emptycapped",
    "features",
    "flushRouterConfig",
    "getAuditConfig",
    "getChangeStreamState",
    "getDatabaseVersion",
    "getShardMap",
    "getShardVersion",
    "godinsert",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "httpClientRequest",
    "internalRenameIfOptionsAndIndexesMatch",
    "invalidateUserCache",
    "listDatabasesForAllTenants",
    "logApplicationMessage",
    "logMessage",
    "makeSnapshot",
    "moveChunk",
    "oidcListKeys",
    "oidcRefreshKeys",
    "pinHistoryReplicated",
    "reapLogicalSessionCacheNow",
    "replSetRequestVotes",
    "replSetTest",
    "replSetTestEgress",
    "replSetUpdatePosition",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rolesInfo",
    "rotateCertificates",
    "rotateFTDC",
    "saslContinue",
    "saslStart",
    "setAuditConfig",
    "setChangeStreamState",
    "setCommittedSnapshot",
    "setProfilingFilterGlobally",
    "setUserWriteBlockMode",
    "shardingState",
    "sleep",
    "splitChunk",
    "splitVector",
    "startRecordingTraffic",
    "startTrafficRecording",
    "stopRecordingTraffic",
    "stopTrafficRecording",
    "testDeprecation",
    "testDeprecationInVersion2",
    "testRemoval",
    "testVersions1And2",
    "timeseriesCatalogBucketParamsChanged",
    "updateRole",
    "updateUser",
    "voteAbortIndexBuild",
    "voteCommitImportCollection",
    "voteCommitIndexBuild",
    "waitForFailPoint",
    "whatsmysni",
];

/// Commands of shards and config servers for each other, which a mongod has as well.
const INTERNAL: &[&str] = &["_configsvr", "_shardsvr"];

/// True for the name of one of them.
pub fn is_mongodbs(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok() || INTERNAL.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_names_are_sorted_and_of_no_command_of_ours() {
        assert!(NAMES.is_sorted_by(|a, b| a < b));
        for name in NAMES {
            assert!(crate::registry::find(name).is_none(), "{name}");
        }
        assert!(is_mongodbs("_configsvrAddShard") && is_mongodbs("createUser"));
        assert!(!is_mongodbs("enableSharding") && !is_mongodbs("nope"));
    }
}
