"use strict";
// Markdown of an answer as elements of the page. Every character of it becomes text by way of
// textContent: no markup of a model is ever read as markup, no picture is loaded.

const KEYWORDS = new Set(("and as async await break case catch class const continue def default delete do elif else enum except export " +
  "extends false finally fn for from func function go if impl import in interface let match mod module mut new nil none not null or " +
  "package pass private protected pub public raise return self select static struct super switch template this throw true try type " +
  "typedef typeof union unsafe use using var virtual void where while with yield").split(" "));
// Comments, strings, numbers, words.
const TOKENS = /(\/\/[^\n]*|#(?!include)[^\n]*|--[^\n]*|\/\*[^]*?\*\/)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(\b\d[\w.]*\b)|(\b[A-Za-z_]\w*\b)/g;
const MOST_COLOURED = 20000; // characters of one piece of code

function made(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function colouredCode(source) {
  const code = made("code");
  if (source.length > MOST_COLOURED) {
    code.textContent = source;
    return code;
  }
  let at = 0;
  for (const found of source.matchAll(TOKENS)) {
    const kind = found[1] ? "comment" : found[2] ? "string" : found[3] ? "number" : KEYWORDS.has(found[4].toLowerCase()) ? "word" : "";
    if (!kind) continue;
    code.append(source.slice(at, found.index), made("span", `code-${kind}`, found[0]));
    at = found.index + found[0].length;
  }
  code.append(source.slice(at));
  return code;
}

const INLINE = /(`+)([^]*?[^`])\1(?!`)|\*\*([^\s*][^*]*?)\*\*|__([^\s_][^_]*?)__|\*([^\s*][^*]*?)\*|\[([^\]\n]{1,500})\]\((https?:\/\/[^\s()<>"]{1,2000})\)/g;

function inline(text, into) {
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    into.append(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[1]) into.append(made("code", "", found[2]));
    else if (found[3] || found[4]) into.append(made("strong", "", found[3] || found[4]));
    else if (found[5]) into.append(made("em", "", found[5]));
    else {
      const link = made("a", "", found[6]);
      link.href = found[7];
      link.title = found[7];
      link.rel = "noopener noreferrer";
      link.target = "_blank";
      into.append(link);
    }
  }
  into.append(text.slice(at));
  return into;
}

// The blocks of a text, in its order: {kind, text}. What is behind an open fence is code.
function blocksOf(text) {
  const blocks = [];
  let open = null;
  const put = (kind, line) => {
    if (open && open.kind === kind) open.text += `\n${line}`;
    else blocks.push((open = { kind, text: line }));
  };
  let fence = "";
  for (const line of text.split("\n")) {
    const mark = /^\s*(```+|~~~+)\s*([\w+#.-]*)/.exec(line);
    if (fence) {
      if (mark && mark[1].startsWith(fence)) {
        fence = "";
        open = null;
      } else {
        open.text += open.begun ? `\n${line}` : line;
        open.begun = true;
      }
    } else if (mark) {
      fence = mark[1];
      blocks.push((open = { kind: "code", text: "", language: mark[2] }));
    } else if (/^\s*$/.test(line)) {
      open = null;
    } else if (/^#{1,6}\s/.test(line)) {
      blocks.push({ kind: "heading", text: line });
      open = null;
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      blocks.push({ kind: "rule", text: "" });
      open = null;
    } else if (/^\s*([-*+]|\d{1,9}[.)])\s/.test(line)) put("list", line);
    else if (/^\s*>/.test(line)) put("quote", line);
    else if (/^\s*\|.*\|\s*$/.test(line)) put("table", line);
    else put(open && (open.kind === "list" || open.kind === "quote") ? open.kind : "text", line);
  }
  return blocks;
}

function listOf(text) {
  const ordered = /^\s*\d/.test(text);
  const list = made(ordered ? "ol" : "ul");
  if (ordered) list.start = Number(/\d+/.exec(text)[0]);
  for (const line of text.split("\n")) {
    const item = /^(\s*)(?:[-*+]|\d{1,9}[.)])\s+([^]*)$/.exec(line);
    if (!item) {
      if (list.lastChild) inline(` ${line.trim()}`, list.lastChild);
      continue;
    }
    const entry = made("li");
    if (item[1].length > 1) entry.className = "nested";
    list.append(inline(item[2], entry));
  }
  return list;
}

function tableOf(text) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const rows = text.split("\n").map(cells);
  const table = made("table");
  const hasHead = rows.length > 1 && rows[1].every((cell) => /^:?-+:?$/.test(cell));
  rows.forEach((row, index) => {
    if (hasHead && index === 1) return;
    const line = made("tr");
    for (const cell of row) line.append(inline(cell, made(hasHead && index === 0 ? "th" : "td")));
    table.append(line);
  });
  return table;
}

function blockElement(block) {
  if (block.kind === "code") {
    const box = made("pre");
    box.append(colouredCode(block.text));
    const head = made("div", "code-head");
    const copy = made("button", "quiet", "Copy");
    copy.type = "button";
    copy.dataset.copies = "code";
    head.append(made("span", "", block.language || ""), copy);
    const whole = made("div", "code-block");
    whole.append(head, box);
    return whole;
  }
  if (block.kind === "heading") {
    const level = /^#+/.exec(block.text)[0].length;
    return inline(block.text.replace(/^#+\s+/, ""), made(`h${Math.min(6, level + 2)}`));
  }
  if (block.kind === "rule") return made("hr");
  if (block.kind === "list") return listOf(block.text);
  if (block.kind === "quote") return inline(block.text.replace(/^\s*>\s?/gm, ""), made("blockquote"));
  if (block.kind === "table") return tableOf(block.text);
  return inline(block.text, made("p"));
}

// Shows `text` in `box`: blocks that are there and unchanged stay, so that an answer that comes costs
// no more than its last block each time.
function showMarkdown(box, text) {
  const blocks = blocksOf(text);
  const known = box.blocks || [];
  let same = 0;
  while (same < known.length && same < blocks.length && known[same].kind === blocks[same].kind &&
         known[same].text === blocks[same].text && box.children[same]) same += 1;
  while (box.children.length > same) box.lastChild.remove();
  for (const block of blocks.slice(same)) box.append(blockElement(block));
  box.blocks = blocks;
}
