//! Reading a command line by a table.

use crate::near::near;
use crate::page::Page;
use crate::table::{Opt, Takes};
use lexopt::{Arg, Parser};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

/// What is wrong with a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// There is no such option, but perhaps one that is near; both with their hyphens.
    Unknown(String, Option<String>),
    /// It was given before, and may be given once.
    Twice(String),
    /// It needs a value.
    NoValue(String),
    /// It takes no value, and one was given.
    Value(String),
    /// It does not take this value: option, value, what would be right.
    Refused(String, String, String),
    /// A text that is not UTF-8.
    NotUtf8(String),
    /// A word that is no option, for a command that takes no words.
    Word(String),
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::Unknown(name, None) => write!(f, "there is no option '{name}'"),
            Misuse::Unknown(name, Some(near)) => {
                write!(f, "there is no option '{name}': is '{near}' meant?")
            }
            Misuse::Twice(name) => write!(f, "option '{name}' is given twice"),
            Misuse::NoValue(name) => write!(f, "option '{name}' needs a value"),
            Misuse::Value(name) => write!(f, "option '{name}' takes no value"),
            Misuse::Refused(name, value, why) => write!(f, "{name} {value}: {why}"),
            Misuse::NotUtf8(text) => write!(f, "{text} is not UTF-8"),
            Misuse::Word(word) => write!(f, "unexpected argument '{word}'"),
        }
    }
}

impl std::error::Error for Misuse {}

/// The options and words of a command line, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The names that may be asked for. Empty if there was no table.
    known: Vec<&'static str>,
    options: Vec<(&'static str, OsString)>,
    words: Vec<OsString>,
}

impl Given {
    /// Whether the table has such an option. Code that several commands share asks before it reads an
    /// option that only some of them have.
    pub fn knows(&self, name: &str) -> bool {
        self.known.contains(&name)
    }

    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }

    /// The value of an option, the last one if there are several; empty for one that takes none.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.last(name).and_then(OsStr::to_str)
    }

    /// All values of an option, in order.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.all(name).filter_map(OsStr::to_str)
    }

    /// The file or directory that an option names.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.last(name).map(Path::new)
    }

    /// All files or directories that an option names, in order.
    pub fn paths(&self, name: &str) -> impl Iterator<Item = &Path> {
        self.all(name).map(Path::new)
    }

    /// The value of an option that takes a whole number.
    pub fn whole(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The value of an option that takes a number.
    pub fn real(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// Every option with its value, in order.
    pub fn options(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = self.options.iter();
        all.filter_map(|(name, value)| Some((*name, value.to_str()?)))
    }

    /// The words that are no options, in order.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// The same words as texts.
    ///
    /// # Errors
    /// One of them is not UTF-8.
    pub fn text_words(&self) -> Result<Vec<&str>, Misuse> {
        let words = self.words.iter();
        words
            .map(|w| w.to_str().ok_or_else(|| not_utf8(w)))
            .collect()
    }

    /// Adds an option as if it had been given.
    ///
    /// # Errors
    /// The option does not take this value.
    pub fn add(&mut self, option: &'static Opt, value: OsString) -> Result<(), Misuse> {
        if !matches!(option.takes, Takes::Path) {
            let text = value.to_str().ok_or_else(|| {
                Misuse::NotUtf8(format!("{} {}", option.shown(), value.to_string_lossy()))
            })?;
            let refused = |why| Misuse::Refused(option.shown(), text.to_string(), why);
            option.check(text).map_err(refused)?;
        }
        self.options.push((option.name, value));
        Ok(())
    }

    fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &OsStr> {
        debug_assert!(
            self.known.is_empty() || self.known.contains(&name),
            "no table has the option {name}"
        );
        let name = name.to_string();
        let all = self.options.iter().filter(move |(n, _)| *n == name);
        all.map(|(_, value)| value.as_os_str())
    }

    fn last(&self, name: &str) -> Option<&OsStr> {
        self.all(name).next_back()
    }
}

fn not_utf8(text: &OsStr) -> Misuse {
    Misuse::NotUtf8(text.to_string_lossy().into_owned())
}

impl Page {
    /// Reads a command line (without the names of program and command).
    ///
    /// # Errors
    /// An argument that the table does not have, or a value that it does not allow.
    pub fn parse(&self, args: impl IntoIterator<Item = OsString>) -> Result<Given, Misuse> {
        let mut reader = Reader {
            page: self,
            parser: Parser::from_args(args),
            all_words: false,
            given: Given {
                known: self.options().map(|o| o.name).collect(),
                ..Given::default()
            },
            asks: false,
        };
        loop {
            match reader.next() {
                Ok(true) => {}
                Ok(false) => return Ok(reader.given),
                Err(_) if reader.asks => return Ok(reader.given),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Page {
    /// Whether an argument is one of its options, in any form.
    pub fn names(&self, argument: &str) -> bool {
        match self.parse([OsString::from(argument)]) {
            Ok(given) => !given.options.is_empty(),
            Err(Misuse::Unknown(..) | Misuse::Word(_) | Misuse::NotUtf8(_)) => false,
            Err(_) => true,
        }
    }
}

struct Reader<'p> {
    page: &'p Page,
    parser: Parser,
    /// `--` has come: every argument after it is a word.
    all_words: bool,
    given: Given,
    /// The page is asked for, so the arguments after it are not judged.
    asks: bool,
}

impl Reader<'_> {
    /// Takes one argument; false when there is none.
    fn next(&mut self) -> Result<bool, Misuse> {
        let raw = self.parser.try_raw_args();
        let raw = raw.and_then(|args| args.peek().map(OsStr::to_os_string));
        let raw = raw.unwrap_or_default();
        if !self.all_words {
            self.all_words = raw == "--";
            if let Some((option, value)) = self.one_hyphen(&raw) {
                // The argument was only looked at, so it is removed here.
                let _ = self.parser.try_raw_args().map(|mut args| args.next());
                return self.option(option, value, "").map(|()| true);
            }
        }
        let raw = raw.to_string_lossy().into_owned();
        // The name is copied, because it borrows from the parser, which is asked for the value next.
        let (name, letter) = match self.parser.next() {
            Ok(None) => return Ok(false),
            Ok(Some(Arg::Long(name))) => (name.to_string(), None),
            Ok(Some(Arg::Short(c))) => (String::new(), Some(c)),
            Ok(Some(Arg::Value(word))) => return self.word(word).map(|()| true),
            // An option that takes no value was followed by `=` and a value.
            Err(lexopt::Error::UnexpectedValue { option, .. }) => {
                return Err(Misuse::Value(option));
            }
            Err(e) => return Err(Misuse::Word(e.to_string())),
        };
        let found = match letter {
            Some(c) => self.page.options().find(|o| o.is_letter(c)),
            None => self.page.options().find(|o| o.name == name),
        };
        let option = found.ok_or_else(|| match letter {
            Some(c) if raw.is_empty() => self.unknown(&format!("-{c}")),
            Some(_) => self.unknown(&raw),
            None => self.unknown(&format!("--{name}")),
        })?;
        let row = letter.map(String::from).unwrap_or_default();
        self.option(option, None, &row).map(|()| true)
    }

    /// Finds the option of an argument with one hyphen and a long name: `-dbpath` is `--dbpath` if the
    /// table has it.
    fn one_hyphen(&self, raw: &OsStr) -> Option<(&'static Opt, Option<OsString>)> {
        let text = raw.to_str()?.strip_prefix('-')?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let long = name.chars().count() > 1;
        let option = self.page.options().find(|o| long && o.name == name)?;
        Some((option, value.map(OsString::from)))
    }

    fn word(&mut self, word: OsString) -> Result<(), Misuse> {
        if !self.page.words {
            return Err(Misuse::Word(word.to_string_lossy().into_owned()));
        }
        self.given.words.push(word);
        Ok(())
    }

    /// Takes an option whose value may have come with it; `row` is the letter that it was given by.
    fn option(
        &mut self,
        option: &'static Opt,
        value: Option<OsString>,
        row: &str,
    ) -> Result<(), Misuse> {
        let value = match (option.takes, value) {
            (Takes::Nothing | Takes::Page, Some(_)) => {
                return Err(Misuse::Value(option.shown()));
            }
            (Takes::Nothing | Takes::Page, None) => OsString::new(),
            (_, Some(value)) => value,
            (Takes::Repeats(is_value), None) => self.repeated(option, row, is_value),
            (_, None) => {
                let value = self.parser.value();
                value.map_err(|_| Misuse::NoValue(option.shown()))?
            }
        };
        let once = self.page.once && !option.several;
        if once && self.given.options.iter().any(|(n, _)| *n == option.name) {
            return Err(Misuse::Twice(option.shown()));
        }
        self.given.add(option, value)?;
        self.asks |= matches!(option.takes, Takes::Page);
        while let Some(is_more) = option.more
            && let Some(more) = self.next_word(is_more)
        {
            self.given.add(option, more)?;
        }
        Ok(())
    }

    /// The value of an option that may have none: the letters it was repeated with, or a value attached
    /// to it or after it.
    fn repeated(&mut self, option: &Opt, row: &str, is_value: fn(&str) -> bool) -> OsString {
        let attached = self.parser.optional_value();
        if !row.is_empty() {
            let mut letters = OsString::from(row);
            letters.push(attached.unwrap_or_default());
            return letters;
        }
        let one = option.letter.map(String::from).unwrap_or_default();
        attached
            .or_else(|| self.next_word(is_value))
            .unwrap_or_else(|| one.into())
    }

    /// Takes the next argument if it is no option and `is_it` is true for it.
    fn next_word(&mut self, is_it: fn(&str) -> bool) -> Option<OsString> {
        let mut args = self.parser.try_raw_args()?;
        args.next_if(|a| a.to_str().is_some_and(|t| !t.starts_with('-') && is_it(t)))
    }

    fn unknown(&self, given: &str) -> Misuse {
        let bare = given.trim_start_matches('-');
        let names: Vec<&str> = self.page.options().map(|o| o.name).collect();
        let near = near(bare, &names);
        let near = near.and_then(|n| self.page.options().find(|o| o.name == n));
        Misuse::Unknown(given.to_string(), near.map(Opt::shown))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::page::Group;
    use crate::table::HELP;

    const OPTIONS: &[Opt] = &[
        Opt::text("port", "N", "a port"),
        Opt::path("out", "DIR", "a directory"),
        Opt::new("turns", "N", Takes::Whole(1, 9), "how many"),
        Opt::new(
            "verbose",
            "N",
            Takes::Repeats(|t| t.bytes().all(|b| b == b'v')),
            "more",
        )
        .letter('v')
        .several(),
        Opt::text("set", "NAME=VALUE", "a setting").several(),
        Opt::text("vary", "NAME=VALUE", "settings").more(|t| t.contains('=')),
        Opt::flag("tui", "full screen"),
        Opt::flag("load", "loads").one_hyphen(),
        Opt::text("p", "NAME=VALUE", "a property").several(),
        HELP,
    ];

    fn page(words: bool, once: bool) -> Page {
        Page {
            groups: vec![Group::untitled(OPTIONS)],
            words,
            once,
            ..Page::default()
        }
    }

    fn parsed(line: &str) -> Result<Given, Misuse> {
        page(true, false).parse(
            line.split(' ')
                .filter(|w| !w.is_empty())
                .map(OsString::from),
        )
    }

    fn words(line: &str) -> Vec<String> {
        let given = parsed(line).unwrap();
        let mut out: Vec<String> = given.options().map(|(n, v)| format!("{n}:{v}")).collect();
        out.extend(given.text_words().unwrap().iter().map(|w| (*w).to_string()));
        out
    }

    #[test]
    fn every_form_of_an_option() {
        for (line, wanted) in [
            ("", &[][..]),
            ("--port 1 a --turns=2 b", &["port:1", "turns:2", "a", "b"]),
            ("-port 1 -turns=2", &["port:1", "turns:2"]),
            ("-load --load", &["load:", "load:"]),
            ("-p a=b -pc=d", &["p:a=b", "p:c=d"]),
            ("-v", &["verbose:v"]),
            ("-vvv x", &["verbose:vvv", "x"]),
            ("--verbose vv x", &["verbose:vv", "x"]),
            ("--verbose=vv", &["verbose:vv"]),
            ("-verbose --tui", &["verbose:v", "tui:"]),
            ("--verbose x", &["verbose:v", "x"]),
            (
                "--vary a=1 b=2 c --set d=3",
                &["vary:a=1", "vary:b=2", "set:d=3", "c"],
            ),
            // A value may look like an option, and after `--` no argument is one.
            ("--port -tui", &["port:-tui"]),
            ("a -- -tui --port", &["a", "-tui", "--port"]),
            ("-h", &["help:"]),
            ("--help", &["help:"]),
            // What follows `--help` is not judged, since the page is what was asked for.
            ("w1 --help --fast", &["help:", "w1"]),
        ] {
            assert_eq!(words(line), wanted, "{line}");
        }
    }

    #[test]
    fn an_argument_is_an_option_or_not() {
        let page = page(true, false);
        for is in [
            "--port",
            "-port",
            "--port=1",
            "--turns=0",
            "-vvv",
            "-p",
            "--tui",
        ] {
            assert!(page.names(is), "{is}");
        }
        for no in ["", "-", "--", "port", "--prot", "-x"] {
            assert!(!page.names(no), "{no}");
        }
    }

    #[test]
    fn values_have_their_types() {
        let given = parsed("--turns 3 --turns 4 --out d --port 0.5").unwrap();
        assert_eq!(given.whole("turns"), Some(4));
        assert_eq!(given.path("out"), Some(Path::new("d")));
        assert_eq!(given.real("port"), Some(0.5));
        assert_eq!(given.texts("turns").collect::<Vec<_>>(), ["3", "4"]);
        assert!(!given.has("tui") && given.text("set").is_none());
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("--fast", "there is no option '--fast'"),
            ("--prot", "there is no option '--prot': is '--port' meant?"),
            ("-turn", "there is no option '-turn': is '--turns' meant?"),
            ("--lood", "there is no option '--lood': is '-load' meant?"),
            ("-x", "there is no option '-x'"),
            ("--port", "option '--port' needs a value"),
            ("-p", "option '-p' needs a value"),
            ("--tui=1", "option '--tui' takes no value"),
            ("-tui=1 --port 3", "option '--tui' takes no value"),
            ("--tui=1 --port 3", "option '--tui' takes no value"),
            (
                "--turns 0",
                "--turns 0: it must be a whole number from 1 to 9",
            ),
            ("--fast --help", "there is no option '--fast'"),
        ] {
            assert_eq!(parsed(line).unwrap_err().to_string(), why, "{line}");
        }
        let strict = |line: &str| {
            page(false, true)
                .parse(line.split(' ').map(OsString::from))
                .map(|_| ())
                .map_err(|e| e.to_string())
        };
        assert_eq!(strict("--set a --set b -v -v"), Ok(()));
        let e = strict("--port 1 -port 2").unwrap_err();
        assert_eq!(e, "option '--port' is given twice");
        assert_eq!(strict("x").unwrap_err(), "unexpected argument 'x'");
    }

    #[cfg(unix)]
    #[test]
    fn names_of_files_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(vec![b'd', 0xFF]);
        let args = |name: &str| [OsString::from(name), odd.clone()];
        let page = page(true, false);
        let given = page.parse(args("--out")).unwrap();
        assert_eq!(given.path("out"), Some(Path::new(&odd)));
        let e = page.parse(args("--port")).unwrap_err();
        assert_eq!(e, Misuse::NotUtf8("--port d\u{FFFD}".into()));
        let given = page.parse([odd.clone()]).unwrap();
        assert_eq!(given.words(), std::slice::from_ref(&odd));
        assert!(given.text_words().is_err());
    }
}
