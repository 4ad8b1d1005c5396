//! Python's slices, value[start:stop:step]. minijinja's own panic where a list is empty and the step
//! negative, and take one item too many before a stop of 0.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};

fn bound(value: &Value) -> Result<Option<i128>, Error> {
    if value.is_none() {
        return Ok(None);
    }
    Ok(Some(i64::try_from(value.clone())?.into()))
}

/// The indices of a sequence of `length` items, as slice.indices(length) and range() of Python.
fn indices(
    length: usize,
    start: Option<i128>,
    stop: Option<i128>,
    step: i128,
) -> impl Iterator<Item = usize> {
    let length = length as i128;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |at: i128| (if at < 0 { at + length } else { at }).clamp(lowest, highest);
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (mut at, end) = (start.map_or(first, clamp), stop.map_or(last, clamp));
    std::iter::from_fn(move || {
        let inside = if step > 0 { at < end } else { at > end };
        let index = at;
        at += step;
        inside.then_some(index as usize)
    })
}

pub fn slice(value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let (start, stop, step) = (bound(&start)?, bound(&stop)?, bound(&step)?.unwrap_or(1));
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        let chars: Vec<char> = text.chars().collect();
        let part: String = indices(chars.len(), start, stop, step).map(|i| chars[i]).collect();
        return Ok(Value::from(part));
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let part = indices(items.len(), start, stop, step).map(|i| items[i].clone());
            Ok(if value.is_tuple() {
                Value::from(Tuple::from(part.collect::<Vec<_>>()))
            } else {
                part.collect()
            })
        }
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("value of type {kind} cannot be sliced"),
        )),
    }
}
