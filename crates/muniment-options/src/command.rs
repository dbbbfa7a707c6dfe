//! The commands of a program as a tree, from which completions and the manual page are made.

use crate::page::Page;

/// A command.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The word that calls it. The program's is its own name.
    pub name: &'static str,
    /// What it does in one line, without a full stop.
    pub about: &'static str,
    /// What `--help` prints, and which options and words it takes.
    pub page: Page,
    /// The commands that may follow its name.
    pub below: Vec<Command>,
}

impl Command {
    /// The program and every command below it, each after the one that it belongs to, with the words
    /// that it is called by: `muniment bench run`.
    pub fn all(&self) -> Vec<(String, &Command)> {
        let mut all = vec![(self.name.to_string(), self)];
        for (words, command) in self.below.iter().flat_map(Command::all) {
            all.push((format!("{} {words}", self.name), command));
        }
        all
    }

    /// The words that may stand where no option does, each with what it does; words of the page have no
    /// description.
    pub(crate) fn words(&self) -> Vec<(&str, &str)> {
        let below = self.below.iter().map(|c| (c.name, c.about));
        below
            .chain(self.page.offers.iter().map(|w| (*w, "")))
            .collect()
    }
}
