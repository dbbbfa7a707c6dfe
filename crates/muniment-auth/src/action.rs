//! The actions that a privilege grants, and sets of them.
//!
//! Source of the names: the manual's page "Privilege Actions" (MongoDB 8.0), and the actions that the examples
//! of other pages show.

use std::fmt;

macro_rules! actions {
    ($($variant:ident $name:literal,)*) => {
        /// One thing that somebody may be allowed to do. The variants are MongoDB's names with a capital first
        /// letter, in the order of the names' bytes.
        #[repr(u8)]
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)] // the names are MongoDB's own
        pub enum Action {
            $($variant,)*
        }

        /// Every action with its name, sorted by name; an action's place is its number.
        const TABLE: &[(Action, &str)] = &[$((Action::$variant, $name),)*];

        impl Action {
            /// MongoDB's name of the action, such as "renameCollectionSameDB".
            pub const fn name(self) -> &'static str {
                match self {
                    $(Action::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    AddShard "addShard",
    AdvanceClusterTime "advanceClusterTime",
    AnalyzeShardKey "analyzeShardKey",
    AnyAction "anyAction",
    AppendOplogNote "appendOplogNote",
    ApplicationMessage "applicationMessage",
    ApplyOps "applyOps",
    AuthSchemaUpgrade "authSchemaUpgrade",
    BypassDefaultMaxTimeMS "bypassDefaultMaxTimeMS",
    BypassDocumentValidation "bypassDocumentValidation",
    BypassWriteBlockingMode "bypassWriteBlockingMode",
    ChangeCustomData "changeCustomData",
    ChangeOwnCustomData "changeOwnCustomData",
    ChangeOwnPassword "changeOwnPassword",
    ChangePassword "changePassword",
    ChangeStream "changeStream",
    CheckFreeMonitoringStatus "checkFreeMonitoringStatus",
    CheckMetadataConsistency "checkMetadataConsistency",
    CleanupOrphaned "cleanupOrphaned",
    CleanupStructuredEncryptionData "cleanupStructuredEncryptionData",
    ClearJumboFlag "clearJumboFlag",
    CloseAllDatabases "closeAllDatabases",
    CollMod "collMod",
    CollStats "collStats",
    Compact "compact",
    CompactStructuredEncryptionData "compactStructuredEncryptionData",
    ConfigureQueryAnalyzer "configureQueryAnalyzer",
    ConnPoolStats "connPoolStats",
    ConnPoolSync "connPoolSync",
    ConvertToCapped "convertToCapped",
    CpuProfiler "cpuProfiler",
    CreateCollection "createCollection",
    CreateDatabase "createDatabase",
    CreateIndex "createIndex",
    CreateRole "createRole",
    CreateSearchIndexes "createSearchIndexes",
    CreateUser "createUser",
    DbHash "dbHash",
    DbStats "dbStats",
    DropCollection "dropCollection",
    DropConnections "dropConnections",
    DropDatabase "dropDatabase",
    DropIndex "dropIndex",
    DropRole "dropRole",
    DropSearchIndex "dropSearchIndex",
    DropUser "dropUser",
    EnableProfiler "enableProfiler",
    EnableSharding "enableSharding",
    Find "find",
    FlushRouterConfig "flushRouterConfig",
    ForceUUID "forceUUID",
    Fsync "fsync",
    GetClusterParameter "getClusterParameter",
    GetCmdLineOpts "getCmdLineOpts",
    GetDefaultRWConcern "getDefaultRWConcern",
    GetLog "getLog",
    GetParameter "getParameter",
    GetShardMap "getShardMap",
    GetShardVersion "getShardVersion",
    GrantRole "grantRole",
    HostInfo "hostInfo",
    Impersonate "impersonate",
    IndexStats "indexStats",
    Inprog "inprog",
    Insert "insert",
    Internal "internal",
    InvalidateUserCache "invalidateUserCache",
    IssueDirectShardOperations "issueDirectShardOperations",
    KillAnyCursor "killAnyCursor",
    KillAnySession "killAnySession",
    KillCursors "killCursors",
    Killop "killop",
    ListClusterCatalog "listClusterCatalog",
    ListCollections "listCollections",
    ListDatabases "listDatabases",
    ListIndexes "listIndexes",
    ListSearchIndexes "listSearchIndexes",
    ListSessions "listSessions",
    ListShards "listShards",
    LogRotate "logRotate",
    MoveChunk "moveChunk",
    MoveCollection "moveCollection",
    Netstat "netstat",
    OidReset "oidReset",
    OperationMetrics "operationMetrics",
    PerformRawDataOperations "performRawDataOperations",
    PlanCacheIndexFilter "planCacheIndexFilter",
    PlanCacheRead "planCacheRead",
    PlanCacheWrite "planCacheWrite",
    QuerySettings "querySettings",
    QueryStatsRead "queryStatsRead",
    QueryStatsReadTransformed "queryStatsReadTransformed",
    ReIndex "reIndex",
    RefineCollectionShardKey "refineCollectionShardKey",
    Remove "remove",
    RemoveShard "removeShard",
    RenameCollection "renameCollection",
    RenameCollectionSameDB "renameCollectionSameDB",
    ReplSetConfigure "replSetConfigure",
    ReplSetGetConfig "replSetGetConfig",
    ReplSetGetStatus "replSetGetStatus",
    ReplSetHeartbeat "replSetHeartbeat",
    ReplSetReconfig "replSetReconfig",
    ReplSetResizeOplog "replSetResizeOplog",
    ReplSetStateChange "replSetStateChange",
    ReshardCollection "reshardCollection",
    Resync "resync",
    RevokeRole "revokeRole",
    RotateCertificates "rotateCertificates",
    ServerStatus "serverStatus",
    SetAuthenticationRestriction "setAuthenticationRestriction",
    SetClusterParameter "setClusterParameter",
    SetDefaultRWConcern "setDefaultRWConcern",
    SetFeatureCompatibilityVersion "setFeatureCompatibilityVersion",
    SetFreeMonitoring "setFreeMonitoring",
    SetParameter "setParameter",
    SetUserWriteBlockMode "setUserWriteBlockMode",
    ShardedDataDistribution "shardedDataDistribution",
    ShardingState "shardingState",
    Shutdown "shutdown",
    SplitChunk "splitChunk",
    SplitVector "splitVector",
    StorageDetails "storageDetails",
    Top "top",
    Touch "touch",
    TransitionFromDedicatedConfigServer "transitionFromDedicatedConfigServer",
    TransitionToDedicatedConfigServer "transitionToDedicatedConfigServer",
    Unlock "unlock",
    UnshardCollection "unshardCollection",
    Update "update",
    UpdateSearchIndex "updateSearchIndex",
    UseTenant "useTenant",
    UseUUID "useUUID",
    Validate "validate",
    ViewRole "viewRole",
    ViewUser "viewUser",
}

impl Action {
    /// The action with MongoDB's name `name`, if there is one.
    pub fn from_name(name: &str) -> Option<Action> {
        let at = TABLE.binary_search_by(|(_, n)| n.cmp(&name)).ok()?;
        TABLE.get(at).map(|(action, _)| *action)
    }

    /// All actions, sorted by name.
    pub fn all() -> impl Iterator<Item = Action> {
        TABLE.iter().map(|(action, _)| *action)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of actions: one bit each.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Actions([u64; 4]);

impl Actions {
    /// No action.
    pub const EMPTY: Actions = Actions([0; 4]);

    /// Every action, `internal` and `anyAction` itself included: what `anyAction` grants.
    pub const ALL: Actions = Actions::every();

    /// The set of the given actions. `anyAction` among them stands for all.
    pub const fn of(actions: &[Action]) -> Actions {
        let mut set = Actions::EMPTY;
        let mut rest = actions;
        while let [first, others @ ..] = rest {
            set = set.with(*first);
            rest = others;
        }
        set
    }

    const fn every() -> Actions {
        let mut set = Actions::EMPTY;
        let mut rest = TABLE;
        while let [(first, _), others @ ..] = rest {
            set = set.union(Actions::bit(*first));
            rest = others;
        }
        set
    }

    const fn bit(action: Action) -> Actions {
        let n = action as u8;
        let bit = 1u64 << (n & 63);
        match n >> 6 {
            0 => Actions([bit, 0, 0, 0]),
            1 => Actions([0, bit, 0, 0]),
            2 => Actions([0, 0, bit, 0]),
            _ => Actions([0, 0, 0, bit]),
        }
    }

    /// The set with `action` added; with all actions added if it is `anyAction`.
    #[must_use]
    pub const fn with(self, action: Action) -> Actions {
        match action {
            Action::AnyAction => Actions::ALL,
            action => self.union(Actions::bit(action)),
        }
    }

    /// All actions of both sets.
    #[must_use]
    pub const fn union(self, other: Actions) -> Actions {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Actions([a | e, b | f, c | g, d | h])
    }

    /// The actions of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Actions) -> Actions {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Actions([a & !e, b & !f, c & !g, d & !h])
    }

    /// The actions that both sets have.
    #[must_use]
    pub const fn intersection(self, other: Actions) -> Actions {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        Actions([a & e, b & f, c & g, d & h])
    }

    /// True if every action of `other` is in this set.
    pub const fn contains_all(self, other: Actions) -> bool {
        other.without(self).is_empty()
    }

    /// True if the set has the action.
    pub const fn contains(self, action: Action) -> bool {
        !self.intersection(Actions::bit(action)).is_empty()
    }

    /// Adds an action, as [`Actions::with`].
    pub fn insert(&mut self, action: Action) {
        *self = self.with(action);
    }

    /// Takes an action away. `anyAction` takes away all; the set is no longer "any action" after one of its
    /// actions went.
    pub fn remove(&mut self, action: Action) {
        *self = match action {
            Action::AnyAction => Actions::EMPTY,
            action => self.without(Actions::of_two(action, Action::AnyAction)),
        };
    }

    const fn of_two(a: Action, b: Action) -> Actions {
        Actions::bit(a).union(Actions::bit(b))
    }

    /// True if there is no action in the set.
    pub const fn is_empty(self) -> bool {
        matches!(self.0, [0, 0, 0, 0])
    }

    /// The number of actions.
    pub fn len(self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The actions of the set, sorted by name. MongoDB prints a set with `anyAction` as this one action;
    /// [`Actions::names`] does so.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::all().filter(move |a| self.contains(*a))
    }

    /// The names to print, sorted: only "anyAction" for the set of all.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let any = self.contains(Action::AnyAction);
        self.iter()
            .filter(move |a| !any || *a == Action::AnyAction)
            .map(Action::name)
    }
}

impl From<Action> for Actions {
    fn from(action: Action) -> Actions {
        Actions::of(&[action])
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Actions {
        actions.into_iter().fold(Actions::EMPTY, Actions::with)
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const FEW: Actions = Actions::of(&[Action::Update, Action::Find, Action::ApplyOps]);

    #[test]
    fn table_is_sorted_and_numbered() {
        assert!(TABLE.is_sorted_by(|a, b| a.1 < b.1));
        for (i, (action, name)) in TABLE.iter().enumerate() {
            assert_eq!(*action as usize, i);
            assert_eq!(action.name(), *name);
            assert_eq!(Action::from_name(name), Some(*action));
            let variant = format!("{action:?}");
            assert!(variant.eq_ignore_ascii_case(name), "{variant}");
        }
        assert!(TABLE.len() <= 256);
        assert_eq!(Action::from_name("Find"), None);
        assert_eq!(Action::from_name(""), None);
    }

    #[test]
    fn sets() {
        assert_eq!(
            FEW.iter().collect::<Vec<_>>(),
            [Action::ApplyOps, Action::Find, Action::Update]
        );
        assert_eq!(FEW.len(), 3);
        assert!(FEW.contains(Action::Find) && !FEW.contains(Action::Insert));
        assert!(FEW.contains_all(Actions::of(&[Action::Find, Action::Update])));
        assert!(!FEW.contains_all(Actions::of(&[Action::Find, Action::Insert])));
        assert!(Actions::EMPTY.is_empty() && FEW.contains_all(Actions::EMPTY));
        let mut set = FEW;
        set.remove(Action::Find);
        set.insert(Action::Insert);
        assert_eq!(
            set.names().collect::<Vec<_>>(),
            ["applyOps", "insert", "update"]
        );
        assert_eq!(set.union(FEW).len(), 4);
    }

    #[test]
    fn any_action_is_all() {
        let mut set = Actions::from(Action::AnyAction);
        assert_eq!(set, Actions::ALL);
        assert_eq!(set.len(), TABLE.len());
        assert_eq!(set.names().collect::<Vec<_>>(), ["anyAction"]);
        set.remove(Action::Find);
        assert!(!set.contains(Action::AnyAction) && !set.contains(Action::Find));
        assert_eq!(set.len(), TABLE.len() - 2);
        set.remove(Action::AnyAction);
        assert!(set.is_empty());
    }
}
