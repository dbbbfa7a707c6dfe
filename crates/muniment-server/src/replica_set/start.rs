//! The start of a server over a data directory that may be that of a member.

use super::host_of;
use crate::state::ServerState;
use muniment_consensus::StateFile;
use muniment_member::aside;
use muniment_value::Result;
use std::sync::Arc;

/// Starts the member of a server that is one. Otherwise warns if the data directory is that of a member.
///
/// # Errors
/// 93 for a directory of another set, and for a configuration that cannot be used; what storing
/// the state raises.
pub fn start(server: &Arc<ServerState>) -> Result<()> {
    if let Some(set) = &server.replica_set {
        return muniment_member::start(set, &host_of(server));
    }
    let (disk, dir) = (&server.options.machine.disk, &server.options.dbpath);
    if StateFile::new(disk.clone(), dir).read()?.is_none() {
        return Ok(());
    }
    let told = match server.kept_for_set {
        true => {
            "The data can be read, and not written: the member has to go on from them. To write \
             without the others, start it with --replSet and force a configuration of this \
             member alone"
        }
        false => "It may write: the set has no other member",
    };
    let aside = match aside::is_there(disk, dir) {
        true => {
            ". What it was sent while it was locked is in the file replication.aside, and is shown \
             when it is a member again"
        }
        false => "",
    };
    server.log.startup_warning(
        20547,
        &format!(
            "The data directory is that of a member of a replica set, but the server was \
             started without --replSet. {told}{aside}"
        ),
    );
    Ok(())
}
