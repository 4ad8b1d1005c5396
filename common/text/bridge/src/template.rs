//! Chat templates: compiled once, rendered with limits, equal to what `transformers` renders.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use minijinja::machinery::{self, CodeGenerator, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{
    Enumerator, Kwargs, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs,
};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State};

use crate::budget::{self, Session};
use crate::conversation::{self, Reading, FIRST_READING};
use crate::marks::{self, Marks};
use crate::python::{self, str_of};
use crate::tokenizer::LoadedTokenizer;
use crate::{filters, guard, methods, nesting, slices, strftime, Failure, INVALID};

const MAX_RECURSION: usize = 200;
const BASE_FUEL: u64 = 4_000_000;
const FUEL_PER_INPUT_BYTE: u64 = 40;

/// Jinja's namespace(): the one value that a template may change.
#[derive(Debug, Default)]
pub struct Namespace {
    values: Mutex<BTreeMap<String, Value>>,
}

impl Namespace {
    fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if name.starts_with('_') {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a namespace can't hold '{name}': names must not start with '_'"),
            ));
        }
        if let Ok(mut values) = self.values.lock() {
            let old = values.insert(name.to_owned(), value);
            drop(values);
            drop(old);
        }
        Ok(())
    }

    pub fn clear(&self) {
        let old = self.values.lock().map(|mut values| std::mem::take(&mut *values));
        drop(old);
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.values.lock().ok()?.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<Namespace>")
    }
}

/// What a rendering is asked for, as JSON and plain values.
pub struct Request<'r> {
    pub messages: &'r str,
    pub tools: &'r str,
    pub extra: &'r str,
    pub special_tokens: Vec<(&'r str, &'r str)>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub now: i64,
    pub max_output: usize,
    pub cancelled: Option<&'r AtomicBool>,
    /// Whose special tokens messages can't spell; None: they can.
    pub tokenizer: Option<&'r LoadedTokenizer>,
}

/// A template with the environment that runs it. The instructions borrow the source text, so the
/// fields are ordered to be dropped before it.
pub struct LoadedTemplate {
    instructions: Instructions<'static>,
    blocks: BTreeMap<&'static str, Instructions<'static>>,
    env: Environment<'static>,
    source: Box<str>,
}

/// `{% generation %}` marks what a model said and has no effect on the text; a `with` block has its
/// scope.
fn without_generation_tags(source: &str) -> Result<String, Failure> {
    let tags = regex::Regex::new(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")
        .map_err(|e| Failure::invalid(e.to_string()))?;
    Ok(tags.replace_all(source, "${1}${2}with${3}").into_owned())
}

fn failure(error: &Error, what: &str) -> Failure {
    let place = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Failure::invalid(format!("{what}: {place}{detail}"))
}

impl LoadedTemplate {
    pub fn load(source: &str) -> Result<Self, Failure> {
        let source: Box<str> = without_generation_tags(source)?.into_boxed_str();
        // SAFETY: the text is on the heap and neither moves nor changes while `source` lives;
        // whatever borrows it here is dropped before it, and nothing that borrows it leaves this
        // type.
        let text: &'static str = unsafe { &*(source.as_ref() as *const str) };
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| failure(&e, "syntax"))?;
        let what = "the chat template can't be compiled";
        nesting::check(text, syntax.clone())
            .map_err(|e| Failure::exhausted(format!("{what}: {}", e.message)))?;
        let tree =
            machinery::parse(text, "chat_template", syntax).map_err(|e| failure(&e, what))?;
        let tree = guard::rewrite(&tree).map_err(|e| Failure::invalid(format!("{what}: {e}")))?;
        let mut generator = CodeGenerator::new("chat_template", text);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        Ok(LoadedTemplate { instructions, blocks, env: environment(), source })
    }

    /// The text of a chat; with a tokenizer, a marked text. A template that fails gets the chat in
    /// other readings: a chat costs at most five renderings.
    pub fn render(&self, request: &Request) -> Result<String, Failure> {
        let text = self.render_as(request, FIRST_READING);
        if !matches!(&text, Err(failure) if failure.code == INVALID) {
            return text;
        }
        let readings = conversation::other_readings(request.messages).into_iter();
        readings.map(|reading| self.render_as(request, reading)).find(Result::is_ok).unwrap_or(text)
    }

    fn render_as(&self, request: &Request, reading: Reading) -> Result<String, Failure> {
        let input = request.messages.len() + request.tools.len() + request.extra.len();
        let marks = self.marks(request)?;
        let session = Session::start(input, request.now, request.cancelled, marks);
        let (variables, tag) = conversation::variables(request, &self.source, marks, reading)?;
        // Later names win: variables of the request over special tokens.
        let specials =
            request.special_tokens.iter().map(|(name, text)| (*name, Value::from(*text)));
        let named = variables.iter().map(|(n, v)| (n.as_str(), conversation::to_value(v)));
        let root = Value::from_pairs(specials.chain(named));
        let mut env = self.env.clone();
        env.set_fuel(Some(BASE_FUEL + FUEL_PER_INPUT_BYTE * input as u64));
        let mut text = String::new();
        let outcome = self.run(&env, root, &mut text);
        if let Err(error) = outcome {
            return Err(self.explain(&session, &error));
        }
        if text.len() > request.max_output {
            return Err(Failure::exhausted(format!(
                "the rendered chat has {} bytes; at most {} are allowed",
                text.len(),
                request.max_output
            )));
        }
        let text = match tag {
            Some(tag) => tag.cut(text)?,
            None => text,
        };
        Ok(match marks {
            Some(marks) => marks::told(text, marks.mark),
            None => text,
        })
    }

    fn marks<'r>(&self, request: &Request<'r>) -> Result<Option<Marks<'r>>, Failure> {
        let Some(tokenizer) = request.tokenizer else { return Ok(None) };
        let mut texts = vec![self.source.as_ref(), request.messages, request.tools, request.extra];
        texts.extend(request.special_tokens.iter().map(|(_, text)| *text));
        Ok(Some(Marks { mark: marks::unused(&texts)?, tokenizer }))
    }

    fn run(&self, env: &Environment<'_>, root: Value, text: &mut String) -> Result<(), Error> {
        // SAFETY: `eval` wants one lifetime for the environment and for what the instructions
        // borrow. Both outlive this call, its state ends with it, and what it returns is dropped
        // here.
        let env: &'static Environment<'static> = unsafe { std::mem::transmute(env) };
        let mut out = machinery::make_string_output(text);
        let done = machinery::eval(
            env,
            unsafe {
                std::mem::transmute::<&Instructions<'static>, &'static _>(&self.instructions)
            },
            root,
            unsafe { std::mem::transmute::<&BTreeMap<_, _>, &'static _>(&self.blocks) },
            &mut out,
            AutoEscape::None,
        )?;
        drop(done);
        Ok(())
    }

    fn explain(&self, session: &Session, error: &Error) -> Failure {
        if let Some(message) = session.raised() {
            return Failure::invalid(format!("the chat template refuses the messages: {message}"));
        }
        if session.cancelled() {
            return Failure::cancelled();
        }
        let mut failed = failure(error, "the chat template failed");
        if session.exhausted() || error.kind() == ErrorKind::OutOfFuel {
            failed.code = crate::EXHAUSTED;
        }
        failed
    }
}

fn environment() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_recursion_limit(MAX_RECURSION);
    env.set_formatter(|out, _state, value| {
        let written = match value.as_str() {
            Some(text) => {
                budget::make(text.len())?;
                out.write_str(text)
            }
            None => out.write_str(&str_of(value)?),
        };
        written.map_err(|_| Error::new(ErrorKind::WriteFailure, "output"))
    });
    add_guards(&mut env);
    add_globals(&mut env);
    filters::add(&mut env);
    env
}

fn add_guards(env: &mut Environment) {
    env.add_function(guard::TOUCH, |value: Value| -> Result<Value, Error> {
        budget::touch(budget::shallow(&value))?;
        Ok(value)
    });
    env.add_function(guard::WEIGH, |value: Value| -> Result<Value, Error> {
        budget::weigh(&value)?;
        Ok(value)
    });
    env.add_function(guard::PLAIN, |value: Value| -> Result<Value, Error> {
        budget::weigh(&value)?;
        marks::without(value)
    });
    env.add_function(guard::MADE, |value: Value| -> Result<Value, Error> {
        budget::make(budget::shallow(&value))?;
        Ok(value)
    });
    env.add_function(guard::TOUCH_TEXT, |value: Value| -> Result<Value, Error> {
        budget::touch(value.as_str().map_or(1, str::len))?;
        Ok(value)
    });
    env.add_function(guard::MADE_TEXT, |value: Value| -> Result<Value, Error> {
        budget::make(value.as_str().map_or(1, str::len))?;
        Ok(value)
    });
    env.add_function(guard::SLICE, slices::slice);
    env.add_function(guard::MULTIPLY, multiply);
    env.add_function(guard::REMAINDER, remainder);
    env.add_function(guard::CONCAT, |left: Value, right: Value| -> Result<String, Error> {
        let text = str_of(&left)? + &str_of(&right)?;
        budget::make(text.len())?;
        Ok(text)
    });
    env.add_function(guard::ITEM, item);
    env.add_function(guard::METHOD, |state: &mut State, args: Rest<ValueOrKwargs>| {
        let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
        let [value, name, rest @ ..] = args.as_slice() else {
            return Err(Error::from(ErrorKind::MissingArgument));
        };
        methods::call(state, value, name.as_str().unwrap_or(""), rest)
    });
    env.add_function(guard::ASSIGN, |namespace: Value, name: &str, value: Value| {
        match namespace.downcast_object_ref::<Namespace>() {
            Some(namespace) => {
                budget::make(64)?;
                namespace.set(name, value)
            }
            None => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("can't set '{name}': only namespaces hold attributes"),
            )),
        }
    });
}

fn add_globals(env: &mut Environment) {
    env.add_function("range", minijinja::functions::range);
    env.add_function("raise_exception", |message: Value| -> Result<Value, Error> {
        Err(budget::raise(str_of(&message)?))
    });
    env.add_function("strftime_now", |format: &str| -> Result<String, Error> {
        budget::make(format.len().saturating_mul(32))?;
        Ok(strftime::strftime(format, budget::now()))
    });
    env.add_function("dict", |from: Option<Value>, names: Kwargs| -> Result<Value, Error> {
        let pairs = pairs_of(from, &names)?;
        let dict = Value::from_pairs(pairs);
        budget::weigh(&dict)?;
        Ok(dict)
    });
    env.add_function("namespace", |from: Option<Value>, names: Kwargs| -> Result<Value, Error> {
        let namespace = Arc::new(Namespace::default());
        budget::register(namespace.clone())?;
        for (name, value) in pairs_of(from, &names)? {
            namespace.set(name.as_str().unwrap_or("_"), value)?;
        }
        Ok(Value::from_dyn_object(namespace))
    });
}

fn pairs_of(from: Option<Value>, names: &Kwargs) -> Result<Vec<(Value, Value)>, Error> {
    let mut pairs = Vec::new();
    if let Some(from) = from {
        if from.kind() != ValueKind::Map {
            return Err(Error::new(ErrorKind::InvalidOperation, "a mapping is expected"));
        }
        for key in from.try_iter()? {
            let value = from.get_item(&key)?;
            pairs.push((key, value));
        }
    }
    for name in names.args() {
        pairs.push((Value::from(name), names.get::<Value>(name)?));
    }
    budget::make(pairs.len() * 48)?;
    Ok(pairs)
}

fn unsupported(op: &str, left: &Value, right: &Value) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("unsupported operand type(s) for {op}: {} and {}", left.kind(), right.kind()),
    )
}

fn multiply(left: Value, right: Value) -> Result<Value, Error> {
    let number = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if number(&left) && number(&right) {
        if let (Ok(a), Ok(b)) = (i128::try_from(left.clone()), i128::try_from(right.clone())) {
            let whole = |v: &Value| v.kind() == ValueKind::Bool || v.is_integer();
            if whole(&left) && whole(&right) {
                return a.checked_mul(b).map(Value::from).ok_or_else(|| budget::over("digits"));
            }
        }
        let (a, b) = (f64::try_from(left.clone())?, f64::try_from(right.clone())?);
        return Ok(Value::from(a * b));
    }
    let (sequence, times) = if number(&right) { (&left, &right) } else { (&right, &left) };
    if !number(times) || !(times.is_integer() || times.kind() == ValueKind::Bool) {
        return Err(unsupported("*", &left, &right));
    }
    let times = i64::try_from(times.clone())?.max(0) as usize;
    match sequence.kind() {
        ValueKind::String => {
            let text = sequence.as_str().unwrap_or("");
            budget::make(text.len().saturating_mul(times))?;
            Ok(Value::from(text.repeat(times)))
        }
        ValueKind::Seq => {
            let items: Vec<Value> = sequence.try_iter()?.collect();
            budget::make(items.len().saturating_mul(times).saturating_mul(32))?;
            let count = items.len().saturating_mul(times);
            Ok(items.into_iter().cycle().take(count).collect())
        }
        _ => Err(unsupported("*", &left, &right)),
    }
}

fn remainder(left: Value, right: Value) -> Result<Value, Error> {
    if let Some(format) = left.as_str() {
        methods::check_widths(format)?;
        budget::weigh(&right)?;
        let args: Vec<Value> =
            if right.is_tuple() { right.try_iter()?.collect() } else { vec![right] };
        let style = minijinja::formatting::FormatStyle::Printf;
        let text = minijinja::formatting::format(style, format, &args)?;
        budget::make(text.len())?;
        return Ok(Value::from(text));
    }
    let whole = |v: &Value| v.is_integer() || v.kind() == ValueKind::Bool;
    if whole(&left) && whole(&right) {
        let (a, b) = (i128::try_from(left)?, i128::try_from(right)?);
        if b == 0 {
            return Err(Error::new(ErrorKind::InvalidOperation, "division by zero"));
        }
        // The sign is the divisor's.
        let r = a.wrapping_rem(b);
        return Ok(Value::from(if r != 0 && (r < 0) != (b < 0) { r + b } else { r }));
    }
    if left.is_number() && right.is_number() {
        let (a, b) = (f64::try_from(left)?, f64::try_from(right)?);
        if b == 0.0 {
            return Err(Error::new(ErrorKind::InvalidOperation, "division by zero"));
        }
        let r = a % b;
        return Ok(Value::from(if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }));
    }
    Err(unsupported("%", &left, &right))
}

fn item(value: Value, key: Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if let Some(text) = value.as_str() {
        budget::touch(text.len())?;
        let Ok(at) = i64::try_from(key) else { return Ok(Value::UNDEFINED) };
        let at = if at < 0 { at + text.chars().count() as i64 } else { at };
        let found = usize::try_from(at).ok().and_then(|at| text.chars().nth(at));
        return Ok(found.map_or(Value::UNDEFINED, Value::from));
    }
    budget::touch(16)?;
    Ok(value.get_item(&key).unwrap_or(Value::UNDEFINED))
}

/// Kept for `filters.rs`: json.dumps with the arguments that templates pass.
pub fn tojson(value: &Value, indent: Option<Value>, names: &Kwargs) -> Result<String, Error> {
    let indent = match indent.or(names.get::<Option<Value>>("indent")?) {
        Some(v) if v.is_none() => None,
        Some(v) => match v.as_str() {
            Some(text) => Some(text.to_owned()),
            None => Some(" ".repeat(i64::try_from(v)?.clamp(0, 64) as usize)),
        },
        None => None,
    };
    if indent.as_ref().is_some_and(|i| i.len() > 64) {
        return Err(budget::over("characters of indentation"));
    }
    let mut style = python::JsonStyle::new(indent);
    style.ensure_ascii = names.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = names.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if let Some(separators) = names.get::<Option<Value>>("separators")? {
        if !separators.is_none() {
            style.item_separator = separators.get_item_by_index(0)?.to_string();
            style.key_separator = separators.get_item_by_index(1)?.to_string();
        }
    }
    names.assert_all_used()?;
    python::dumps(value, &style)
}
