//! Tests that `docs/workloads.md` documents everything that a workload file may contain.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{Plan, builtin, draw, generate, operation, sample, set};
use crate::lab::Preset;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// The rows generated from the code must stand in the page; the message shows those that are
/// missing.
#[test]
fn the_reference_names_everything_there_is() {
    let page = std::fs::read_to_string(docs("workloads.md")).unwrap();
    let example = std::fs::read_to_string(docs("examples/library.toml")).unwrap();
    assert!(page.contains(&example), "the example is another");
    let mut rows = String::new();
    for g in generate::ALL {
        let _ = writeln!(rows, "| `{}` | `{}` | {} |", g.name, g.form, g.about);
    }
    for set::Key { name, about, .. } in set::KEYS {
        let _ = writeln!(rows, "| `{name}` | {about} |");
    }
    for b in builtin::ALL {
        let _ = writeln!(rows, "| `{}` | {} |", b.name, b.about);
    }
    let missing: Vec<&str> = rows.lines().filter(|r| !page.contains(r)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/workloads.md:\n{}",
        missing.join("\n")
    );
    for name in draw::NAMES
        .iter()
        .chain(operation::KINDS.iter().map(|(n, _)| n))
    {
        assert!(
            page.contains(&format!("\n| `\"{name}\"` |")),
            "{name} has no row"
        );
    }
}

#[test]
fn the_example_is_a_workload() {
    let file = docs("examples/library.toml");
    let plan = Plan::read(&file.to_string_lossy(), Preset::Smoke).unwrap();
    assert_eq!((plan.loads().len(), plan.runs()[0].work.len()), (1, 4));
    let text = sample::of(&plan).unwrap();
    for want in [
        "\"isbn\":\"978-000001000\"",
        "\"price\":{\"$numberDecimal\":\"19.90\"}",
        "\"writeConcern\":{\"w\":\"majority\",\"j\":true}",
        "\"remove\":true",
    ] {
        assert!(text.contains(want), "{want} in\n{text}");
    }
}
