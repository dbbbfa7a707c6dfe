//! The rows of a table.

/// What an option takes.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Nothing: it is given or it is not.
    Nothing,
    /// Nothing: it asks for the page instead of the command's work. Arguments after it are not judged,
    /// so that an error does not hide the page that would explain it.
    Page,
    /// A text.
    Text,
    /// A file or a directory, whose name need not be UTF-8.
    Path,
    /// A text that this function allows. Its error says what would be right.
    Checked(fn(&str) -> Result<(), String>),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number from the first to the second, of this unit.
    Real(f64, f64, &'static str),
    /// Nothing, or a word for which this is true. As a letter it may be repeated, and the letters
    /// together are the value: `-vvv` gives `vvv`, and so does `--verbose vvv`.
    Repeats(fn(&str) -> bool),
}

/// What a shell offers for the value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offers {
    /// Nothing, because the value could be anything.
    Nothing,
    /// Files and directories.
    Files,
    /// These words.
    Words(&'static [&'static str]),
}

/// One option: a row of a table.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its name without hyphens. A name of one letter has one hyphen. Any other name has two, of which
    /// one may be left out, as `mongod` allows. Empty for a row that has no form on the command line.
    pub name: &'static str,
    /// A letter that stands for it, with one hyphen.
    pub letter: Option<char>,
    /// The kind of value that it takes.
    pub takes: Takes,
    /// The name of the value on the page; empty if there is none.
    pub value: &'static str,
    /// What it does, without a full stop.
    pub about: &'static str,
    /// Pages show a name of several letters with one hyphen, as the tool that it imitates does.
    pub one_hyphen: bool,
    /// It may be given several times even where others may not.
    pub several: bool,
    /// Words directly after its value for which this is true are values of it too.
    pub more: Option<fn(&str) -> bool>,
    /// What shells offer for its value.
    pub offers: Offers,
}

/// Asks for the page of the command.
pub const HELP: Opt = Opt::new("help", "", Takes::Page, "this text").letter('h');

impl Opt {
    /// A row.
    pub const fn new(
        name: &'static str,
        value: &'static str,
        takes: Takes,
        about: &'static str,
    ) -> Opt {
        Opt {
            name,
            letter: None,
            takes,
            value,
            about,
            one_hyphen: false,
            several: false,
            more: None,
            offers: match takes {
                Takes::Path => Offers::Files,
                Takes::OneOf(words) => Offers::Words(words),
                _ => Offers::Nothing,
            },
        }
    }

    /// An option that takes nothing.
    pub const fn flag(name: &'static str, about: &'static str) -> Opt {
        Opt::new(name, "", Takes::Nothing, about)
    }

    /// An option that takes a text.
    pub const fn text(name: &'static str, value: &'static str, about: &'static str) -> Opt {
        Opt::new(name, value, Takes::Text, about)
    }

    /// An option that takes a file or a directory.
    pub const fn path(name: &'static str, value: &'static str, about: &'static str) -> Opt {
        Opt::new(name, value, Takes::Path, about)
    }

    /// The same with a letter that stands for it.
    pub const fn letter(self, letter: char) -> Opt {
        Opt {
            letter: Some(letter),
            ..self
        }
    }

    /// The same, shown with one hyphen.
    pub const fn one_hyphen(self) -> Opt {
        Opt {
            one_hyphen: true,
            ..self
        }
    }

    /// The same; it may be given several times where others may not.
    pub const fn several(self) -> Opt {
        Opt {
            several: true,
            ..self
        }
    }

    /// The same; words after its value for which `is_more` is true are values of it too.
    pub const fn more(self, is_more: fn(&str) -> bool) -> Opt {
        Opt {
            more: Some(is_more),
            ..self
        }
    }

    /// The same; shells offer this for its value.
    pub const fn offers(self, offers: Offers) -> Opt {
        Opt { offers, ..self }
    }

    /// Its name with its hyphens.
    pub fn shown(&self) -> String {
        match self.one_hyphen || self.name.chars().count() == 1 {
            true => format!("-{}", self.name),
            false => format!("--{}", self.name),
        }
    }

    /// Whether `c` with one hyphen is this option.
    pub(crate) fn is_letter(&self, c: char) -> bool {
        let mut name = self.name.chars();
        self.letter == Some(c) || (name.next() == Some(c) && name.next().is_none())
    }

    /// Refuses a value that the option does not take.
    ///
    /// # Errors
    /// The text of the error says what would be right.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match self.takes {
            Takes::Nothing | Takes::Page | Takes::Text | Takes::Path | Takes::Repeats(_) => Ok(()),
            Takes::Checked(check) => check(value),
            Takes::OneOf(words) if words.contains(&value) => Ok(()),
            Takes::OneOf([one]) => Err(format!("there is {one}")),
            Takes::OneOf(words) => {
                let last = words.last().copied().unwrap_or_default();
                let others = words
                    .get(..words.len().saturating_sub(1))
                    .unwrap_or_default();
                Err(format!("there are {} and {last}", others.join(", ")))
            }
            Takes::Whole(least, most) => {
                let n = value.parse().ok().filter(|n| (least..=most).contains(n));
                n.map(|_: u64| ())
                    .ok_or_else(|| format!("it must be a whole number from {least} to {most}"))
            }
            Takes::Real(least, most, unit) => {
                let n = value.parse().ok().filter(|n| (least..=most).contains(n));
                n.map(|_: f64| ())
                    .ok_or_else(|| format!("it must be {least} to {most} {unit}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_are_refused_with_what_would_be_right() {
        let refused = |takes: Takes, v: &str| Opt::new("o", "V", takes, "").check(v).unwrap_err();
        assert_eq!(refused(Takes::OneOf(&["a"]), "x"), "there is a");
        assert_eq!(
            refused(Takes::OneOf(&["a", "b", "c"]), "x"),
            "there are a, b and c"
        );
        for bad in ["0", "8", "-1", "3.5", "x", ""] {
            assert_eq!(
                refused(Takes::Whole(1, 7), bad),
                "it must be a whole number from 1 to 7"
            );
        }
        for bad in ["0", "nan", "inf", "3601"] {
            assert_eq!(
                refused(Takes::Real(0.01, 3600.0, "seconds"), bad),
                "it must be 0.01 to 3600 seconds"
            );
        }
        let checked = Takes::Checked(|v| match v {
            "yes" => Ok(()),
            _ => Err("it must be yes".to_string()),
        });
        assert_eq!(refused(checked, "no"), "it must be yes");
        for (takes, good) in [
            (checked, "yes"),
            (Takes::Whole(0, u64::MAX), "18446744073709551615"),
            (Takes::Real(0.0, 1.0, ""), "1e-3"),
            (Takes::OneOf(&["a", "b"]), "b"),
        ] {
            assert_eq!(Opt::new("o", "V", takes, "").check(good), Ok(()));
        }
    }

    #[test]
    fn names_have_their_hyphens() {
        assert_eq!(Opt::flag("s", "").shown(), "-s");
        assert_eq!(Opt::flag("tui", "").shown(), "--tui");
        assert_eq!(Opt::flag("load", "").one_hyphen().shown(), "-load");
    }
}
