//! The commands of a program as a tree, from which completions and the manual page are made.

use crate::page::Page;

/// A command.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// The word that it is called by; of the program, its name.
    pub name: &'static str,
    /// What it does in one line, without a full stop.
    pub about: &'static str,
    /// Its page, and what it takes.
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

    /// What may stand where no option does, with what it stands for if that is known.
    pub(crate) fn words(&self) -> Vec<(&str, &str)> {
        let below = self.below.iter().map(|c| (c.name, c.about));
        below
            .chain(self.page.offers.iter().map(|w| (*w, "")))
            .collect()
    }
}
