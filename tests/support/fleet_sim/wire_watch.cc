#include "tests/support/fleet_sim/wire_watch.h"

#include <algorithm>

#include "quire/v1/worker.pb.h"

namespace quire::sim {

StreamTap WireWatch::NewStream() {
  const uint64_t stream = ++last_stream_;
  return {[this, stream](std::string_view bytes) { Wrote(stream, bytes); },
          [this, stream](std::string_view bytes) { Reads(stream, bytes); }};
}

void WireWatch::Asked(uint64_t request, bool streaming) {
  requests_[request].streaming = streaming;
}

void WireWatch::Told(uint64_t request, uint32_t choice, uint64_t count) {
  const Request& known = requests_[request];
  if (choice >= known.choices.size() || count > known.choices[choice].accepted) {
    Violate(request, "tells its client an output that its attempt did not send");
  }
}

void WireWatch::Took(uint64_t request, uint32_t choice, uint64_t count) {
  Request& known = requests_[request];
  if (choice >= known.choices.size()) return;
  Choice& here = known.choices[choice];
  here.taken = std::max(here.taken, std::min(count, here.accepted));
}

void WireWatch::Allowed(uint64_t number, const Request& request, size_t choice, uint64_t up_to) {
  const Choice& here = request.choices[choice];
  const uint64_t taken = request.streaming ? here.taken : here.accepted;
  if (up_to <= std::max(taken + window_, here.accepted + 1)) return;
  Violate(number, "lets a worker go up to " + std::to_string(up_to) + " when its client took " +
                      std::to_string(taken));
}

void WireWatch::Wrote(uint64_t stream, std::string_view bytes) {
  worker::v1::RouterFrame frame;
  if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return violate_("a router writes what is no frame");
  }
  if (frame.has_cancel()) {
    Request& request = requests_[frame.cancel().request_number()];
    request.given_up |= request.attempt == frame.cancel().attempt() && !frame.cancel().one_choice();
  }
  if (frame.has_grant()) {
    const uint64_t number = frame.grant().request_number();
    Request& request = requests_[number];
    if (frame.grant().choice() >= request.choices.size()) return;
    Allowed(number, request, frame.grant().choice(), frame.grant().up_to_index());
  }
  if (!frame.has_submit()) return;
  const worker::v1::Submit& submit = frame.submit();
  Request& request = requests_[submit.request_number()];
  const bool first = request.attempt == 0;
  if (submit.attempt() <= request.attempt) {
    Violate(submit.request_number(), "uses the number of an attempt again");
  }
  request.attempt = submit.attempt();
  request.stream = stream;
  request.given_up = false;
  request.choices.resize(static_cast<size_t>(submit.choices_size()));
  for (size_t i = 0; i < request.choices.size(); ++i) {
    const worker::v1::ResumedChoice& resumed = submit.choices(static_cast<int>(i));
    const auto outputs = static_cast<uint64_t>(resumed.outputs_size());
    if (first) request.choices[i] = {outputs, outputs};
    if (resumed.ended()) continue;
    if (outputs != request.choices[i].accepted) {
      Violate(submit.request_number(), "goes on from " + std::to_string(outputs) +
                                           " outputs when it has had " +
                                           std::to_string(request.choices[i].accepted));
    }
    if (submit.initial_window() > 0) {
      Allowed(submit.request_number(), request, i, outputs + submit.initial_window());
    }
  }
}

void WireWatch::Reads(uint64_t stream, std::string_view bytes) {
  worker::v1::WorkerFrame frame;
  if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (!frame.has_step()) return;
  for (const worker::v1::Output& output : frame.step().outputs()) {
    const auto it = requests_.find(output.request_number());
    if (it == requests_.end()) continue;
    Request& request = it->second;
    const bool current = request.attempt == output.attempt() && request.stream == stream &&
                         !request.given_up && output.choice() < request.choices.size();
    if (!current) continue;
    Choice& choice = request.choices[output.choice()];
    if (output.first_index() == choice.accepted) {
      choice.accepted += static_cast<uint64_t>(output.ids_size());
    }
  }
}

}  // namespace quire::sim
