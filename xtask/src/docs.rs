//! `cargo xtask docs`: the pages that are generated from the registries.

use crate::example;
use crate::run::{cargo, output, root, server_binary};

/// The pages below docs/, and the arguments with which the binary prints each.
const PAGES: &[(&str, &[&str])] = &[
    ("compatibility.md", &["docs", "compatibility"]),
    ("options.md", &["docs", "options"]),
    ("parameters.md", &["docs", "parameters"]),
];

/// Writes the pages or, with `--check`, fails if one is out of date.
pub fn run(args: &[String]) -> Result<(), String> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        other => return Err(format!("docs does not know {other:?}")),
    };
    crate::run::check(cargo().args(["build", "--quiet", "--package", "muniment"]))?;
    for (page, words) in PAGES {
        let fresh = output(std::process::Command::new(server_binary()).args(*words))?;
        let path = root().join("docs").join(page);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        if fresh == old {
            continue;
        }
        if check {
            return Err(format!("docs/{page} is stale: run cargo xtask docs"));
        }
        std::fs::create_dir_all(root().join("docs")).map_err(|e| e.to_string())?;
        std::fs::write(&path, fresh).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote docs/{page}");
    }
    example::page(check)
}
