//! Rewrites a parsed template so that everything that can grow goes through a function of ours.
//!
//! The engine's tree comes in, the same tree comes out with calls put around operators, subscripts,
//! literals and filters, and with methods and assignments to namespaces made calls. The functions
//! (`template.rs`) charge a budget and give Python's meaning where the engine's differs. Their
//! names start with a character that no template can write.

use minijinja::machinery::ast::{
    AutoEscape, BinOp, BinOpKind, Call, CallArg, CallBlock, Compare, CompareOp, Const, EmitExpr,
    Expr, Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr, List, Macro, Map, Set,
    SetBlock, Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var, WithBlock,
};
use minijinja::machinery::Span;
use minijinja::value::Value;

/// Charges for reading the argument and gives it back.
pub const TOUCH: &str = "\u{1}touch";
/// The same for the argument with all that it holds.
pub const WEIGH: &str = "\u{1}weigh";
/// The same, and gives it back as it compares: a text without its marks.
pub const PLAIN: &str = "\u{1}plain";
/// Charges for the argument as something new and gives it back.
pub const MADE: &str = "\u{1}made";
/// The two for values of which only text is read or made, and the rest shared.
pub const TOUCH_TEXT: &str = "\u{1}touch_text";
pub const MADE_TEXT: &str = "\u{1}made_text";
pub const SLICE: &str = "\u{1}slice";
pub const MULTIPLY: &str = "\u{1}multiply";
pub const REMAINDER: &str = "\u{1}remainder";
pub const CONCAT: &str = "\u{1}concat";
pub const ITEM: &str = "\u{1}item";
pub const METHOD: &str = "\u{1}method";
pub const ASSIGN: &str = "\u{1}assign";
/// Variables of the rewriting itself.
const NOTHING: &str = "\u{1}nothing";
const CAPTURED: &str = "\u{1}captured";

/// Filters whose work grows with the number of items or with what these hold.
const HEAVY_FILTERS: [&str; 10] =
    ["sort", "unique", "min", "max", "groupby", "dictsort", "sum", "batch", "slice", "map"];
/// Filters that walk the items of a list, but not what these hold.
const WALKING_FILTERS: [&str; 7] =
    ["list", "reverse", "items", "select", "reject", "selectattr", "rejectattr"];
const HEAVY_TESTS: [&str; 14] = [
    "eq",
    "equalto",
    "==",
    "ne",
    "!=",
    "lt",
    "lessthan",
    "<",
    "le",
    "gt",
    "greaterthan",
    ">",
    "ge",
    "in",
];

type Rewritten<T> = Result<T, String>;

pub fn rewrite<'a>(template: &Stmt<'a>) -> Rewritten<Stmt<'a>> {
    match template {
        Stmt::Template(t) => {
            Ok(Stmt::Template(Spanned::new(Template { children: body(&t.children)? }, t.span())))
        }
        _ => Err("not a template".to_owned()),
    }
}

fn call<'a>(name: &'static str, args: Vec<Expr<'a>>, span: Span) -> Expr<'a> {
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(Call { expr: var(name, span), args }, span))
}

fn var<'a>(id: &'a str, span: Span) -> Expr<'a> {
    Expr::Var(Spanned::new(Var { id }, span))
}

fn text<'a>(value: &str, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(Const { value: Value::from(value) }, span))
}

fn body<'a>(statements: &[Stmt<'a>]) -> Rewritten<Vec<Stmt<'a>>> {
    let mut out = Vec::with_capacity(statements.len());
    for statement in statements {
        stmt(statement, &mut out)?;
    }
    Ok(out)
}

fn line(span: Span) -> u16 {
    span.start_line
}

fn stmt<'a>(statement: &Stmt<'a>, out: &mut Vec<Stmt<'a>>) -> Rewritten<()> {
    let node = match statement {
        Stmt::EmitExpr(s) => {
            Stmt::EmitExpr(Spanned::new(EmitExpr { expr: expr(&s.expr)? }, s.span()))
        }
        // Raw text is emitted like a value, so that it is charged for.
        Stmt::EmitRaw(s) => {
            let node = EmitExpr { expr: text(s.raw, s.span()) };
            Stmt::EmitExpr(Spanned::new(node, s.span()))
        }
        Stmt::ForLoop(s) => Stmt::ForLoop(Spanned::new(
            ForLoop {
                target: target(&s.target)?,
                iter: expr(&s.iter)?,
                filter_expr: s.filter_expr.as_ref().map(expr).transpose()?,
                recursive: s.recursive,
                body: body(&s.body)?,
                else_body: body(&s.else_body)?,
            },
            s.span(),
        )),
        Stmt::IfCond(s) => Stmt::IfCond(Spanned::new(
            IfCond {
                expr: expr(&s.expr)?,
                true_body: body(&s.true_body)?,
                false_body: body(&s.false_body)?,
            },
            s.span(),
        )),
        Stmt::WithBlock(s) => Stmt::WithBlock(Spanned::new(
            WithBlock {
                assignments: s
                    .assignments
                    .iter()
                    .map(|(to, from)| Ok((target(to)?, expr(from)?)))
                    .collect::<Rewritten<_>>()?,
                body: body(&s.body)?,
            },
            s.span(),
        )),
        Stmt::Set(s) => assignment(&s.target, expr(&s.expr)?, s.span())?,
        Stmt::SetBlock(s) => {
            let capture = |to| -> Rewritten<Stmt<'a>> {
                let filter = s.filter.as_ref().map(expr).transpose()?;
                let node = SetBlock { target: to, filter, body: body(&s.body)? };
                Ok(Stmt::SetBlock(Spanned::new(node, s.span())))
            };
            if matches!(s.target, Expr::GetAttr(_)) {
                out.push(capture(var(CAPTURED, s.span()))?);
                assignment(&s.target, var(CAPTURED, s.span()), s.span())?
            } else {
                capture(target(&s.target)?)?
            }
        }
        Stmt::AutoEscape(s) => {
            let node = AutoEscape { enabled: expr(&s.enabled)?, body: body(&s.body)? };
            Stmt::AutoEscape(Spanned::new(node, s.span()))
        }
        Stmt::FilterBlock(s) => {
            let node = FilterBlock { filter: expr(&s.filter)?, body: body(&s.body)? };
            Stmt::FilterBlock(Spanned::new(node, s.span()))
        }
        Stmt::Macro(s) => Stmt::Macro(Spanned::new(macro_node(s)?, s.span())),
        Stmt::CallBlock(s) => Stmt::CallBlock(Spanned::new(
            CallBlock {
                call: Spanned::new(plain_call(&s.call)?, s.call.span()),
                macro_decl: Spanned::new(macro_node(&s.macro_decl)?, s.macro_decl.span()),
            },
            s.span(),
        )),
        Stmt::Continue(s) => {
            Stmt::Continue(Spanned::new(minijinja::machinery::ast::Continue, s.span()))
        }
        Stmt::Break(s) => Stmt::Break(Spanned::new(minijinja::machinery::ast::Break, s.span())),
        Stmt::Do(s) => return Err(format!("line {}: unknown tag 'do'", line(s.span()))),
        Stmt::Block(s) => return Err(no_other_templates("block", s.span())),
        Stmt::Import(s) => return Err(no_other_templates("import", s.span())),
        Stmt::FromImport(s) => return Err(no_other_templates("import", s.span())),
        Stmt::Extends(s) => return Err(no_other_templates("extends", s.span())),
        Stmt::Include(s) => return Err(no_other_templates("include", s.span())),
        Stmt::Template(_) => return Err("a template inside a template".to_owned()),
    };
    out.push(node);
    Ok(())
}

fn no_other_templates(tag: &str, span: Span) -> String {
    format!("line {}: '{tag}' is not supported: a chat template stands alone", line(span))
}

fn macro_node<'a>(node: &Macro<'a>) -> Rewritten<Macro<'a>> {
    Ok(Macro {
        name: node.name,
        args: node.args.iter().map(target).collect::<Rewritten<_>>()?,
        defaults: exprs(&node.defaults)?,
        body: body(&node.body)?,
    })
}

fn plain_call<'a>(node: &Call<'a>) -> Rewritten<Call<'a>> {
    let callee = match &node.expr {
        Expr::Var(v) => var(v.id, v.span()),
        Expr::GetAttr(a) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: expr(&a.expr)?, name: a.name }, a.span()))
        }
        other => expr(other)?,
    };
    Ok(Call { expr: callee, args: args(&node.args)? })
}

/// `{% set to = from %}`; attributes belong to namespaces and are set by a call.
fn assignment<'a>(to: &Expr<'a>, from: Expr<'a>, span: Span) -> Rewritten<Stmt<'a>> {
    let node = match to {
        Expr::GetAttr(a) => {
            let name = text(a.name, a.span());
            let assign = call(ASSIGN, vec![expr(&a.expr)?, name, from], span);
            Set { target: var(NOTHING, span), expr: assign }
        }
        _ => Set { target: target(to)?, expr: from },
    };
    Ok(Stmt::Set(Spanned::new(node, span)))
}

/// What may be assigned to: names, and lists of names.
fn target<'a>(to: &Expr<'a>) -> Rewritten<Expr<'a>> {
    Ok(match to {
        Expr::Var(v) => var(v.id, v.span()),
        Expr::List(l) => {
            let items = l.items.iter().map(target).collect::<Rewritten<_>>()?;
            Expr::List(Spanned::new(List { items }, l.span()))
        }
        Expr::Tuple(t) => {
            let items = t.items.iter().map(target).collect::<Rewritten<_>>()?;
            Expr::Tuple(Spanned::new(Tuple { items }, t.span()))
        }
        other => {
            return Err(format!(
                "line {}: can't assign to this {}",
                line(other.span()),
                other.description()
            ))
        }
    })
}

fn exprs<'a>(list: &[Expr<'a>]) -> Rewritten<Vec<Expr<'a>>> {
    list.iter().map(expr).collect()
}

fn args<'a>(list: &[CallArg<'a>]) -> Rewritten<Vec<CallArg<'a>>> {
    list.iter()
        .map(|arg| {
            Ok(match arg {
                CallArg::Pos(e) => CallArg::Pos(expr(e)?),
                CallArg::Kwarg(name, e) => CallArg::Kwarg(name, expr(e)?),
                CallArg::PosSplat(e) => CallArg::PosSplat(expr(e)?),
                CallArg::KwargSplat(e) => CallArg::KwargSplat(expr(e)?),
            })
        })
        .collect()
}

fn option<'a>(inner: &Option<Expr<'a>>) -> Rewritten<Option<Expr<'a>>> {
    inner.as_ref().map(expr).transpose()
}

fn expr<'a>(e: &Expr<'a>) -> Rewritten<Expr<'a>> {
    let span = e.span();
    Ok(match e {
        Expr::Var(v) => var(v.id, span),
        Expr::Const(c) => Expr::Const(Spanned::new(Const { value: c.value.clone() }, span)),
        Expr::Slice(s) => {
            let bound = |e: &Option<Expr<'a>>| {
                let none = || Expr::Const(Spanned::new(Const { value: Value::from(()) }, span));
                Ok::<_, String>(option(e)?.unwrap_or_else(none))
            };
            let subject = call(TOUCH, vec![expr(&s.expr)?], span);
            let parts = vec![subject, bound(&s.start)?, bound(&s.stop)?, bound(&s.step)?];
            call(MADE, vec![call(SLICE, parts, span)], span)
        }
        Expr::UnaryOp(u) => {
            #[allow(clippy::needless_match)] // The kind of a unary operator is not Copy.
            let op = match u.op {
                UnaryOpKind::Not => UnaryOpKind::Not,
                UnaryOpKind::Neg => UnaryOpKind::Neg,
            };
            Expr::UnaryOp(Spanned::new(UnaryOp { op, expr: expr(&u.expr)? }, span))
        }
        Expr::BinOp(b) => binary(b, span)?,
        Expr::Compare(c) => compare(c, span)?,
        Expr::IfExpr(i) => {
            let node = IfExpr {
                test_expr: expr(&i.test_expr)?,
                true_expr: expr(&i.true_expr)?,
                false_expr: option(&i.false_expr)?,
            };
            Expr::IfExpr(Spanned::new(node, span))
        }
        Expr::Filter(f) => filter(f, span)?,
        Expr::Test(t) => {
            let heavy = HEAVY_TESTS.contains(&t.name);
            let subject = expr(&t.expr)?;
            let subject = if heavy { plain(subject, span) } else { subject };
            let mut list = args(&t.args)?;
            if heavy {
                list = list.into_iter().map(|arg| plain_arg(arg, span)).collect();
            }
            let node = Test { name: t.name, expr: subject, args: list };
            Expr::Test(Spanned::new(node, span))
        }
        Expr::GetAttr(a) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: expr(&a.expr)?, name: a.name }, span))
        }
        Expr::GetItem(i) => item(i, span)?,
        Expr::Call(c) => method(c, span)?,
        Expr::List(l) => {
            let node = Expr::List(Spanned::new(List { items: exprs(&l.items)? }, span));
            literal(node, l.items.is_empty(), span)
        }
        Expr::Tuple(t) => {
            let node = Expr::Tuple(Spanned::new(Tuple { items: exprs(&t.items)? }, span));
            literal(node, t.items.is_empty(), span)
        }
        Expr::Map(m) => {
            let node = Map { keys: exprs(&m.keys)?, values: exprs(&m.values)? };
            literal(Expr::Map(Spanned::new(node, span)), m.keys.is_empty(), span)
        }
    })
}

/// Literals are where values come to hold values, so the result is weighed: that bounds their
/// depth.
fn literal<'a>(node: Expr<'a>, empty: bool, span: Span) -> Expr<'a> {
    if empty {
        return node;
    }
    call(WEIGH, vec![call(MADE, vec![node], span)], span)
}

fn binary<'a>(b: &BinOp<'a>, span: Span) -> Rewritten<Expr<'a>> {
    let (left, right) = (expr(&b.left)?, expr(&b.right)?);
    let node = |left, right| Expr::BinOp(Spanned::new(BinOp { op: b.op, left, right }, span));
    Ok(match b.op {
        BinOpKind::ScAnd | BinOpKind::ScOr => node(left, right),
        BinOpKind::Mul => call(MULTIPLY, vec![left, right], span),
        BinOpKind::Rem => call(REMAINDER, vec![left, right], span),
        BinOpKind::Concat => call(CONCAT, vec![left, right], span),
        BinOpKind::Add => call(MADE, vec![node(left, right)], span),
        BinOpKind::Sub | BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Pow => node(left, right),
        BinOpKind::In => node(plain(left, span), plain(right, span)),
        BinOpKind::Eq
        | BinOpKind::Ne
        | BinOpKind::Lt
        | BinOpKind::Lte
        | BinOpKind::Gt
        | BinOpKind::Gte => node(plain(left, span), plain(right, span)),
    })
}

/// An operand of a comparison. The template's own constants are short and hold no marks.
fn plain<'a>(operand: Expr<'a>, span: Span) -> Expr<'a> {
    match operand {
        Expr::Const(_) => operand,
        _ => call(PLAIN, vec![operand], span),
    }
}

fn plain_arg<'a>(arg: CallArg<'a>, span: Span) -> CallArg<'a> {
    match arg {
        CallArg::Pos(e) => CallArg::Pos(plain(e, span)),
        other => other,
    }
}

fn compare<'a>(c: &Compare<'a>, span: Span) -> Rewritten<Expr<'a>> {
    let mut ops = Vec::with_capacity(c.ops.len());
    for op in &c.ops {
        ops.push(CompareOp { op: op.op, expr: plain(expr(&op.expr)?, span) });
    }
    let first = plain(expr(&c.expr)?, span);
    Ok(Expr::Compare(Spanned::new(Compare { expr: first, ops }, span)))
}

fn filter<'a>(f: &Filter<'a>, span: Span) -> Rewritten<Expr<'a>> {
    let heavy = HEAVY_FILTERS.contains(&f.name);
    let (before, after) = if heavy {
        (WEIGH, MADE)
    } else if WALKING_FILTERS.contains(&f.name) {
        (TOUCH, MADE)
    } else {
        (TOUCH_TEXT, MADE_TEXT)
    };
    let subject = match &f.expr {
        None => None,
        Some(e) => Some(call(before, vec![expr(e)?], span)),
    };
    let node = Filter { name: f.name, expr: subject, args: args(&f.args)? };
    let whole = Expr::Filter(Spanned::new(node, span));
    // Without a subject this is the filter of a block, which the engine wants to see itself.
    if f.expr.is_none() {
        return Ok(whole);
    }
    let made = call(after, vec![whole], span);
    Ok(if heavy { call(WEIGH, vec![made], span) } else { made })
}

fn item<'a>(i: &GetItem<'a>, span: Span) -> Rewritten<Expr<'a>> {
    Ok(call(ITEM, vec![expr(&i.expr)?, expr(&i.subscript_expr)?], span))
}

/// Methods are looked up by `METHOD` in Python's order: the type's own before keys of the same
/// name.
fn method<'a>(c: &Call<'a>, span: Span) -> Rewritten<Expr<'a>> {
    let Expr::GetAttr(attribute) = &c.expr else {
        return Ok(Expr::Call(Spanned::new(plain_call(c)?, span)));
    };
    if matches!(&attribute.expr, Expr::Var(v) if v.id == "self") {
        return Err(no_other_templates("self", span));
    }
    let mut list =
        vec![CallArg::Pos(expr(&attribute.expr)?), CallArg::Pos(text(attribute.name, span))];
    list.extend(args(&c.args)?);
    Ok(Expr::Call(Spanned::new(Call { expr: var(METHOD, span), args: list }, span)))
}
