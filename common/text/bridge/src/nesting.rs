//! How deep a template nests, known before anything recursive reads it.
//!
//! Parsing, rewriting, code generation and dropping all recurse once per level of the tree, and the
//! engine's parser counts brackets and statements only: a chain of operators, attributes, filters,
//! signs or `elif` is a tree as deep as it is long. So the tokens are counted first, in one pass
//! that keeps one entry per open bracket.
//!
//! The count is an upper bound of the tree's depth: every token that can put one node above another
//! counts for the whole item that it stands in, and items end at commas, colons and `=`.

use minijinja::machinery::{tokenize, Token};
use minijinja::syntax::SyntaxConfig;

use crate::Failure;

/// Statements in statements, `elif`s, operators and brackets on one path from the template to a
/// leaf. Templates of models in use stay below 40.
pub const MAX_NESTING: usize = 200;

/// One open bracket, or the tag itself.
#[derive(Default)]
struct Level {
    /// Tokens of the current item that put nodes above each other.
    links: usize,
    /// The deepest bracket that the current item holds.
    inside: usize,
    /// The deepest item that has ended.
    ended: usize,
}

#[derive(Default)]
struct Count {
    /// For each open statement: itself and its `elif`s.
    statements: Vec<usize>,
    statement_depth: usize,
    levels: Vec<Level>,
    /// The links of all levels.
    links: usize,
}

impl Count {
    fn link(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.links += 1;
            self.links += 1;
        }
    }

    fn end_item(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.ended = level.ended.max(level.links + level.inside);
            self.links -= level.links;
            (level.links, level.inside) = (0, 0);
        }
    }

    fn open(&mut self) {
        self.link();
        self.levels.push(Level::default());
    }

    fn close(&mut self) {
        // A bracket too many is the parser's to report.
        if self.levels.len() < 2 {
            return;
        }
        self.end_item();
        let inside = self.levels.pop().map_or(0, |level| level.ended);
        if let Some(level) = self.levels.last_mut() {
            level.inside = level.inside.max(inside);
        }
    }

    fn start_tag(&mut self) {
        self.levels.clear();
        self.levels.push(Level::default());
        self.links = 0;
    }

    fn open_statement(&mut self) {
        self.statements.push(1);
        self.statement_depth += 1;
    }

    fn keyword(&mut self, word: &str) {
        match word {
            "if" | "for" | "with" | "filter" | "macro" | "call" | "autoescape" | "block" => {
                self.open_statement();
            }
            "elif" => {
                if let Some(chain) = self.statements.last_mut() {
                    *chain += 1;
                    self.statement_depth += 1;
                }
            }
            // `{% set x %}…{% endset %}`; the one with a value has ended before its `=` is seen.
            "set" => self.open_statement(),
            _ if word.starts_with("end") => {
                self.statement_depth -= self.statements.pop().unwrap_or(0);
            }
            _ => {}
        }
    }

    fn depth(&self) -> usize {
        let inside = self.levels.last().map_or(0, |level| level.inside);
        self.statement_depth + self.links + inside
    }
}

/// RESOURCE_EXHAUSTED with the line at which the source nests deeper than MAX_NESTING. What can't be
/// cut into tokens is left to the parser.
pub fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Failure> {
    let mut count = Count::default();
    let (mut at_keyword, mut in_set) = (false, false);
    for token in tokenize(source, false, syntax) {
        let Ok((token, span)) = token else { return Ok(()) };
        if let (true, Token::Ident(word)) = (at_keyword, &token) {
            count.keyword(word);
            in_set = *word == "set";
            at_keyword = false;
        } else {
            match token {
                Token::VariableStart => count.start_tag(),
                Token::BlockStart => {
                    count.start_tag();
                    at_keyword = true;
                    continue;
                }
                Token::BlockEnd => in_set = false,
                Token::Assign if in_set && count.levels.len() == 1 => {
                    count.keyword("endset");
                    in_set = false;
                    count.end_item();
                }
                Token::Comma | Token::Colon | Token::Assign => count.end_item(),
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => count.open(),
                Token::ParenClose | Token::BracketClose | Token::BraceClose => count.close(),
                Token::Ident("and" | "or" | "not" | "in" | "is" | "if" | "else") => count.link(),
                Token::Ident(_)
                | Token::Str(_)
                | Token::String(_)
                | Token::Int(_)
                | Token::Int128(_)
                | Token::Float(_)
                | Token::TemplateData(_)
                | Token::VariableEnd => {}
                // Every operator, sign, dot, pipe and comparison.
                _ => count.link(),
            }
            at_keyword = false;
        }
        if count.depth() > MAX_NESTING {
            return Err(Failure::exhausted(format!(
                "line {}: statements, operators and brackets nest deeper than {MAX_NESTING}",
                span.start_line
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::LoadedTemplate;

    fn times(count: usize, part: &str) -> String {
        part.repeat(count)
    }

    /// Shapes that are as deep as they are long, `n` levels each.
    fn shapes(n: usize) -> Vec<(&'static str, String)> {
        vec![
            ("concat", format!("{{{{ a{} }}}}", times(n, "~a"))),
            ("add", format!("{{{{ a{} }}}}", times(n, "+a"))),
            ("multiply", format!("{{{{ a{} }}}}", times(n, "*1"))),
            ("power", format!("{{{{ a{} }}}}", times(n, "**1"))),
            ("or", format!("{{{{ a{} }}}}", times(n, " or a"))),
            ("and", format!("{{{{ a{} }}}}", times(n, " and a"))),
            ("compare", format!("{{{{ a{} }}}}", times(n, " < a"))),
            ("attributes", format!("{{{{ a{} }}}}", times(n, ".a"))),
            ("subscripts", format!("{{{{ a{} }}}}", times(n, "[0]"))),
            ("slices", format!("{{{{ a{} }}}}", times(n, "[:]"))),
            ("calls", format!("{{{{ a{} }}}}", times(n, "()"))),
            ("filters", format!("{{{{ a{} }}}}", times(n, "|trim"))),
            ("tests", format!("{{{{ a{} }}}}", times(n, " is none"))),
            ("negations", format!("{{{{ {}1 }}}}", times(n, "- "))),
            ("nots", format!("{{{{ {}a }}}}", times(n, "not "))),
            ("ternary", format!("{{{{ a{} }}}}", times(n, " if a"))),
            ("ternary else", format!("{{{{ a{} }}}}", times(n / 2, " if a else a"))),
            ("parentheses", format!("{{{{ {}a{} }}}}", times(n, "("), times(n, ")"))),
            ("lists", format!("{{{{ {}{} }}}}", times(n, "["), times(n, "]"))),
            ("mappings", format!("{{{{ {}1{} }}}}", times(n, "{1:"), times(n, "}"))),
            ("arguments", format!("{{{{ {}1{} }}}}", times(n, "f("), times(n, ")"))),
            ("elif", format!("{{%if a%}}{}{{%endif%}}", times(n, "{%elif a%}x"))),
            ("ifs", format!("{}{}", times(n, "{%if a%}"), times(n, "{%endif%}"))),
            ("fors", format!("{}{}", times(n, "{%for a in a%}"), times(n, "{%endfor%}"))),
            ("withs", format!("{}{}", times(n, "{%with%}"), times(n, "{%endwith%}"))),
            ("sets", format!("{}{}", times(n, "{%set a%}"), times(n, "{%endset%}"))),
            ("filter tags", format!("{{%filter trim{}%}}{{%endfilter%}}", times(n, "|trim"))),
            ("set target", format!("{{%set {}a{}=1%}}", times(n, "("), times(n, ")"))),
            ("set attributes", format!("{{%set a{}=1%}}", times(n, ".a"))),
            ("macros", format!("{}{}", times(n, "{%macro m()%}"), times(n, "{%endmacro%}"))),
        ]
    }

    /// Whether the template can't be compiled, and whether that is for its depth.
    fn refused(source: &str) -> Option<(i32, bool)> {
        let failure = LoadedTemplate::load(source).err()?;
        Some((failure.code, failure.message.contains("nest deeper than 200")))
    }

    #[test]
    fn every_deep_shape_is_refused_before_it_is_parsed() {
        for (name, source) in shapes(20_000).into_iter().chain(shapes(MAX_NESTING * 2)) {
            assert_eq!(refused(&source), Some((crate::EXHAUSTED, true)), "{name}");
        }
    }

    /// What the count lets through must not overflow a stack a quarter of what threads have.
    #[test]
    fn what_is_let_through_needs_little_stack() {
        let deep = std::thread::Builder::new().stack_size(2 << 20).spawn(|| {
            for (name, source) in shapes(MAX_NESTING - 2) {
                // The parser refuses some itself, at a lower limit of its own.
                assert!(refused(&source).is_none_or(|(_, deep)| !deep), "{name}");
            }
        });
        deep.unwrap().join().unwrap();
    }

    #[test]
    fn the_limit_is_exact_for_chains() {
        let chain = |links: usize| format!("{{{{ a{} }}}}", "~a".repeat(links));
        assert_eq!(refused(&chain(MAX_NESTING)), None);
        assert_eq!(refused(&chain(MAX_NESTING + 1)), Some((crate::EXHAUSTED, true)));
        let elifs = |links: usize| format!("{{%if a%}}{}{{%endif%}}", "{%elif a%}".repeat(links));
        assert_eq!(refused(&elifs(MAX_NESTING - 1)), None);
        assert_eq!(refused(&elifs(MAX_NESTING)), Some((crate::EXHAUSTED, true)));
    }

    #[test]
    fn neighbours_do_not_add_up() {
        let items = vec!["a~b.c[0]|trim"; 5000].join(", ");
        assert_eq!(
            refused(&format!("{{% set x = [{items}] %}}{{{{ f({items}) }}}}")),
            Some((1, false))
        );
        assert_eq!(refused(&format!("{{% set x = [{items}] %}}{{{{ x }}}}")), None);
        let many = "{% if a %}{% for b in c %}{{ b.d ~ 'x' }}{% endfor %}{% elif e %}{% endif %}";
        assert_eq!(refused(&many.repeat(5000)), None);
        let sets = "{% set x = a.b %}{% set y %}text{% endset %}{% set z, w = 1, 2 %}";
        assert_eq!(refused(&sets.repeat(5000)), None);
    }
}
