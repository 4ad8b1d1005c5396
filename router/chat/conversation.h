// Builds the messages of a chat from the items or blocks of APIs that have other shapes.
//
// Pure; one owner. Templates differ in what they take, so the result is what all of them take: one
// system message in front, turns of user and assistant by turns, results of tools behind the calls
// that asked for them.
//  1. Texts of one turn are joined by a newline, as the parts of a chat's message are.
//  2. Instructions behind the first turn become a part of the user's turn: most templates refuse a
//     system message there.
//  3. A longer conversation only appends to a shorter one, once an assistant's turn follows: what
//     was cached of it stays of use.
//  4. A result repeats the name of its call, so that a conversation can grow by more than what came
//     in: its owner checks it after each item, and it ends at --max-prompt-bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "router/chat/json_fields.h"

namespace quire {

class Conversation {
 public:
  // `charged`: what its owner has charged for it already.
  explicit Conversation(size_t charged = 0) : charged_(charged) {}

  void Instruct(std::string_view text);
  void User(std::string_view text);
  void Assistant(std::string_view text);
  void Think(std::string_view text);
  // `arguments_json`: an object, or any JSON value.
  void Call(std::string_view id, std::string_view name, std::string_view arguments_json);
  void Result(std::string_view call_id, std::string_view text);

  // Call it after each item: charges what it holds beyond what was charged. `field` is named where
  // it is too long, or where there is no memory for it.
  FieldError Check(std::string_view field, const RequestLimits& limits);
  void AddCharged(size_t bytes) { charged_ += bytes; }

  // A list of messages; "[]" when there was none. The object is spent.
  std::string TakeJson();

 private:
  enum class Turn { kNone, kUser, kAssistant };

  static void Join(std::string_view text, std::string& to);
  void Open(Turn turn);
  void CloseTurn();
  void AppendThought();
  void AppendMessage(std::string_view role, std::string_view content);

  std::string system_;
  std::string messages_;  // without the brackets
  Turn turn_ = Turn::kNone;
  bool begun_ = false;  // some turn came: instructions are not in front any more
  std::string text_;    // of the turn that is open
  std::string thought_;
  std::string calls_;
  std::map<std::string, std::string, std::less<>> names_;  // of the calls so far, by id
  size_t names_bytes_ = 0;                                 // what these take
  size_t charged_;
};

// A thought as text that a client keeps and sends back unread, and back. Nothing is secret about
// it: it is base64.
std::string PackThought(std::string_view thought);
// Empty: this is none of ours.
std::string UnpackThought(std::string_view packed);

}  // namespace quire
