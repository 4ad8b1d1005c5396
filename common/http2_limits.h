// The reasons why the guard closes an HTTP/2 connection: rates, sizes, and the order of frames.
#pragma once

#include <string_view>

namespace quire {

inline constexpr std::string_view kHttp2Limits[] = {"new_streams",
                                                    "resets",
                                                    "pings",
                                                    "settings",
                                                    "window_updates",
                                                    "continuations",
                                                    "empty_data",
                                                    "other_frames",
                                                    "header_bytes",
                                                    "header_block",
                                                    "decoded_header_bytes",
                                                    "decoded_header_block",
                                                    "frame_size",
                                                    "preface",
                                                    "interrupted_headers",
                                                    "stray_continuation"};

}  // namespace quire
