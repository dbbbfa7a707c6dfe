//! Checks that exactly the code is cut that is compiled only for tests.

use super::Source;

/// The remaining lines of `text`.
fn left(text: &str) -> Vec<&str> {
    let source = Source::new(text);
    let lines = text.lines().enumerate();
    lines
        .filter(|(n, _)| !source.is_test(*n))
        .map(|(_, line)| line)
        .collect()
}

/// Checks that every line with `gone` is cut, and every other one stays.
fn cuts_exactly(text: &str) {
    let expected: Vec<_> = text.lines().filter(|l| !l.contains("gone")).collect();
    assert_eq!(left(text), expected, "of\n{text}");
    let source = Source::new(text);
    assert_eq!(source.production_lines(), expected.len(), "of\n{text}");
}

#[test]
fn a_test_module_goes_and_what_follows_it_stays() {
    cuts_exactly(
        "fn a() {}\n\
         #[cfg(test)] // gone\n\
         mod gone {\n gone!(); fn x() { } // gone }\n \"gone }\"; '}'; /* gone } */ }\n\
         fn b() {}\n",
    );
}

#[test]
fn a_method_or_function_goes_with_its_docs_and_attributes() {
    cuts_exactly(
        "impl A {\n    fn a(&self) {}\n\
         \n    /// gone: what it does.\n    #[inline] // gone\n\
         #[cfg(test)] // gone\n    #[allow(x)] // gone\n    pub(crate) fn b<'a>(&'a self) -> u8 where Self: Sized { // gone\n\
             if gone { 1 } else { 2 } // gone\n\
         } // gone\n    fn c(&self) {}\n}\n"
            // The lines of the attributes end with `]`, as `rustfmt` leaves them.
            .replace("#[inline] // gone", "#[gone]")
            .as_str(),
    );
}

#[test]
fn a_field_a_variant_an_arm_and_an_argument_go() {
    cuts_exactly(
        "struct S {\n    a: u8,\n\
         #[cfg(test)] // gone\n    pub(crate) gone: Map<u8, fn(u8) -> Vec<u8>>,\n    b: u8,\n\
         #[cfg(test)] // gone\n    gone: [u8; 3]\n}\n\
         enum E {\n    A,\n    #[cfg(test)] // gone\n    Gone(u8, u8), // gone\n    B { c: u8 },\n}\n\
         fn f(e: E) -> S {\n    match e {\n        #[cfg(test)] // gone\n\
                 E::Gone(a, b) if a < b => { // gone\n            gone()\n        } // gone\n\
                 E::A => a(),\n        #[cfg(test)] // gone\n        E::Gone(..) => gone(1, 2),\n\
                 E::B { .. } => b(),\n    }\n\
             S {\n        #[cfg(test)] // gone\n        gone: c(1, 2),\n        b,\n    }\n}\n",
    );
}

#[test]
fn a_statement_goes_to_its_end() {
    cuts_exactly(
        "fn f() {\n    #[cfg(test)] // gone\n    let gone = match x {\n        1 => { 2 } // gone\n\
                 _ => 3, // gone\n    }; // gone\n    #[cfg(not(test))]\n    let stays = 1;\n\
             #[cfg(test)] // gone\n    {\n        gone();\n    } // gone\n    stays();\n\
             #[cfg(test)] // gone\n    self.gone.store(true);\n    stays()\n}\n\
         #[cfg(test)] // gone\nuse gone::{A, B};\n\
         #[cfg(test)] // gone\nconst GONE: [u8; 2] = [1, 2]; // gone\n\
         #[cfg(test)] // gone\nconst fn gone() {\n    gone();\n} // gone\n\
         #[cfg(test)] // gone\nthread_local! { // gone\n    static GONE: u8; // gone\n} // gone\nfn z() {}\n"
            .replace("    {\n        gone", "    { // gone\n        gone")
            .as_str(),
    );
}

#[test]
fn other_configurations_stay() {
    cuts_exactly(
        "#[cfg(any(test, feature = \"arbitrary\"))]\npub mod a;\n#[cfg(not(test))]\nfn b() {}\n\
         #[cfg(all(test, unix))] // gone\nmod gone;\nconst C: u8 = if cfg!(test) { 1 } else { 2 };\n",
    );
}

#[test]
fn a_mark_in_a_literal_or_a_comment_is_none() {
    cuts_exactly(
        "// #[cfg(test)]\nfn a() {\n    b(\"#[cfg(test)]\\\"\", r#\"\n#[cfg(test)]\n\"#, '\"', b'\\'', '\\u{7d}');\n}\n\
         /* #[cfg(test)] /* nested */ } */\nfn c<'a>(x: &'a str) {}\n",
    );
}

#[test]
fn test_modules_in_files_of_their_own_are_named() {
    let source = Source::new(
        "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n#[cfg(test)]\npub(crate) mod testing;\nmod b;\n",
    );
    let expected = [
        ("tests".to_owned(), Some("a_tests.rs".to_owned())),
        ("testing".to_owned(), None),
    ];
    assert_eq!(source.test_modules, expected);
    assert!(Source::new("//! Head.\n#![cfg(test)]\nfn a() {}\n").is_test(2));
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    let source = Source::new(
        "/// Says.\n#[inline]\npub fn a(\n    f: fn(u8) -> u8,\n) -> [u8; 2] {\n    // }\n    \"}\"\n}\n\
         trait T {\n    fn none(&self);\n    fn b(&self) { fn c() {\n    } }\n}\n\
         #[cfg(test)]\nmod tests {\n    fn d() {}\n}\n",
    );
    let found: Vec<_> = source
        .functions()
        .into_iter()
        .map(|f| (f.name, f.line, f.length))
        .collect();
    let expected = [("a", 2, 6), ("b", 10, 2), ("c", 10, 2)];
    assert_eq!(found, expected.map(|(n, l, k)| (n.to_owned(), l, k)));
}

#[test]
fn comments_are_found_with_their_markers() {
    let source =
        Source::new("//! Head.\n/// Doc.\nlet a = \"// no\"; // after\n/* one\n   two */\n");
    let found: Vec<_> = source
        .comments
        .iter()
        .map(|c| (c.line, c.marker, c.alone, c.text.as_str()))
        .collect();
    let expected = [
        (0, "//!", true, "Head."),
        (1, "///", true, "Doc."),
        (2, "//", false, "after"),
        (3, "/*", true, "one"),
        (4, "/*", true, "two"),
    ];
    assert_eq!(found, expected);
}
