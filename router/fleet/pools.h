// Which model a request's name refers to: names, aliases, pins, and the share of each model while
// several are served under one name.
//
// Pure functions over plain values; any thread. A request is resolved once, when it begins, and
// stays with its model.
//  1. A name is shared by ready capacity (rows of ready workers), or by the weights that were set
//     for it; a model without a ready worker gets nothing while another one has some.
//  2. Equal keys get equal models as long as shares do not change, and a change moves only the keys
//     that it must (weighted rendezvous hashing: Schindelhauer and Schomaker, "Weighted Distributed
//     Hash Tables", 2005).
//  3. An adapter is a name like any other: its pools have the model_id of their model, and the
//     digest of the adapter, which takes the place of the model_id in weights and shares.
//  4. A model_id may be named by a prefix. A prefix refers to the first model_id that was seen with
//     it; later ones with the same prefix are refused as ambiguous.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/wire/values.h"
#include "router/core/limits.h"

namespace quire {

using PoolIndex = StrongId<struct PoolIndexTag, uint32_t>;

struct Pool {
  PoolIndex index;
  std::string name;
  std::string model_id;
  int64_t created = 0;       // unix seconds when this router first saw it
  std::string adapter = {};  // its digest; empty: the model alone
  std::string parent = {};   // of an adapter: a served name of its model
};
// What a resumed answer needs: the model_id, and with an adapter that one's digest too.
std::string AnswererOf(std::string_view model_id, std::string_view adapter);

struct PoolWeight {
  std::string model_id;  // or its beginning; of an adapter's name: a digest
  uint32_t weight = 0;
};

struct PoolRules {
  std::map<std::string, std::string> aliases;              // to a served name
  std::map<std::string, std::string> pins;                 // by served name: its only model_id
  std::map<std::string, std::vector<PoolWeight>> weights;  // by served name
};

// As flags give them: NAME=SERVED, NAME=MODEL_ID, NAME=MODEL_ID:WEIGHT,... INVALID_ARGUMENT names
// the flag and what would work.
struct PoolFlags {
  std::vector<std::string> aliases, pins, weights;
};
absl::StatusOr<PoolRules> ReadPoolRules(const PoolFlags& flags);

// The served name that a client's name refers to.
const std::string& Unaliased(const PoolRules& rules, const std::string& name);

// Why a worker with this Hello may not be used, in words; empty: it may be used. `pools` are those
// known so far.
std::string RefusalByPin(const PoolRules& rules, const WorkerHello& hello,
                         std::span<const Pool> pools);

// The input of a name's shares.
struct PoolCapacity {
  const Pool* pool = nullptr;
  uint64_t ready_rows = 0;  // of its model's ready workers, with an adapter of those that name it
  uint32_t ready_workers = 0;
  bool attached = false;  // it has a worker, whether or not that worker is usable
};

// Each entry's share of new requests, in the order of `of_name`, which are the pools of one name.
// All 0: no worker is ready.
std::vector<uint64_t> PoolShares(const PoolRules& rules, std::span<const PoolCapacity> of_name);

// The pool in which a request with this key begins. If none is ready, a pool that at least has a
// worker; of several, the one seen last. nullptr when the name has no pool, or none that its
// weights name.
const Pool* ChoosePool(const PoolRules& rules, std::span<const PoolCapacity> of_name, uint64_t key);

// The meaning of an absent name: the first name under which every model is served, without an
// adapter. nullptr: there is none.
const std::string* OnlyName(std::span<const Pool> pools);

}  // namespace quire
