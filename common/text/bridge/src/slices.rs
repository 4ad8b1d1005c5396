//! Python's slices, value[start:stop:step]. minijinja's own panic where a list is empty and the step
//! negative, and take one item too many before a stop of 0.

use minijinja::value::{Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::budget;

fn bound(value: &Value) -> Result<Option<i128>, Error> {
    if value.is_none() {
        return Ok(None);
    }
    Ok(Some(i64::try_from(value.clone())?.into()))
}

/// What slice.indices(length) and range() of Python give: where the slice begins and how many places
/// it covers, in the direction of the step.
fn covered(length: usize, start: Option<i128>, stop: Option<i128>, step: i128) -> (usize, usize) {
    let length = length as i128;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |at: i128| (if at < 0 { at + length } else { at }).clamp(lowest, highest);
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (begin, end) = (start.map_or(first, clamp), stop.map_or(last, clamp));
    let places = if step > 0 { end - begin } else { begin - end };
    (begin.max(0) as usize, places.max(0) as usize)
}

/// The slice of `items`, of which there are `length`.
fn take<T, C: FromIterator<T>>(
    items: impl DoubleEndedIterator<Item = T>,
    length: usize,
    (start, stop, step): (Option<i128>, Option<i128>, i128),
) -> C {
    let (begin, places) = covered(length, start, stop, step);
    let every = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if step > 0 {
        return items.skip(begin).take(places).step_by(every).collect();
    }
    items.rev().skip(length.saturating_sub(begin + 1)).take(places).step_by(every).collect()
}

/// An iterator without a known length is charged for as it is read.
fn items_of(value: &Value) -> Result<Vec<Value>, Error> {
    let charged = value.len().is_some();
    let mut items = Vec::new();
    for item in value.try_iter()? {
        if !charged {
            budget::make(budget::NODE_BYTES as usize)?;
        }
        items.push(item);
    }
    Ok(items)
}

pub fn slice(value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    let bounds = (bound(&start)?, bound(&stop)?, bound(&step)?.unwrap_or(1));
    if bounds.2 == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "slice step cannot be zero"));
    }
    if let Some(text) = value.as_str() {
        let part: String = take(text.chars(), text.chars().count(), bounds);
        return Ok(Value::from(part));
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = items_of(&value)?;
            let length = items.len();
            let part: Vec<Value> = take(items.into_iter(), length, bounds);
            Ok(if value.is_tuple() { Value::from(Tuple::from(part)) } else { Value::from(part) })
        }
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("value of type {kind} cannot be sliced"),
        )),
    }
}
