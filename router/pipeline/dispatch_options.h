// What of a pipeline's settings is the dispatcher's.
//
// Pure functions; any thread.
#pragma once

#include "router/dispatch/dispatcher.h"
#include "router/pipeline/make_pipeline.h"

namespace quire {

// INVALID_ARGUMENT names the policies that there are.
absl::Status CheckPolicy(const PipelineOptions& options);
DispatchOptions MakeDispatchOptions(const PipelineOptions& options, RouterInstance instance);

}  // namespace quire
