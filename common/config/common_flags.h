// Flags that every serving program has, with the same help.
//
// Called once, by the code that builds a schema.
#pragma once

#include <string>

#include "common/config/schema.h"

namespace quire::config {

// --log-level and --log-format; common/log/flags.h makes a logger from them.
inline void AddLogFlags(Schema& schema, std::string& level, std::string& format) {
  schema.Add({.name = "log-level",
              .help = "Least level that is logged.",
              .target = &level,
              .value_name = "LEVEL",
              .choices = {"debug", "info", "warning", "error", "off"}});
  schema.Add({.name = "log-format",
              .help = "auto is text on a terminal and JSON lines elsewhere.",
              .target = &format,
              .choices = {"auto", "text", "json"}});
}

// --ready-fd, for supervisors; a line is written to it once.
inline void AddReadyFlag(Schema& schema, int32_t& descriptor) {
  schema.Add({.name = "ready-fd",
              .help = "Descriptor that gets one JSON line when the program is ready.",
              .target = &descriptor,
              .min = -1,
              .max = 1 << 20,
              .hidden = true});
}

inline void AddCoreDumpsFlag(Schema& schema, bool& allowed) {
  schema.Add({.name = "core-dumps",
              .help = "Lets a crash write a core file, and debuggers of the same user attach; "
                      "either shows private keys and prompts.",
              .target = &allowed});
}

// --request-log; `of_what` ends "One JSON line for every ".
inline void AddRequestLogFlag(Schema& schema, const std::string& of_what, std::string& path) {
  schema.Add({.name = "request-log",
              .help = "File to which a JSON line is appended for every " + of_what +
                      ". It may be rotated by renaming it.",
              .target = &path,
              .value_name = "FILE",
              .default_text = "none"});
}

inline void AddTracesFlag(Schema& schema, std::string& endpoint) {
  schema.Add({.name = "otlp-traces-endpoint",
              .help = "Collector that gets a trace of each request, over HTTP as Protobuf, such as "
                      "http://collector:4318; the OTEL_ variables say the rest.",
              .target = &endpoint,
              .value_name = "URL",
              .default_text = "OTEL_EXPORTER_OTLP_ENDPOINT, or none",
              .secret = true});  // it may have a password in it
}

// --tls-cert-file and --tls-key-file; `to_whom` ends "PEM file with the certificate to show ".
inline void AddCertificateFlags(Schema& schema, const std::string& to_whom,
                                std::string& certificate, std::string& key) {
  schema.Add({.name = "tls-cert-file",
              .help = "PEM file with the certificate to show " + to_whom,
              .target = &certificate,
              .value_name = "FILE",
              .default_text = "none: in the clear"});
  schema.Add({.name = "tls-key-file",
              .help = "PEM file with the certificate's private key.",
              .target = &key,
              .value_name = "FILE"});
}

}  // namespace quire::config
