//! The C functions. Pointers with sizes come in, owned buffers go out and are freed by
//! `qtb_*_free`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::marks;
use crate::reference;
use crate::template::{LoadedTemplate, Request};
use crate::tokenizer::LoadedTokenizer;
use crate::work::Work;
use crate::{Failure, INTERNAL, OK};

/// A span of bytes that the caller owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QtbSpan {
    pub data: *const u8,
    pub size: usize,
}

/// Bytes that belong to the bridge until `qtb_bytes_free`.
#[repr(C)]
pub struct QtbBytes {
    pub data: *mut u8,
    pub size: usize,
}

/// Ids that belong to the bridge until `qtb_ids_free`.
#[repr(C)]
pub struct QtbIds {
    pub data: *mut u32,
    pub size: usize,
}

/// Tables that live as long as the tokenizer.
#[repr(C)]
pub struct QtbTables {
    pub bytes: *const u8,
    pub offsets: *const u32,
    pub flags: *const u8,
    pub vocab_size: usize,
    pub prefix: *const u32,
    pub prefix_size: usize,
    pub suffix: *const u32,
    pub suffix_size: usize,
    pub byte_fallback: u8,
    pub strip_first_token_spaces: u8,
    pub strip_leading_spaces: u32,
}

impl QtbSpan {
    /// SAFETY: `data` points at `size` readable bytes that outlive the call, or `size` is 0.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        std::slice::from_raw_parts(self.data, self.size)
    }

    /// SAFETY: as `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.bytes()).map_err(|e| {
            Failure::invalid(format!("{what} is not UTF-8 at byte {}", e.valid_up_to()))
        })
    }
}

fn leak_bytes(bytes: Vec<u8>) -> QtbBytes {
    let boxed = bytes.into_boxed_slice();
    let size = boxed.len();
    QtbBytes { data: Box::into_raw(boxed) as *mut u8, size }
}

fn leak_ids(ids: Vec<u32>) -> QtbIds {
    let boxed = ids.into_boxed_slice();
    let size = boxed.len();
    QtbIds { data: Box::into_raw(boxed) as *mut u32, size }
}

/// Runs `work`, writes what it returns through `out`, and turns failures and panics into a code and
/// a message.
///
/// SAFETY: `out` and `error` are writable.
pub unsafe fn guarded<T>(
    out: *mut T,
    error: *mut QtbBytes,
    work: impl FnOnce() -> Result<T, Failure>,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure { code: INTERNAL, message: format!("the text library gave up: {said}") })
    });
    match result {
        Ok(value) => {
            out.write(value);
            OK
        }
        Err(failure) => {
            let line = failure.message.replace(['\n', '\r'], " ");
            error.write(leak_bytes(line.into_bytes()));
            failure.code
        }
    }
}

/// The panics of hostile input are reported as errors, so the default hook's report on stderr is
/// noise.
pub fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}

#[no_mangle]
pub extern "C" fn qtb_on_no_memory(hook: extern "C" fn()) {
    crate::counting::on_no_memory(hook);
}

/// # Safety
/// `bytes` came from this bridge and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_bytes_free(bytes: QtbBytes) {
    if !bytes.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)));
    }
}

/// # Safety
/// `ids` came from this bridge and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_ids_free(ids: QtbIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// # Safety
/// `json` is readable; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_tokenizer_new(
    json: QtbSpan,
    max_vocab: usize,
    out: *mut *const LoadedTokenizer,
    error: *mut QtbBytes,
) -> i32 {
    quiet_panics();
    guarded(out, error, || {
        // Vocabularies of constraints own it, too.
        Ok(Arc::into_raw(Arc::new(LoadedTokenizer::load(json.text("tokenizer.json")?, max_vocab)?)))
    })
}

/// # Safety
/// `tokenizer` came from `qtb_tokenizer_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_tokenizer_free(tokenizer: *const LoadedTokenizer) {
    if !tokenizer.is_null() {
        let tokenizer = Arc::from_raw(tokenizer);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(tokenizer)));
    }
}

/// # Safety
/// `tokenizer` is alive and outlives the tables.
#[no_mangle]
pub unsafe extern "C" fn qtb_tokenizer_tables(tokenizer: *const LoadedTokenizer) -> QtbTables {
    let tokenizer = &*tokenizer;
    QtbTables {
        bytes: tokenizer.tables.bytes.as_ptr(),
        offsets: tokenizer.tables.offsets.as_ptr(),
        flags: tokenizer.tables.flags.as_ptr(),
        vocab_size: tokenizer.tables.flags.len(),
        prefix: tokenizer.prefix.as_ptr(),
        prefix_size: tokenizer.prefix.len(),
        suffix: tokenizer.suffix.as_ptr(),
        suffix_size: tokenizer.suffix.len(),
        byte_fallback: tokenizer.rules.byte_fallback as u8,
        strip_first_token_spaces: tokenizer.rules.strip_first_token_spaces as u8,
        strip_leading_spaces: tokenizer.rules.strip_leading_spaces,
    }
}

/// What to encode.
#[repr(C)]
pub struct QtbEncode {
    pub text: QtbSpan,
    /// Null, or a flag that another thread sets when it gives up.
    pub cancelled: *const bool,
    pub add_special_tokens: u8,
    /// The text is one that `qtb_template_render` has marked.
    pub marked: u8,
    /// Null, or where the steps go that the call took.
    pub steps: *mut u64,
}

/// SAFETY: `flag` is null, or outlives the call and is written as an atomic.
pub unsafe fn flag<'a>(flag: *const bool) -> Option<&'a AtomicBool> {
    if flag.is_null() {
        return None;
    }
    Some(AtomicBool::from_ptr(flag.cast_mut()))
}

/// # Safety
/// `tokenizer` is alive, all that `encode` points at is readable, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_encode(
    tokenizer: *const LoadedTokenizer,
    encode: *const QtbEncode,
    out: *mut QtbIds,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || {
        let encode = &*encode;
        let text = encode.text.text("the text")?;
        let (text, mark) = if encode.marked != 0 { marks::read(text) } else { (text, None) };
        let specials = encode.add_special_tokens != 0;
        let work = Work::new(text.len(), flag(encode.cancelled));
        let ids = (*tokenizer).encode(text, specials, mark, &work);
        if !encode.steps.is_null() {
            encode.steps.write(work.spent());
        }
        Ok(leak_ids(ids?))
    })
}

/// # Safety
/// `tokenizer` is alive and `text` is readable. 0: nothing is known.
#[no_mangle]
pub unsafe extern "C" fn qtb_fewest_tokens(
    tokenizer: *const LoadedTokenizer,
    text: QtbSpan,
    marked: u8,
) -> usize {
    let fewest = catch_unwind(AssertUnwindSafe(|| {
        let text = std::str::from_utf8(text.bytes()).unwrap_or_default();
        let (text, mark) = if marked != 0 { marks::read(text) } else { (text, None) };
        (*tokenizer).fewest_tokens(text, mark)
    }));
    fewest.unwrap_or(0)
}

/// # Safety
/// `json` and `text` are readable, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_encode_by_reference(
    json: QtbSpan,
    text: QtbSpan,
    add_special_tokens: u8,
    out: *mut QtbIds,
    error: *mut QtbBytes,
) -> i32 {
    quiet_panics();
    guarded(out, error, || {
        let text = text.text("the text")?;
        Ok(leak_ids(reference::encode(json.bytes(), text, add_special_tokens != 0)?))
    })
}

/// # Safety `tokenizer` is alive, `out` and `error` are writable. `out` gets the piece as the
/// vocabulary spells it.
#[no_mangle]
pub unsafe extern "C" fn qtb_tokenizer_piece(
    tokenizer: *const LoadedTokenizer,
    id: u32,
    out: *mut QtbBytes,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || {
        let piece = (*tokenizer).piece(id).unwrap_or_default();
        Ok(leak_bytes(piece.as_bytes().to_vec()))
    })
}

/// # Safety
/// `tokenizer` is alive and `piece` is readable. -1: no such piece.
#[no_mangle]
pub unsafe extern "C" fn qtb_tokenizer_id(
    tokenizer: *const LoadedTokenizer,
    piece: QtbSpan,
) -> i64 {
    let found = catch_unwind(AssertUnwindSafe(|| {
        let piece = std::str::from_utf8(piece.bytes()).ok()?;
        (*tokenizer).id(piece)
    }));
    found.ok().flatten().map_or(-1, i64::from)
}

/// A special token under its name, as a template variable.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct QtbNamed {
    pub name: QtbSpan,
    pub text: QtbSpan,
}

/// What to render.
#[repr(C)]
pub struct QtbRender {
    pub messages_json: QtbSpan,
    pub tools_json: QtbSpan,
    pub extra_json: QtbSpan,
    pub special_tokens: *const QtbNamed,
    pub special_tokens_size: usize,
    /// Null, or a flag that another thread sets when it gives up.
    pub cancelled: *const bool,
    pub now_unix_seconds: i64,
    pub max_output_bytes: usize,
    pub add_generation_prompt: u8,
    pub continue_final_message: u8,
    /// Null, or whose special tokens messages can't spell.
    pub tokenizer: *const LoadedTokenizer,
}

/// # Safety
/// `source` is readable; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_template_new(
    source: QtbSpan,
    out: *mut *mut LoadedTemplate,
    error: *mut QtbBytes,
) -> i32 {
    quiet_panics();
    guarded(out, error, || {
        let source = source.text("the chat template")?;
        Ok(Box::into_raw(Box::new(LoadedTemplate::load(source)?)))
    })
}

/// # Safety
/// `template` came from `qtb_template_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn qtb_template_free(template: *mut LoadedTemplate) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// `template` is alive, all spans of `render` are readable, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn qtb_template_render(
    template: *const LoadedTemplate,
    render: *const QtbRender,
    out: *mut QtbBytes,
    error: *mut QtbBytes,
) -> i32 {
    guarded(out, error, || {
        let render = &*render;
        let mut special_tokens = Vec::with_capacity(render.special_tokens_size);
        for i in 0..render.special_tokens_size {
            let named = *render.special_tokens.add(i);
            special_tokens
                .push((named.name.text("special token")?, named.text.text("special token")?));
        }
        let request = Request {
            messages: render.messages_json.text("messages")?,
            tools: render.tools_json.text("tools")?,
            extra: render.extra_json.text("chat_template_kwargs")?,
            special_tokens,
            add_generation_prompt: render.add_generation_prompt != 0,
            continue_final_message: render.continue_final_message != 0,
            now: render.now_unix_seconds,
            max_output: render.max_output_bytes,
            cancelled: flag(render.cancelled),
            tokenizer: render.tokenizer.as_ref(),
        };
        Ok(leak_bytes((*template).render(&request)?.into_bytes()))
    })
}
