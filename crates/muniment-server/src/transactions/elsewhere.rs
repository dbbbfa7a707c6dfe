//! The commands of MongoDB that this server does not have. In a transaction MongoDB refuses them before it
//! looks at anything else, and a client gets the same answer here.
//!
//! Source: `listCommands` of a mongod 8.0, without the commands that may run in transactions and those that
//! only a mongos has.

/// The names of these commands, sorted.
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
    "autoCompact",
    "autoSplitVector",
    "captrunc",
    "checkShardingIndex",
    "cleanupStructuredEncryptionData",
    "clearLog",
    "clusterCount",
    "compactStructuredEncryptionData",
    "connPoolSync",
    "cpuload",
    "dbCheck",
    "donorAbortMigration",
    "donorForgetMigration",
    "donorStartMigration",
    "driverOIDTest",
    "dropConnections",
    "echo",
    "emptycapped",
    "features",
    "flushRouterConfig",
    "getAuditConfig",
    "getChangeStreamState",
    "getDatabaseVersion",
    "getShardMap",
    "godinsert",
    "httpClientRequest",
    "internalRenameIfOptionsAndIndexesMatch",
    "listDatabasesForAllTenants",
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
    "rotateFTDC",
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
    "voteAbortIndexBuild",
    "voteCommitImportCollection",
    "voteCommitIndexBuild",
    "waitForFailPoint",
    "whatsmysni",
];

/// Prefixes of commands that shards and config servers send to each other, which a mongod has as well.
const INTERNAL: &[&str] = &["_configsvr", "_shardsvr"];

/// True for the name of such a command.
pub fn is_mongodbs(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok() || INTERNAL.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_names_are_sorted_and_of_no_command_of_ours_but_a_routers() {
        assert!(NAMES.is_sorted_by(|a, b| a < b));
        for name in NAMES {
            let known = crate::registry::find(name);
            assert!(known.is_none_or(|spec| spec.of_router), "{name}");
        }
        assert!(is_mongodbs("_configsvrAddShard") && is_mongodbs("analyze"));
        assert!(!is_mongodbs("enableSharding") && !is_mongodbs("nope"));
    }
}
