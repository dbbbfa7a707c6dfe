//! The rules for prose, as far as a program can check them.

use super::source::Source;

/// A paragraph: the line where it begins, and its text on one line.
#[derive(Debug, PartialEq)]
pub struct Paragraph {
    /// The number of the line, from 0.
    pub line: usize,
    /// Its words, with one space between.
    pub text: String,
}

/// The paragraphs of a file's comments. A comment at the end of a line of code is one by itself.
pub fn of_comments(source: &Source) -> Vec<Paragraph> {
    let mut out: Vec<Paragraph> = Vec::new();
    let (mut open, mut fenced) = (None, false);
    for comment in &source.comments {
        if comment.text.starts_with("```") {
            fenced = !fenced && comment.marker != "//";
            open = None;
            continue;
        }
        let goes_on = open == Some((comment.line.wrapping_sub(1), comment.marker))
            && comment.alone
            && !begins_block(&comment.text);
        open = None;
        if fenced || comment.text.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some(last) if goes_on => {
                last.text.push(' ');
                last.text.push_str(&comment.text);
            }
            _ => out.push(Paragraph {
                line: comment.line,
                text: comment.text.clone(),
            }),
        }
        if comment.alone {
            open = Some((comment.line, comment.marker));
        }
    }
    out
}

/// The paragraphs of a Markdown page: an item of a list and a row of a table each count as one. Code and
/// front matter do not count.
pub fn of_markdown(text: &str) -> Vec<Paragraph> {
    let mut out: Vec<Paragraph> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            open = false;
            continue;
        }
        if fenced || line.is_empty() {
            open = false;
            continue;
        }
        match out.last_mut() {
            Some(last) if open && !begins_block(line) => {
                last.text.push(' ');
                last.text.push_str(line);
            }
            _ => out.push(Paragraph {
                line: n,
                text: line.to_owned(),
            }),
        }
        open = !line.starts_with('#');
    }
    out
}

/// Whether a line begins an item of a list, a row of a table or a heading.
fn begins_block(line: &str) -> bool {
    let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['|', '#'])
        || line.starts_with("- ")
        || line.starts_with("* ")
        || (item.len() < line.len() && item.starts_with(". "))
}

/// The number of words of a paragraph, which white space separates. The rules of a table do not count.
pub fn words(text: &str) -> usize {
    let is_word = |w: &&str| w.chars().any(char::is_alphanumeric);
    text.split_whitespace().filter(is_word).count()
}

/// Words with which a sentence begins before its main clause. The subject of that clause follows the first
/// comma.
const OPENING: &[&str] = &[
    "after",
    "as",
    "at",
    "because",
    "before",
    "behind",
    "beside",
    "but",
    "by",
    "however",
    "if",
    "in",
    "on",
    "once",
    "otherwise",
    "since",
    "so",
    "then",
    "unless",
    "until",
    "when",
    "where",
    "while",
    "with",
    "without",
];

/// Prepositions that need a noun. Those before which a question can come as well are not among them ("of",
/// "on", "about").
const WANTS_NOUN: &[&str] = &[
    "against", "after", "at", "before", "behind", "beside", "by", "for", "from", "than", "to",
    "towards", "with",
];

/// Words with which the next question in a list begins: "who leads, what is committed".
const QUESTIONS: &[&str] = &[
    "how", "what", "when", "where", "whether", "which", "who", "whom", "whose", "why",
];

/// Finds each "who" or "whoever" in a paragraph that stands for a noun, and returns some words from there on.
///
/// It stands for a noun at the beginning of a sentence, after a colon or a semicolon, after the first comma
/// of a sentence that begins with a word of [`OPENING`], and after a preposition of [`WANTS_NOUN`]. It does
/// not after the noun to which it refers, in a question, and in a list of questions after a colon.
pub fn headless(text: &str) -> Vec<String> {
    let text = text.replace(['`', '*', '[', ']'], "");
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |n: usize| {
        let word = words[n].trim_matches(|c: char| !c.is_alphanumeric());
        word.to_lowercase()
    };
    let mut found = Vec::new();
    let mut sentence = 0; // where it begins
    let mut commas = 0; // that it has had
    for n in 0..words.len() {
        let before = n.checked_sub(1).map_or("", |b| words[b]);
        let ended = n == 0 || before.ends_with(['.', '!', '?', '|', ':', ';', '—', '–']);
        if ended || words[n].starts_with('(') {
            (sentence, commas) = (n, 0);
        }
        let who = matches!(bare(n).as_str(), "who" | "whoever");
        let is_subject = !words[n].contains(['"', '“'])
            && (ended
                || words[n].starts_with('(')
                || (before.ends_with(',')
                    && commas == 1
                    && OPENING.contains(&bare(sentence).as_str()))
                || (!before.ends_with([',', ')', '"'])
                    && WANTS_NOUN.contains(&bare(n - 1).as_str())));
        if who && is_subject && !is_question(&words[n..]) {
            found.push(words[n..words.len().min(n + 6)].join(" "));
        }
        commas += usize::from(words[n].ends_with(','));
    }
    found
}

/// Whether a clause that begins with "who" is a question: it ends with a question mark, or is the first of a
/// list of questions, in lower case.
fn is_question(words: &[&str]) -> bool {
    let end = words
        .iter()
        .position(|w| w.ends_with(['.', '?', '!', ':', ';', ')', '|']))
        .map_or(words.len(), |at| at + 1);
    let clause = &words[..end];
    if clause
        .last()
        .is_some_and(|w| w.trim_end_matches(')').ends_with('?'))
    {
        return true;
    }
    let lists = clause.windows(2).any(|w| {
        let next = QUESTIONS.contains(&w[1].trim_end_matches([',', '.', ';', ')']));
        next && (w[0].ends_with(',') || w[0] == "and" || w[0] == "or")
    });
    lists
        && clause
            .first()
            .is_some_and(|w| w.trim_start_matches('(').starts_with('w'))
}

/// Finds each "behind" in a paragraph that means time or order, and returns the words around it. Allowed are:
/// to leave something behind, to fall or lag behind, to be far or so much behind another, and to hide behind
/// a trait, a lock or a door. Otherwise the right word is "after".
pub fn behind(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let bare = |n: usize| {
        let word = words.get(n).copied().unwrap_or_default();
        word.trim_matches(|c: char| !c.is_alphanumeric())
            .to_lowercase()
    };
    let mut found = Vec::new();
    for n in (0..words.len()).filter(|&n| bare(n) == "behind") {
        if words[n].contains(['`', '_', '"']) || words[n].contains("::") {
            continue; // a name, or a word that is spoken of
        }
        let before: Vec<_> = (n.saturating_sub(8)..n).map(bare).collect();
        let left = before
            .iter()
            .any(|w| matches!(w.as_str(), "leave" | "leaves" | "left" | "leaving"));
        let lags = before.last().is_some_and(|w| {
            matches!(
                w.as_str(),
                "far"
                    | "fall"
                    | "falls"
                    | "fallen"
                    | "fell"
                    | "falling"
                    | "lag"
                    | "lags"
                    | "lagging"
                    | "hide"
                    | "hides"
                    | "hidden"
                    | "further"
                    | "seconds"
                    | "much"
            )
        });
        let seam = (n + 1..n + 5).map(bare).any(|w| {
            matches!(
                w.as_str(),
                "trait"
                    | "traits"
                    | "lock"
                    | "locks"
                    | "door"
                    | "back"
                    | "pointer"
                    | "interface"
                    | "arc"
            )
        });
        if !left && !lags && !seam {
            let (from, to) = (n.saturating_sub(3), words.len().min(n + 4));
            found.push(words[from..to].join(" "));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headless_who_is_found() {
        let with = [
            // These are from the page on which the rule is based.
            "Until its reply is sent: who ends the server waits for it.",
            "Of what fails a part may be told as done, or it fails because it is done already: who is told that relies on it.",
            "It has the log synced, which would take the core from who sends.",
            "Who relies on what a transaction made says so in memory alone.",
            // These once were comments in this repository.
            "Whoever writes by an older view is to find that something was here.",
            "Before it knows that it is connected, who connected cannot have sent anything.",
            "As in MongoDB, who was added is counted when it has caught up.",
            "It is taken by who has none either.",
            "Plans on it end; who has the view finds all of it.",
            "Latches: who may write a record or a unique key.",
            "Who is where in a set: centres, round trips.",
            "A table | Who sends it |",
        ];
        for text in with {
            assert_eq!(headless(text).len(), 1, "{text}: {:?}", headless(text));
        }
    }

    #[test]
    fn a_who_with_a_head_or_a_question_is_none() {
        let without = [
            "The client, who sent it, waits.",
            "collMod's conversion under writers, who try duplicates all the time.",
            "The replication core: who leads, what is committed, what a member has to do next.",
            "A member knows who leads, and of who voted.",
            "Each tells others who it is and who leads.",
            "Who is on the machine?",
            "Those who wait are woken, and anyone who asks is told.",
            "While it waits, the client, who has sent it, may go.",
            "It asks whom it knows, whose vote it needs.",
        ];
        for text in without {
            assert!(headless(text).is_empty(), "{text}: {:?}", headless(text));
        }
    }

    #[test]
    fn behind_is_found_for_time_and_order_only() {
        for text in [
            "It applies the log behind the cut.",
            "A stream begins behind its token.",
            "`None` behind the last.",
        ] {
            assert_eq!(behind(text).len(), 1, "{text}");
        }
        for text in [
            "It leaves nothing behind.",
            "Its majority is too far behind.",
            "It is 10 seconds behind the primary.",
            "Each is behind a trait.",
            "See [`Doc::behind`] and `behind`.",
        ] {
            assert!(behind(text).is_empty(), "{text}: {:?}", behind(text));
        }
    }

    #[test]
    fn paragraphs_end_where_a_reader_sees_it() {
        let page = "# Head\nOne\ntwo.\n\n- item\n  goes on\n- item\n\n```sh\ncode\n```\n| a | b |\n|---|---|\nend\n";
        let found: Vec<_> = of_markdown(page)
            .into_iter()
            .map(|p| (p.line, p.text))
            .collect();
        let expected = [
            (0, "# Head"),
            (1, "One two."),
            (4, "- item goes on"),
            (6, "- item"),
            (11, "| a | b |"),
            (12, "|---|---| end"),
        ];
        assert_eq!(found, expected.map(|(n, t)| (n, t.to_owned())));
        assert_eq!(words("- a `b c` |---| d."), 4);

        let code = "/// One\n/// two.\n///\n/// ```\n/// code\n/// ```\n/// - item\n// Other.\nlet a = 1; // At its end.\n// Next.\n";
        let found: Vec<_> = of_comments(&Source::new(code))
            .into_iter()
            .map(|p| p.text)
            .collect();
        assert_eq!(
            found,
            ["One two.", "- item", "Other.", "At its end.", "Next."]
        );
    }
}
