//! A look at the engine's directory before fjall does, which deletes what it takes for
//! unfinished.

use crate::engine::corrupt;
use muniment_value::Result;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Refuses a directory that fjall would mistake for a new one, and clears away one whose making a
/// crash interrupted.
///
/// # Errors
/// 301 DataCorruptionDetected naming the file that is missing.
pub(crate) fn prepare(engine: &Path) -> Result<()> {
    if !engine.join("version").exists() && engine.exists() {
        if !never_used(engine) {
            return Err(corrupt(
                &engine.join("version"),
                "the engine's version file is missing, but there is data",
            ));
        }
        std::fs::remove_dir_all(engine)?;
    }
    let headless = subdirectories(&engine.join("keyspaces"))
        .into_iter()
        .find(|k| has_tables(k) && !k.join("current").exists());
    match headless {
        Some(keyspace) => Err(corrupt(
            &keyspace.join("current"),
            "the file is missing, but there are tables in tables/",
        )),
        None => Ok(()),
    }
}

fn has_tables(keyspace: &Path) -> bool {
    std::fs::read_dir(keyspace.join("tables")).is_ok_and(|mut t| t.next().is_some())
}

/// True if nothing was ever written below `engine`.
fn never_used(engine: &Path) -> bool {
    let tables = subdirectories(&engine.join("keyspaces"))
        .iter()
        .any(|k| has_tables(k));
    let journaled = crate::journal::numbers(engine).is_ok_and(|all| {
        all.iter().any(|n| {
            let mut first = [0];
            File::open(engine.join(format!("{n}.jnl")))
                .and_then(|mut f| f.read_exact(&mut first))
                .is_ok_and(|()| first != [0])
        })
    });
    !tables && !journaled
}

/// The subdirectories of `dir`; none if it is not there.
fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.is_dir())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::engine::{Engine, Space};
    use std::sync::Arc;

    fn fill(dir: &Path) {
        let engine = Arc::new(Engine::open(dir, 1 << 20).unwrap());
        let mut batch = engine.batch(1);
        batch.put(Space::Docs, vec![0, 0, 0, 1, 1], vec![1]);
        batch.commit().unwrap();
        engine.flush_for_tests();
    }

    #[test]
    fn what_fjall_would_delete_is_kept() {
        for lost in ["version", "keyspaces/1/current"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("engine");
            fill(&path);
            let aside = dir.path().join("aside");
            std::fs::rename(path.join(lost), &aside).unwrap();
            let e = Engine::open(&path, 1 << 20).map(|_| ()).unwrap_err();
            assert_eq!(e.code(), muniment_value::Code::DataCorruptionDetected);
            assert!(e.message().contains(lost), "{e}");
            std::fs::rename(&aside, path.join(lost)).unwrap();
            let engine = Engine::open(&path, 1 << 20).unwrap();
            assert!(
                engine
                    .newest(Space::Docs, &[0, 0, 0, 1, 1])
                    .unwrap()
                    .is_some()
            );
        }
    }

    #[test]
    fn an_interrupted_creation_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("engine");
        std::fs::create_dir_all(path.join("keyspaces")).unwrap();
        std::fs::write(path.join("0.jnl"), [0; 100]).unwrap();
        std::fs::write(path.join("lock"), []).unwrap();
        fill(&path);
    }
}
