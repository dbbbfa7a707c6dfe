//! The page of a command. The same table says what `--help` prints and what the command takes, so the
//! two cannot disagree.

use crate::table::Opt;
use std::fmt::Write;

/// Letters of the column in which options stand: at least, and at most.
const COLUMN: (usize, usize) = (16, 20);
/// Letters of a line that says what an option does.
const LINE: usize = 70;

/// Options that stand together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The title above the options; empty for none.
    pub title: &'static str,
    /// The options.
    pub options: &'static [Opt],
    /// A paragraph below the options; empty for none.
    pub note: &'static str,
}

impl Group {
    /// Options below a line with this title.
    pub const fn new(title: &'static str, options: &'static [Opt]) -> Group {
        let note = "";
        Group {
            title,
            options,
            note,
        }
    }

    /// Options that need no title.
    pub const fn untitled(options: &'static [Opt]) -> Group {
        Group::new("", options)
    }

    /// The same with a paragraph below.
    pub const fn note(self, note: &'static str) -> Group {
        Group { note, ..self }
    }
}

/// A command's page, and what the command takes.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The text above the options, with its last line break.
    pub head: String,
    /// The options.
    pub groups: Vec<Group>,
    /// The text below the options.
    pub foot: String,
    /// The command takes words that are no options.
    pub words: bool,
    /// Words that shells offer in place of such a word.
    pub offers: Vec<&'static str>,
    /// Shells offer the names of files in place of such a word.
    pub files: bool,
    /// An option that is given twice is an error; otherwise the last one counts.
    pub once: bool,
}

impl Page {
    /// Every option there is.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> + use<'_> {
        let all = self.groups.iter().flat_map(|g| g.options);
        all.filter(|o| !o.name.is_empty())
    }

    /// The page as it is printed.
    pub fn text(&self) -> String {
        let names = self.options().map(|o| left(o).chars().count());
        let fits = names.filter(|n| *n <= COLUMN.1).max();
        let column = fits.unwrap_or(0).max(COLUMN.0);
        let mut out = self.head.clone();
        for (n, group) in self.groups.iter().enumerate() {
            if n > 0 && !(group.title.is_empty() && group.note.is_empty()) {
                out.push('\n');
            }
            if !group.title.is_empty() {
                let _ = writeln!(out, "{}:", group.title);
            }
            for o in group.options {
                line(&mut out, o, column, LINE);
            }
            out.push_str(group.note);
        }
        out.push_str(&self.foot);
        out
    }
}

/// The option with its letter, and the name of its value.
fn left(o: &Opt) -> String {
    let name = match o.letter {
        Some(c) => format!("-{c}, {}", o.shown()),
        None => o.shown(),
    };
    format!("{name} {}", o.value).trim_end().to_string()
}

/// Appends an option in a column of `column` letters, and its description in lines of `width` letters.
fn line(out: &mut String, o: &Opt, column: usize, width: usize) {
    let mut left = left(o);
    for text in fold(o.about, width) {
        let _ = writeln!(out, "  {left:<column$} {text}");
        left.clear();
    }
}

impl Opt {
    /// The option and its description in one line, however long.
    pub fn line(&self, column: usize) -> String {
        let mut out = String::new();
        line(
            &mut out,
            &Opt {
                letter: None,
                ..*self
            },
            column,
            usize::MAX,
        );
        out
    }
}

/// Breaks a text into lines of at most `width` letters, between words if that is possible.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    if text.chars().count() <= width {
        return vec![text.to_string()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width) {
            let part: String = part.iter().collect();
            match lines.last_mut() {
                Some(l) if l.chars().count() + 1 + part.chars().count() <= width => {
                    l.push(' ');
                    l.push_str(&part);
                }
                _ => lines.push(part),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{HELP, Takes};

    #[test]
    fn a_page_shows_every_option_in_its_group() {
        const LONG: &str = "one two three four five six seven eight nine ten eleven twelve thirteen \
                            fourteen fifteen";
        const FIRST: &[Opt] = &[
            Opt::path("out", "DIR", "where"),
            Opt::new(
                "journalCommitInterval",
                "MS",
                Takes::Whole(1, 500),
                "theirs",
            ),
        ];
        const SECOND: &[Opt] = &[Opt::text("p", "NAME=VALUE", LONG), HELP];
        let page = Page {
            head: "Does it.\n\nOptions:\n".into(),
            groups: vec![
                Group::untitled(FIRST),
                Group::new("Others", SECOND).note("A note.\n"),
            ],
            foot: "\nThe end.\n".into(),
            ..Page::default()
        };
        let wanted = "\
Does it.

Options:
  --out DIR        where
  --journalCommitInterval MS theirs

Others:
  -p NAME=VALUE    one two three four five six seven eight nine ten eleven twelve
                   thirteen fourteen fifteen
  -h, --help       this text
A note.

The end.
";
        assert_eq!(page.text(), wanted);
        let names: Vec<&str> = page.options().map(|o| o.name).collect();
        assert_eq!(names, ["out", "journalCommitInterval", "p", "help"]);
        let one = Opt::text("dbpath", "arg", "where").line(12);
        assert_eq!(one, "  --dbpath arg where\n");
    }

    #[test]
    fn lines_break_between_words_where_that_can_be() {
        assert_eq!(fold("a b", 3), ["a b"]);
        assert_eq!(fold("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(fold("abcdef g", 4), ["abcd", "ef g"]);
        assert_eq!(fold("", 4), [""]);
    }
}
