//! LinkBench: the nodes and links of a social graph, its mix of operations and its hot spots.
//!
//! Source: Armstrong, Ponnekanti, Borthakur, Callaghan, "LinkBench: a Database Benchmark Based on
//! the Facebook Social Graph", SIGMOD 2013, and the two versions of its MongoDB store: of 2015
//! (ObjectId keys, unique indexes, no transactions) and the later "v2" (keys in `_id`).

pub(crate) mod client;
pub(crate) mod degree;
pub(crate) mod graph;
pub(crate) mod load;
pub(crate) mod payload;
pub(crate) mod shuffle;
pub(crate) mod store;
pub(crate) mod transaction;

/// The version of LinkBench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The version of the 2015 measurements.
    Y2015,
    /// The later version.
    V2,
}

/// An operation of the request phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Operation {
    AddLink,
    DeleteLink,
    UpdateLink,
    CountLink,
    GetLink,
    GetLinkList,
    AddNode,
    UpdateNode,
    DeleteNode,
    GetNode,
}

impl Operation {
    /// Its name in LinkBench's reports, and the name of those that failed.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Operation::AddLink => ("ADD_LINK", "ADD_LINK failed"),
            Operation::DeleteLink => ("DELETE_LINK", "DELETE_LINK failed"),
            Operation::UpdateLink => ("UPDATE_LINK", "UPDATE_LINK failed"),
            Operation::CountLink => ("COUNT_LINK", "COUNT_LINK failed"),
            Operation::GetLink => ("MULTIGET_LINK", "MULTIGET_LINK failed"),
            Operation::GetLinkList => ("GET_LINKS_LIST", "GET_LINKS_LIST failed"),
            Operation::AddNode => ("ADD_NODE", "ADD_NODE failed"),
            Operation::UpdateNode => ("UPDATE_NODE", "UPDATE_NODE failed"),
            Operation::DeleteNode => ("DELETE_NODE", "DELETE_NODE failed"),
            Operation::GetNode => ("GET_NODE", "GET_NODE failed"),
        }
    }

    /// Whether it changes the graph.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, CountLink | GetLink | GetLinkList | GetNode)
    }
}

use Operation::{
    AddLink, AddNode, CountLink, DeleteLink, DeleteNode, GetLink, GetLinkList, GetNode, UpdateLink,
    UpdateNode,
};

impl Profile {
    /// The version's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Y2015 => "2015",
            Profile::V2 => "v2",
        }
    }

    /// The operations and their percentages, in the order in which they are summed up.
    pub(crate) fn mix(self) -> &'static [(Operation, f64); 10] {
        match self {
            Profile::Y2015 => &[
                (AddLink, 8.988_660_1),
                (DeleteLink, 2.990_766_4),
                (UpdateLink, 8.012_212_5),
                (CountLink, 4.886_356_7),
                (GetLink, 0.526_114_2),
                (GetLinkList, 50.711_914_5),
                (AddNode, 2.573_278_9),
                (UpdateNode, 7.366_437),
                (DeleteNode, 1.011_591_4),
                (GetNode, 12.932_668_3),
            ],
            Profile::V2 => &[
                (AddLink, 5.350_38),
                (DeleteLink, 0.984_01),
                (UpdateLink, 4.755_89),
                (CountLink, 4.278_98),
                (GetLink, 12.147_25),
                (GetLinkList, 22.570_39),
                (AddNode, 2.611_98),
                (UpdateNode, 3.062_56),
                (DeleteNode, 0.251_66),
                (GetNode, 43.986_9),
            ],
        }
    }

    /// The median bytes of a link's payload and of a node's.
    pub(crate) fn medians(self) -> (f64, f64) {
        match self {
            Profile::Y2015 => (8.0, 128.0),
            Profile::V2 => (23.0, 168.0),
        }
    }
}
