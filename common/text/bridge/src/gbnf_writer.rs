//! Rules of GBNF as Lark.
//!
//! Rules that no cycle reaches are regular and become terminals, and so does each run of regular
//! parts in the others: a terminal is matched exactly, while between terminals the longest wins. So
//! that white space at the end of a terminal does not take what has to follow it, a rule that may be
//! empty is spelled out there, character by character. Left recursion is fine.

use crate::gbnf::Part;
use crate::lark::quoted;

/// Rules as Lark: terminals where they are regular.
pub struct Writer<'p> {
    bodies: Vec<Part>,
    prefix: &'p str,
    regular: Vec<bool>,
    nullable: Vec<bool>,
    /// Regular, and ends with a rule that may be empty.
    loose: Vec<bool>,
    terminals: Vec<String>,
}

impl<'p> Writer<'p> {
    pub fn new(bodies: Vec<Part>, prefix: &'p str) -> Self {
        let mut writer = Writer {
            regular: vec![false; bodies.len()],
            nullable: vec![false; bodies.len()],
            loose: vec![false; bodies.len()],
            bodies,
            prefix,
            terminals: Vec::new(),
        };
        // Each rule once all that it names are done: what is left names a cycle or a token.
        let mut named_by = vec![Vec::new(); writer.bodies.len()];
        let mut open = vec![0usize; writer.bodies.len()];
        for (index, body) in writer.bodies.iter().enumerate() {
            each_rule(body, &mut |rule| {
                named_by[rule].push(index);
                open[index] += 1;
            });
        }
        let mut ready: Vec<usize> = (0..open.len()).filter(|rule| open[*rule] == 0).collect();
        while let Some(rule) = ready.pop() {
            if !writer.is_regular(&writer.bodies[rule]) {
                continue;
            }
            writer.regular[rule] = true;
            writer.nullable[rule] = writer.is_nullable(&writer.bodies[rule]);
            writer.loose[rule] = writer.is_loose(&writer.bodies[rule]);
            for user in std::mem::take(&mut named_by[rule]) {
                open[user] -= 1;
                if open[user] == 0 {
                    ready.push(user);
                }
            }
        }
        writer
    }

    pub fn write(mut self, root: usize, start: &str) -> String {
        let bodies = std::mem::take(&mut self.bodies);
        let whole = self.regular[root];
        let start_body = match whole {
            true => self.run(self.terminal_name(root), self.nullable[root]),
            false => self.part(&Part::Rule(root)),
        };
        let mut out = format!("{start}: {start_body}\n");
        for (rule, body) in bodies.iter().enumerate() {
            if self.regular[rule] {
                out.push_str(&format!("{}: {}\n", self.terminal_name(rule), self.terminal(body)));
            }
            if whole || (self.regular[rule] && !self.nullable[rule] && !self.loose[rule]) {
                continue;
            }
            let white = self.regular[rule] && self.nullable[rule];
            let body = if white { self.spelled(body) } else { self.part(body) };
            out.push_str(&format!("{}: {body}\n", self.rule_name(rule)));
        }
        for (index, body) in self.terminals.iter().enumerate() {
            out.push_str(&format!("{}P{index}: {body}\n", self.prefix.to_uppercase()));
        }
        out
    }

    fn rule_name(&self, rule: usize) -> String {
        format!("{}r{rule}", self.prefix)
    }

    fn terminal_name(&self, rule: usize) -> String {
        format!("{}T{rule}", self.prefix.to_uppercase())
    }

    fn is_regular(&self, part: &Part) -> bool {
        match part {
            Part::Text(_) | Part::Class(_) => true,
            Part::Rule(rule) => self.regular[*rule],
            Part::Token(_) => false,
            Part::All(parts) | Part::Any(parts) => parts.iter().all(|part| self.is_regular(part)),
            Part::Repeat(part, _, _) => self.is_regular(part),
        }
    }

    /// Of a regular part.
    fn is_nullable(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) => text.is_empty(),
            Part::Class(_) | Part::Token(_) => false,
            Part::Rule(rule) => self.nullable[*rule],
            Part::All(parts) => parts.iter().all(|part| self.is_nullable(part)),
            Part::Any(parts) => parts.iter().any(|part| self.is_nullable(part)),
            Part::Repeat(part, least, _) => *least == 0 || self.is_nullable(part),
        }
    }

    /// Of a regular part: what follows it must not be taken by its end.
    fn is_loose(&self, part: &Part) -> bool {
        match part {
            Part::Rule(rule) => self.regular[*rule] && (self.nullable[*rule] || self.loose[*rule]),
            Part::All(parts) => parts.last().is_some_and(|part| self.is_loose(part)),
            Part::Any(parts) => parts.iter().any(|part| self.is_loose(part)),
            Part::Text(_) | Part::Class(_) | Part::Token(_) | Part::Repeat(..) => false,
        }
    }

    /// A regular part with a terminal for each text and class.
    fn spelled(&self, part: &Part) -> String {
        match part {
            Part::Rule(rule) if self.nullable[*rule] => self.rule_name(*rule),
            Part::All(parts) if !parts.is_empty() => {
                joined(parts.iter().map(|part| self.spelled(part)), " ")
            }
            Part::Any(parts) => joined(parts.iter().map(|part| self.spelled(part)), " | "),
            Part::Repeat(part, least, most) => repeat(&self.spelled(part), *least, *most),
            _ => self.terminal(part),
        }
    }

    /// The body of a terminal.
    fn terminal(&self, part: &Part) -> String {
        match part {
            Part::Text(text) => quoted(text),
            Part::Class(class) => format!("/{class}/"),
            Part::Rule(rule) => self.terminal_name(*rule),
            Part::Token(token) => token.clone(),
            Part::All(parts) if parts.is_empty() => "\"\"".to_owned(),
            Part::All(parts) => joined(parts.iter().map(|part| self.terminal(part)), " "),
            Part::Any(parts) => joined(parts.iter().map(|part| self.terminal(part)), " | "),
            Part::Repeat(part, least, most) => repeat(&self.terminal(part), *least, *most),
        }
    }

    /// What a rule says: runs of regular parts become terminals of their own, which are never empty.
    fn part(&mut self, part: &Part) -> String {
        if self.is_regular(part) && !self.is_loose(part) {
            return self.run(self.terminal(part), self.is_nullable(part));
        }
        match part {
            Part::Rule(rule) => self.rule_name(*rule),
            Part::Any(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.part(part)).collect();
                joined(parts.into_iter(), " | ")
            }
            Part::Repeat(part, least, most) => repeat(&self.part(part), *least, *most),
            Part::All(parts) => self.all(parts),
            Part::Text(_) | Part::Class(_) | Part::Token(_) => self.terminal(part),
        }
    }

    fn all(&mut self, parts: &[Part]) -> String {
        let mut out = Vec::new();
        let mut at = 0;
        while at < parts.len() {
            let mut run = parts[at..].iter().take_while(|part| self.is_regular(part)).count();
            while run > 0 && self.is_loose(&parts[at + run - 1]) {
                run -= 1;
            }
            if run == 0 {
                out.push(self.part(&parts[at]));
                at += 1;
                continue;
            }
            let regular = &parts[at..at + run];
            let body = joined(regular.iter().map(|part| self.terminal(part)), " ");
            let nullable = regular.iter().all(|part| self.is_nullable(part));
            out.push(self.run(body, nullable));
            at += run;
        }
        joined(out.into_iter(), " ")
    }

    fn run(&mut self, body: String, nullable: bool) -> String {
        if body == "\"\"" {
            return body;
        }
        let name = format!("{}P{}", self.prefix.to_uppercase(), self.terminals.len());
        self.terminals.push(if nullable { format!("{body} & /(?s:.+)/") } else { body });
        if nullable {
            format!("{name}?")
        } else {
            name
        }
    }
}

fn each_rule(part: &Part, see: &mut dyn FnMut(usize)) {
    match part {
        Part::Rule(rule) => see(*rule),
        Part::All(parts) | Part::Any(parts) => parts.iter().for_each(|part| each_rule(part, see)),
        Part::Repeat(part, _, _) => each_rule(part, see),
        Part::Text(_) | Part::Class(_) | Part::Token(_) => {}
    }
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    format!("({})", parts.collect::<Vec<_>>().join(between))
}

fn repeat(part: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("({part})*"),
        (1, None) => format!("({part})+"),
        (0, Some(1)) => format!("({part})?"),
        (_, Some(0)) => "\"\"".to_owned(),
        (least, None) => format!("(({part}){{{least},{least}}} ({part})*)"),
        (least, Some(most)) => format!("({part}){{{least},{most}}}"),
    }
}
