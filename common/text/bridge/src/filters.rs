//! Jinja's filters and tests, the growing ones bounded, the printing ones as Python prints.

use minijinja::filters;
use minijinja::tests;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use crate::marks::without;
use crate::python::str_of;
use crate::{budget, methods, template};

pub fn add(env: &mut Environment) {
    for name in ["length", "count"] {
        env.add_filter(name, length);
    }
    for name in ["default", "d"] {
        env.add_filter(name, filters::default);
    }
    env.add_filter("lower", filters::lower);
    env.add_filter("upper", filters::upper);
    env.add_filter("title", filters::title);
    env.add_filter("capitalize", filters::capitalize);
    env.add_filter("first", |value: Value| of_elements(value, |value| filters::first(&value)));
    env.add_filter("last", |value: Value| of_elements(value, filters::last));
    env.add_filter("list", filters::list);
    env.add_filter("items", items);
    env.add_filter("dictsort", filters::dictsort);
    env.add_filter("reverse", filters::reverse);
    env.add_filter("abs", filters::abs);
    env.add_filter("int", filters::int);
    env.add_filter("float", filters::float);
    env.add_filter("round", filters::round);
    env.add_filter("attr", filters::attr);
    env.add_filter("min", filters::min);
    env.add_filter("max", filters::max);
    env.add_filter("sum", filters::sum);
    env.add_filter("sort", filters::sort);
    env.add_filter("unique", filters::unique);
    env.add_filter("groupby", filters::groupby);
    env.add_filter("map", filters::map);
    env.add_filter("select", filters::select);
    env.add_filter("reject", filters::reject);
    env.add_filter("selectattr", filters::selectattr);
    env.add_filter("rejectattr", filters::rejectattr);
    env.add_filter("safe", |value: Value| value);
    env.add_filter("batch", |state: &mut State, value: Value, n: usize, fill: Option<Value>| {
        bounded_count(n)?;
        filters::batch(state, value, n, fill)
    });
    env.add_filter("slice", |state: &mut State, value: Value, n: usize, fill: Option<Value>| {
        bounded_count(n)?;
        filters::slice(state, value, n, fill)
    });
    env.add_filter("trim", |value: &Value, set: Option<&str>| -> Result<String, Error> {
        Ok(methods::strip(&str_of(value)?, set).to_owned())
    });
    env.add_filter("string", str_of);
    env.add_filter("replace", |state: &mut State, value: &Value, args: Rest<Value>| {
        methods::call(state, &Value::from(str_of(value)?), "replace", &args)
    });
    env.add_filter("join", join);
    env.add_filter("indent", indent);
    env.add_filter("format", |format: &str, args: minijinja::value::Rest<Value>| {
        methods::check_widths(format)?;
        let style = minijinja::formatting::FormatStyle::Printf;
        minijinja::formatting::format(style, format, &args)
    });
    env.add_filter("tojson", |value: &Value, indent: Option<Value>, names: Kwargs| {
        // By place json.dumps has ensure_ascii first; templates name what they pass, or pass an
        // indentation.
        template::tojson(value, indent, &names)
    });
    for name in ["e", "escape"] {
        env.add_filter(name, escape);
    }
    add_tests(env);
}

fn bounded_count(n: usize) -> Result<(), Error> {
    if n > 10_000 {
        return Err(budget::over("items in a batch"));
    }
    Ok(())
}

/// What is not there has no elements.
fn length(value: Value) -> Result<usize, Error> {
    match value.is_undefined() {
        true => Ok(0),
        false => filters::length(&without(value)?),
    }
}

/// One of a value's elements; of what is not there, none is there either.
fn of_elements(value: Value, one: fn(Value) -> Result<Value, Error>) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(value),
        false => one(value),
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::from(Vec::<Value>::new())),
        false => filters::items(value),
    }
}

fn escape(value: &Value) -> Result<String, Error> {
    let text = str_of(value)?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn join(
    state: &mut State,
    value: &Value,
    separator: Option<&str>,
    attribute: Option<&str>,
    names: Kwargs,
) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => Some(separator),
        None => names.get::<Option<&str>>("d")?,
    };
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => names.get::<Option<&str>>("attribute")?,
    };
    names.assert_all_used()?;
    let separator = separator.unwrap_or("");
    match attribute {
        None => methods::join(separator, value),
        Some(attribute) => {
            let by = Kwargs::from_iter([("attribute", Value::from(attribute))]);
            let mapped = state.apply_filter("map", &[value.clone(), Value::from(by)])?;
            methods::join(separator, &mapped)
        }
    }
}

/// Jinja's indent: every line but the first, and but empty ones, unless asked.
fn indent(
    value: &Value,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    names: Kwargs,
) -> Result<String, Error> {
    let width = width.or(names.get::<Option<Value>>("width")?).unwrap_or(Value::from(4));
    let first = first.or(names.get("first")?).unwrap_or(false);
    let blank = blank.or(names.get("blank")?).unwrap_or(false);
    names.assert_all_used()?;
    let prefix = match width.as_str() {
        Some(text) => text.to_owned(),
        None => " ".repeat(i64::try_from(width)?.clamp(0, 1024) as usize),
    };
    let text = str_of(value)?;
    let lines: Vec<&str> = text.split('\n').collect();
    budget::make(text.len().saturating_add(lines.len().saturating_mul(prefix.len())))?;
    let mut out = String::new();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        let wanted = if i == 0 { first } else { blank || !line.is_empty() };
        if wanted {
            out.push_str(&prefix);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn add_tests(env: &mut Environment) {
    env.add_test("defined", |value: &Value| !value.is_undefined());
    env.add_test("undefined", |value: &Value| value.is_undefined());
    env.add_test("none", |value: &Value| value.is_none());
    env.add_test("boolean", tests::is_boolean);
    env.add_test("true", tests::is_true);
    env.add_test("false", tests::is_false);
    env.add_test("odd", tests::is_odd);
    env.add_test("even", tests::is_even);
    env.add_test("divisibleby", tests::is_divisibleby);
    env.add_test("string", tests::is_string);
    env.add_test("mapping", |value: &Value| value.kind() == ValueKind::Map);
    env.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    // Python counts booleans among the numbers, and strings and mappings among what has items.
    env.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
    });
    env.add_test("integer", |value: &Value| value.is_integer());
    env.add_test("float", tests::is_float);
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq
                | ValueKind::String
                | ValueKind::Map
                | ValueKind::Iterable
                | ValueKind::Undefined
        )
    });
    env.add_test("lower", tests::is_lower);
    env.add_test("upper", tests::is_upper);
    env.add_test("sameas", tests::is_sameas);
    for name in ["eq", "equalto", "=="] {
        env.add_test(name, tests::is_eq);
    }
    for name in ["ne", "!="] {
        env.add_test(name, tests::is_ne);
    }
    for name in ["lt", "lessthan", "<"] {
        env.add_test(name, tests::is_lt);
    }
    for name in ["gt", "greaterthan", ">"] {
        env.add_test(name, tests::is_gt);
    }
    for name in ["le", "<="] {
        env.add_test(name, tests::is_le);
    }
    for name in ["ge", ">="] {
        env.add_test(name, tests::is_ge);
    }
    env.add_test("in", |state: &mut State, value: &Value, of: &Value| -> Result<bool, Error> {
        budget::weigh(of)?;
        tests::is_in(state, value, of)
    });
}

const _: ErrorKind = ErrorKind::InvalidOperation;
