//! The table of the built-in roles, sorted by name, and the sets of actions that several of them share.

use super::{ADMIN, On, Role};
use crate::action::Action::*;
use crate::action::Actions;

/// Reading, without changing.
const READ: Actions = Actions::of(&[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
]);

/// What readWrite adds to reading.
const WRITE: Actions = Actions::of(&[
    CleanupStructuredEncryptionData,
    CompactStructuredEncryptionData,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    DropIndex,
    DropSearchIndex,
    Insert,
    PlanCacheRead,
    Remove,
    RenameCollectionSameDB,
    Update,
    UpdateSearchIndex,
]);

/// Administration of a database's collections, without their documents.
const DB_ADMIN: Actions = Actions::of(&[
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DbStats,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropSearchIndex,
    EnableProfiler,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDB,
    UpdateSearchIndex,
    Validate,
]);

/// What an administrator may do with the profiler's collection.
const PROFILE: Actions = Actions::of(&[
    ChangeStream,
    CollStats,
    ConvertToCapped,
    CreateCollection,
    DbHash,
    DbStats,
    DropCollection,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

/// Administration of users and roles.
const USER_ADMIN: Actions = Actions::of(&[
    ChangeCustomData,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewRole,
    ViewUser,
]);

/// Distributing collections over shards.
const SHARD_KEYS: Actions = Actions::of(&[
    AnalyzeShardKey,
    EnableSharding,
    MoveCollection,
    RefineCollectionShardKey,
    ReshardCollection,
    UnshardCollection,
]);

/// Looking at the collections by which the cluster works.
const LOOK: Actions = Actions::of(&[
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
]);

/// Writing what a backup holds.
const RESTORE: Actions = Actions::of(&[
    BypassDocumentValidation,
    CollMod,
    CreateCollection,
    CreateIndex,
    DropCollection,
    Insert,
    UpdateSearchIndex,
]);

/// Writing the users that a backup holds.
const USERS_OF_RESTORE: Actions = Actions::of(&[
    BypassDocumentValidation,
    CollMod,
    CreateCollection,
    CreateIndex,
    DropCollection,
    Find,
    Insert,
    Remove,
    Update,
    UpdateSearchIndex,
]);

/// Looking after the collections of users and roles, whose documents the commands for users change.
const USERS_OF_ADMIN: Actions = Actions::of(&[
    CollStats,
    CreateIndex,
    CreateSearchIndexes,
    DbHash,
    DbStats,
    DropIndex,
    DropSearchIndex,
    Find,
    KillCursors,
    PlanCacheRead,
]);

/// All roles.
pub(super) const ROLES: &[Role] = &[
    SYSTEM_ROLE,
    BACKUP_ROLE,
    CLUSTER_ADMIN_ROLE,
    CLUSTER_MANAGER_ROLE,
    CLUSTER_MONITOR_ROLE,
    DB_ADMIN_ROLE,
    DB_ADMIN_ANY_DATABASE_ROLE,
    DB_OWNER_ROLE,
    DIRECT_SHARD_OPERATIONS_ROLE,
    ENABLE_SHARDING_ROLE,
    HOST_MANAGER_ROLE,
    READ_ROLE,
    READ_ANY_DATABASE_ROLE,
    READ_WRITE_ROLE,
    READ_WRITE_ANY_DATABASE_ROLE,
    RESTORE_ROLE,
    ROOT_ROLE,
    SEARCH_COORDINATOR_ROLE,
    USER_ADMIN_ROLE,
    USER_ADMIN_ANY_DATABASE_ROLE,
];

const SYSTEM_ROLE: Role = Role {
    name: "__system",
    everywhere: false,
    purpose: "Members of a replica set or cluster among themselves: any action on anything.",
    includes: &[],
    grants: &[(On::Any, Actions::ALL)],
};

const BACKUP_ROLE: Role = Role {
    name: "backup",
    everywhere: false,
    purpose: "Backing up all data, users and roles included.",
    includes: &[],
    grants: &[
        (
            On::Any,
            Actions::of(&[
                ListCollections,
                ListDatabases,
                ListIndexes,
                ListSearchIndexes,
            ]),
        ),
        (
            On::Cluster,
            Actions::of(&[
                AppendOplogNote,
                GetParameter,
                ListDatabases,
                ServerStatus,
                SetUserWriteBlockMode,
            ]),
        ),
        (On::Databases, Actions::of(&[Find])),
        (On::Database("config"), Actions::of(&[Find])),
        (On::Database("local"), Actions::of(&[Find])),
        (On::Collection("system.js"), Actions::of(&[Find])),
        (On::Collection("system.profile"), Actions::of(&[Find])),
        (On::Collection("system.users"), Actions::of(&[Find])),
        (On::Namespace(ADMIN, "system.users"), Actions::of(&[Find])),
        (On::Namespace(ADMIN, "system.roles"), Actions::of(&[Find])),
        (On::Namespace(ADMIN, "system.version"), Actions::of(&[Find])),
        (
            On::Namespace("config", "settings"),
            Actions::of(&[Find, Insert, Update]),
        ),
        (On::Buckets, Actions::of(&[Find])),
    ],
};

const CLUSTER_ADMIN_ROLE: Role = Role {
    name: "clusterAdmin",
    everywhere: false,
    purpose: "All of managing a cluster: its configuration, its servers, and watching them.",
    includes: &["clusterManager", "clusterMonitor", "hostManager"],
    grants: &[(On::Databases, Actions::of(&[DropDatabase]))],
};

const CLUSTER_MANAGER_ROLE: Role = Role {
    name: "clusterManager",
    everywhere: false,
    purpose: "Managing replica sets and shards.",
    includes: &[],
    grants: &[
        (
            On::Cluster,
            Actions::of(&[
                AddShard,
                AppendOplogNote,
                ApplicationMessage,
                CheckMetadataConsistency,
                CleanupOrphaned,
                FlushRouterConfig,
                GetClusterParameter,
                GetDefaultRWConcern,
                ListSessions,
                ListShards,
                MoveCollection,
                RemoveShard,
                ReplSetConfigure,
                ReplSetGetConfig,
                ReplSetGetStatus,
                ReplSetResizeOplog,
                ReplSetStateChange,
                Resync,
                SetClusterParameter,
                SetDefaultRWConcern,
                SetFeatureCompatibilityVersion,
                TransitionFromDedicatedConfigServer,
                TransitionToDedicatedConfigServer,
                UnshardCollection,
            ]),
        ),
        (
            On::Databases,
            Actions::of(&[
                AnalyzeShardKey,
                ClearJumboFlag,
                ConfigureQueryAnalyzer,
                EnableSharding,
                MoveChunk,
                RefineCollectionShardKey,
                ReshardCollection,
                SplitChunk,
            ]),
        ),
        (
            On::Database("config"),
            LOOK.union(Actions::of(&[
                EnableSharding,
                Insert,
                MoveChunk,
                Remove,
                Update,
            ])),
        ),
        (On::Namespace("config", "system.js"), LOOK),
        (
            On::Database("local"),
            Actions::of(&[EnableSharding, Insert, MoveChunk, Remove, Update]),
        ),
        (On::Namespace("local", "system.replset"), LOOK),
    ],
};

const CLUSTER_MONITOR_ROLE: Role = Role {
    name: "clusterMonitor",
    everywhere: false,
    purpose: "Watching a server, a replica set or a cluster, without changing anything.",
    includes: &[],
    grants: &[
        (
            On::Cluster,
            Actions::of(&[
                ConnPoolStats,
                GetCmdLineOpts,
                GetDefaultRWConcern,
                GetLog,
                GetParameter,
                GetShardMap,
                HostInfo,
                Inprog,
                ListClusterCatalog,
                ListDatabases,
                ListSessions,
                ListShards,
                QueryStatsRead,
                QueryStatsReadTransformed,
                ReplSetGetConfig,
                ReplSetGetStatus,
                ServerStatus,
                ShardingState,
                Top,
                UseUUID,
            ]),
        ),
        (
            On::Databases,
            Actions::of(&[CollStats, DbStats, GetShardVersion, IndexStats, UseUUID]),
        ),
        (On::Collection("system.profile"), Actions::of(&[Find])),
        (
            On::Database("config"),
            LOOK.union(Actions::of(&[IndexStats])),
        ),
        (On::Namespace("config", "system.js"), LOOK),
        (
            On::Database("local"),
            LOOK.union(Actions::of(&[IndexStats])),
        ),
        (On::Namespace("local", "system.js"), LOOK),
        (
            On::Namespace("local", "system.replset"),
            Actions::of(&[Find]),
        ),
    ],
};

const DB_ADMIN_ROLE: Role = Role {
    name: "dbAdmin",
    everywhere: true,
    purpose: "Administering a database's collections, indexes and profiler, without reading its documents.",
    includes: &[],
    grants: &[
        (On::Own, DB_ADMIN),
        (On::OwnCollection("system.profile"), PROFILE),
    ],
};

const DB_ADMIN_ANY_DATABASE_ROLE: Role = Role {
    name: "dbAdminAnyDatabase",
    everywhere: false,
    purpose: "The rights of dbAdmin in all databases but local and config.",
    includes: &[],
    grants: &[
        (On::Databases, DB_ADMIN),
        (On::Collection("system.profile"), PROFILE),
        (On::Cluster, Actions::of(&[ApplyOps, ListDatabases])),
    ],
};

const DB_OWNER_ROLE: Role = Role {
    name: "dbOwner",
    everywhere: true,
    purpose: "Everything in one database: its documents, its collections, its users.",
    includes: &["readWrite", "dbAdmin", "userAdmin"],
    grants: &[],
};

const DIRECT_SHARD_OPERATIONS_ROLE: Role = Role {
    name: "directShardOperations",
    everywhere: false,
    purpose: "Maintenance over a connection straight to a shard.",
    includes: &[],
    grants: &[(On::Cluster, Actions::of(&[IssueDirectShardOperations]))],
};

const ENABLE_SHARDING_ROLE: Role = Role {
    name: "enableSharding",
    everywhere: true,
    purpose: "Sharding collections and changing their shard keys.",
    includes: &[],
    grants: &[(On::OwnOrAll, SHARD_KEYS)],
};

const HOST_MANAGER_ROLE: Role = Role {
    name: "hostManager",
    everywhere: false,
    purpose: "Managing single servers: logs, sessions, operations, parameters, shutting down.",
    includes: &[],
    grants: &[
        (
            On::Cluster,
            Actions::of(&[
                ApplicationMessage,
                CloseAllDatabases,
                Compact,
                ConnPoolSync,
                FlushRouterConfig,
                Fsync,
                InvalidateUserCache,
                KillAnyCursor,
                KillAnySession,
                Killop,
                LogRotate,
                OidReset,
                Resync,
                RotateCertificates,
                SetParameter,
                Shutdown,
                Touch,
                Unlock,
            ]),
        ),
        (On::Databases, Actions::of(&[KillCursors])),
    ],
};

const READ_ROLE: Role = Role {
    name: "read",
    everywhere: true,
    purpose: "Reading a database's documents.",
    includes: &[],
    grants: &[(On::Own, READ), (On::OwnCollection("system.js"), READ)],
};

const READ_ANY_DATABASE_ROLE: Role = Role {
    name: "readAnyDatabase",
    everywhere: false,
    purpose: "The rights of read in all databases but local and config.",
    includes: &[],
    grants: &[
        (On::Databases, READ),
        (On::Collection("system.js"), READ),
        (On::Cluster, Actions::of(&[ListDatabases])),
    ],
};

const READ_WRITE_ROLE: Role = Role {
    name: "readWrite",
    everywhere: true,
    purpose: "Reading and changing a database's documents, collections and indexes.",
    includes: &["read"],
    grants: &[(On::Own, WRITE), (On::OwnCollection("system.js"), WRITE)],
};

const READ_WRITE_ANY_DATABASE_ROLE: Role = Role {
    name: "readWriteAnyDatabase",
    everywhere: false,
    purpose: "The rights of readWrite in all databases but local and config.",
    includes: &["readAnyDatabase"],
    grants: &[(On::Databases, WRITE), (On::Collection("system.js"), WRITE)],
};

const RESTORE_ROLE: Role = Role {
    name: "restore",
    everywhere: false,
    purpose: "Restoring all data of a backup, users and roles included.",
    includes: &[],
    grants: &[
        (On::Any, Actions::of(&[ListCollections])),
        (
            On::Cluster,
            Actions::of(&[BypassWriteBlockingMode, GetParameter, SetUserWriteBlockMode]),
        ),
        (
            On::Databases,
            RESTORE
                .union(USER_ADMIN)
                .union(Actions::of(&[ConvertToCapped, CreateSearchIndexes])),
        ),
        (On::Database("config"), RESTORE),
        (On::Database("local"), RESTORE),
        (On::Collection("system.js"), RESTORE),
        (On::Buckets, RESTORE),
        (
            On::Collection("system.views"),
            Actions::of(&[DropCollection]),
        ),
        (
            On::Namespace(ADMIN, "system.version"),
            RESTORE.union(Actions::of(&[Find])),
        ),
        (
            On::Namespace(ADMIN, "system.roles"),
            Actions::of(&[CreateIndex]),
        ),
        (On::Namespace(ADMIN, "system.users"), USERS_OF_RESTORE),
        (On::Collection("system.users"), USERS_OF_RESTORE),
    ],
};

const ROOT_ROLE: Role = Role {
    name: "root",
    everywhere: false,
    purpose: "Everything that a person needs: all data, users, servers and the cluster.",
    includes: &[
        "readWriteAnyDatabase",
        "dbAdminAnyDatabase",
        "userAdminAnyDatabase",
        "clusterAdmin",
        "restore",
        "backup",
    ],
    grants: &[
        (On::Any, Actions::of(&[Validate])),
        (On::Cluster, Actions::of(&[QuerySettings])),
        (
            On::Namespace("config", "system.preimages"),
            Actions::of(&[Find, Remove]),
        ),
    ],
};

const SEARCH_COORDINATOR_ROLE: Role = Role {
    name: "searchCoordinator",
    everywhere: false,
    purpose: "The search process: it reads all databases and writes its own.",
    includes: &["readAnyDatabase"],
    grants: &[(
        On::Database("__mdb_internal_search"),
        Actions::of(&[Insert, Remove, Update]),
    )],
};

const USER_ADMIN_ROLE: Role = Role {
    name: "userAdmin",
    everywhere: true,
    purpose: "Administering a database's users and roles, and so, by granting itself more, the whole database.",
    includes: &[],
    grants: &[(On::Own, USER_ADMIN)],
};

const USER_ADMIN_ANY_DATABASE_ROLE: Role = Role {
    name: "userAdminAnyDatabase",
    everywhere: false,
    purpose: "Administering the users and roles of all databases, and so, by granting itself more, everything.",
    includes: &[],
    grants: &[
        (On::Databases, USER_ADMIN),
        (
            On::Cluster,
            Actions::of(&[AuthSchemaUpgrade, InvalidateUserCache, ListDatabases]),
        ),
        (On::Namespace(ADMIN, "system.users"), USERS_OF_ADMIN),
        (On::Namespace(ADMIN, "system.roles"), USERS_OF_ADMIN),
        (On::Collection("system.users"), USERS_OF_ADMIN),
    ],
};
