// The plots of `quire bench serve`: one self-contained SVG of four panels.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "cli/bench/bench_report.h"
#include "cli/format.h"

namespace quire::cli {
namespace {

constexpr double kPanelWidth = 420, kPanelHeight = 220, kMargin = 56, kGap = 24;
constexpr size_t kMaxPoints = 400;

using Points = std::vector<std::pair<double, double>>;

struct Panel {
  std::string title, x_name, y_name;
  Points points;
};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string Label(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) + "\" text-anchor=\"" + anchor + "\">" +
         text + "</text>\n";
}

// A round number at or above `value`: the end of an axis.
double AxisEnd(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0, 10.0}) {
    if (step * power >= value) return step * power;
  }
  return 10 * power;
}

std::string PanelText(const Panel& panel, double left, double top) {
  double x_end = 0, y_end = 0;
  for (const auto& [x, y] : panel.points) {
    x_end = std::max(x_end, x);
    y_end = std::max(y_end, y);
  }
  x_end = AxisEnd(x_end);
  y_end = AxisEnd(y_end);
  const double bottom = top + kPanelHeight;
  std::string out = "<g>\n<rect class=\"panel\" x=\"" + Number(left) + "\" y=\"" + Number(top) +
                    "\" width=\"" + Number(kPanelWidth) + "\" height=\"" + Number(kPanelHeight) +
                    "\"/>\n";
  for (int i = 0; i <= 4; ++i) {
    const double share = i / 4.0;
    const double x = left + share * kPanelWidth, y = bottom - share * kPanelHeight;
    if (i > 0 && i < 4) {
      out += "<path class=\"grid\" d=\"M" + Number(left) + " " + Number(y) + "H" +
             Number(left + kPanelWidth) + "\"/>\n";
    }
    out += Label(x, bottom + 16, "middle", NumberText(share * x_end));
    out += Label(left - 6, y + 4, "end", CountText(share * y_end));
  }
  std::string path;
  for (const auto& [x, y] : panel.points) {
    path += (path.empty() ? "M" : "L") + Number(left + x / x_end * kPanelWidth) + " " +
            Number(bottom - y / y_end * kPanelHeight);
  }
  if (!path.empty()) out += "<path class=\"line\" d=\"" + path + "\"/>\n";
  out += "<text class=\"title\" x=\"" + Number(left) + "\" y=\"" + Number(top - 10) + "\">" +
         panel.title + "</text>\n";
  out += Label(left + kPanelWidth, bottom + 32, "end", panel.x_name);
  return out + "</g>\n";
}

// Share of values at or below each of them.
Points Distribution(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Points points;
  if (values.empty()) return points;
  points.emplace_back(values.front(), 0);
  const size_t step = std::max<size_t>(1, values.size() / kMaxPoints);
  for (size_t i = 0; i < values.size(); i += step) {
    points.emplace_back(values[i],
                        100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size()));
  }
  points.emplace_back(values.back(), 100);
  return points;
}

// A value for each of at most kMaxPoints spans of the run.
Points OverTime(double duration, const std::vector<std::pair<double, double>>& events,
                bool running_sum) {
  const size_t spans = std::clamp<size_t>(static_cast<size_t>(duration * 4), 8, kMaxPoints);
  const double width = duration / static_cast<double>(spans);
  std::vector<double> sums(spans, 0);
  for (const auto& [time, value] : events) {
    const auto at = static_cast<size_t>(std::max(time, 0.0) / width);
    sums[std::min(at, spans - 1)] += value;
  }
  Points points;
  double total = 0;
  for (size_t i = 0; i < spans; ++i) {
    total = running_sum ? total + sums[i] : sums[i] / width;
    points.emplace_back((static_cast<double>(i) + 0.5) * width, std::max(total, 0.0));
  }
  return points;
}

}  // namespace

std::string BenchPlot(const BenchMetrics& metrics, const std::vector<BenchResult>& results) {
  std::vector<std::pair<double, double>> tokens, requests;
  for (const BenchResult& result : results) {
    requests.emplace_back(result.start, 1);
    requests.emplace_back(result.start + result.latency, -1);
    for (size_t i = 0; i < result.chunk_times.size(); ++i) {
      tokens.emplace_back(result.chunk_times[i], static_cast<double>(result.chunk_tokens[i]));
    }
  }
  const Panel panels[] = {
      {"Output tokens per second", "seconds", "", OverTime(metrics.duration, tokens, false)},
      {"Requests under way", "seconds", "", OverTime(metrics.duration, requests, true)},
      {"Time to first token: share of requests, %", "milliseconds", "", Distribution(metrics.ttft)},
      {"Inter-token latency: share of gaps, %", "milliseconds", "", Distribution(metrics.itl)}};
  const double width = 2 * (kPanelWidth + kMargin) + kGap, height = 2 * (kPanelHeight + 80) + 10;
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + Number(width) +
                    " " + Number(height) + "\" width=\"" + Number(width) + "\" height=\"" +
                    Number(height) +
                    "\">\n<style>svg{background:#fff}text{font:12px sans-serif;fill:#444}"
                    ".title{font-weight:bold;fill:#111}.panel{fill:#fafafa;stroke:#bbb}"
                    ".grid{stroke:#e2e2e2;fill:none}"
                    ".line{stroke:#2563a8;stroke-width:1.6;fill:none}</style>\n";
  for (size_t i = 0; i < std::size(panels); ++i) {
    const double left = kMargin + static_cast<double>(i % 2) * (kPanelWidth + kMargin);
    const double top = 34 + static_cast<double>(i / 2) * (kPanelHeight + 80);
    out += PanelText(panels[i], left, top);
  }
  return out + "</svg>\n";
}

}  // namespace quire::cli
