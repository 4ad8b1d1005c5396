#include "worker/device/linked_device.h"

namespace quire {

const LinkedDevice* FindLinkedDevice(std::string_view /*device*/) { return nullptr; }

}  // namespace quire
