#include "worker/device/device_request.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace quire {
namespace {

using kernels::cuda::CudaVersionText;
using kernels::cuda::DriverDevice;
using kernels::cuda::DriverReport;

constexpr size_t kMaxIndexDigits = 3;

bool IsIndex(std::string_view name) {
  return !name.empty() && name.size() <= kMaxIndexDigits &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// 8-4-4-4-12 hexadecimal digits.
bool IsUuid(std::string_view name) {
  if (name.size() != 36) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? name[i] != '-' : std::isxdigit(static_cast<unsigned char>(name[i])) == 0) {
      return false;
    }
  }
  return true;
}

absl::Status Unavailable(const std::string& text) {
  return absl::UnavailableError(AbslView("--device: " + text));
}

std::string GiB(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", static_cast<double>(bytes) / (int64_t{1} << 30));
  return text;
}

std::string List(const std::vector<DriverDevice>& devices) {
  std::string text;
  for (const DriverDevice& device : devices) {
    text += (text.empty() ? "" : ", ") + DeviceText(device);
  }
  return text.empty() ? "none" : text;
}

// The fault of the driver itself.
absl::Status CheckDriver(const DeviceNeeds& needs, const DriverReport& report) {
  const std::string needed = CudaVersionText(needs.toolkit_version);
  if (report.version != 0 && report.version < needs.toolkit_version) {
    return Unavailable("the driver here serves CUDA up to " + CudaVersionText(report.version) +
                       ", this build needs " + needed +
                       "; install a newer driver, or set --device cpu");
  }
  if (!report.error.empty()) {
    return Unavailable("the CUDA driver cannot be used (" + report.error + "); a driver for CUDA " +
                       needed + " and a device are needed; install it, or set --device cpu");
  }
  if (report.devices.empty()) {
    return Unavailable(
        "the CUDA driver shows no device; at least one is needed: look at CUDA_VISIBLE_DEVICES "
        "and nvidia-smi, or set --device cpu");
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const DeviceNeeds& needs, const DriverDevice& device) {
  const std::string name = DeviceText(device);
  if (device.major < needs.oldest_major) {
    return Unavailable(name + " has compute capability " + std::to_string(device.major) + "." +
                       std::to_string(device.minor) + "; " + std::to_string(needs.oldest_major) +
                       ".0 or newer is needed; name another with --device cuda:INDEX, or set "
                       "--device cpu");
  }
  if (device.prohibited) {
    return Unavailable(name +
                       " is in the compute mode prohibited; set another with nvidia-smi -c "
                       "DEFAULT, or name another with --device cuda:INDEX");
  }
  if (!device.opened) {
    return Unavailable(name + " is busy or broken (" + device.open_error +
                       "); end what holds it alone, or name another with --device cuda:INDEX");
  }
  if (device.free_bytes < needs.least_bytes) {
    return Unavailable(name + " is too small: " + GiB(needs.least_bytes) +
                       " GiB must be free; end what else runs there, or name another with --device "
                       "cuda:INDEX");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceRequest> ParseDevice(std::string_view text) {
  DeviceRequest request;
  if (text == "auto") return request;
  request.kind = DeviceRequest::Kind::kCpu;
  if (text == "cpu") return request;
  request.kind = DeviceRequest::Kind::kCuda;
  if (text == "cuda") return request;
  const absl::Status wrong = InvalidArgument(
      "--device: must be auto, cpu, cuda, or cuda: with indices or UUIDs parted by commas, as in "
      "cuda:0,1, is '" +
      std::string(text) + "'");
  if (!text.starts_with("cuda:")) return wrong;
  text.remove_prefix(5);
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    std::string name(text.substr(0, comma));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name.starts_with("gpu-") || name.starts_with("mig-")) name.erase(0, 4);
    if (IsIndex(name)) {
      name = std::to_string(std::stoi(name));
    } else if (!IsUuid(name)) {
      return wrong;
    }
    if (std::find(request.names.begin(), request.names.end(), name) != request.names.end()) {
      return InvalidArgument("--device: " + name + " is named twice; a rank needs its own device");
    }
    request.names.push_back(std::move(name));
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return request;
}

bool IsWanted(const DeviceRequest& request, const DriverDevice& device) {
  if (request.names.empty()) return true;
  const auto is = [&device](const std::string& name) {
    return name == std::to_string(device.index) || name == device.uuid;
  };
  return std::any_of(request.names.begin(), request.names.end(), is);
}

absl::StatusOr<std::vector<DriverDevice>> ChooseDevices(const DeviceRequest& request,
                                                        const DeviceNeeds& needs,
                                                        const DriverReport& report) {
  QUIRE_RETURN_IF_ERROR(CheckDriver(needs, report));
  std::vector<DriverDevice> chosen;
  for (const std::string& name : request.names) {
    DeviceRequest one;
    one.names = {name};
    const auto found =
        std::find_if(report.devices.begin(), report.devices.end(),
                     [&one](const DriverDevice& device) { return IsWanted(one, device); });
    if (found == report.devices.end()) {
      return Unavailable("cuda:" + name + " is not there; found: " + List(report.devices) +
                         "; name one of these");
    }
    chosen.push_back(*found);
  }
  if (request.names.empty()) chosen = report.devices;
  if (static_cast<int>(chosen.size()) < needs.ranks) {
    return InvalidArgument("--tensor-parallel-size: " + std::to_string(needs.ranks) +
                           " ranks need a device each, " +
                           (request.names.empty() ? "found: " : "--device names: ") + List(chosen) +
                           "; use at most " + std::to_string(chosen.size()));
  }
  chosen.resize(static_cast<size_t>(needs.ranks));
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (chosen[i].index == chosen[j].index) {
        return InvalidArgument("--device: " + DeviceText(chosen[i]) +
                               " is named twice; a rank needs its own device");
      }
    }
    QUIRE_RETURN_IF_ERROR(CheckDevice(needs, chosen[i]));
  }
  return chosen;
}

std::string DeviceText(const DriverDevice& device) {
  std::string memory = GiB(device.total_bytes) + " GiB";
  if (device.opened) memory = GiB(device.free_bytes) + " of " + memory + " free";
  return std::to_string(device.index) + " (" + device.name + ", " + memory + ")";
}

}  // namespace quire
