// The order in which requests get rows and pages.
#pragma once

#include <cstdint>

namespace quire {

// kFcfs: in order of arrival, priorities are ignored. kPriority: the lower number first. Within a
// priority tenants get equal shares, and within a tenant arrival decides.
enum class SchedulingPolicy : uint8_t { kFcfs, kPriority };

}  // namespace quire
