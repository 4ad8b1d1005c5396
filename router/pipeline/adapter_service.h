// Loads and unloads adapters at all workers of a model, for operators.
//
// Event loop only.
#pragma once

#include <memory>

#include "router/dispatch/dispatcher.h"
#include "router/pipeline/pipeline.h"

namespace quire {

// See Pipeline::OrderAdapters. The dispatcher outlives the task.
Result<std::unique_ptr<AdapterTask>> OrderAdaptersOf(Dispatcher& dispatcher, AdapterAsk ask,
                                                     AdapterDone done);

}  // namespace quire
