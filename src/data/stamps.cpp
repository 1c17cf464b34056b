#include "data/stamps.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

#include "util/check.h"

namespace fem {
namespace {

constexpr double kDay = 86400;

constexpr std::array kNotations{"%Y-%m-%d %H:%M:%S",
                                "%Y-%m-%dT%H:%M:%S",
                                "%Y-%m-%dT%H:%M:%S%z",
                                "%Y-%m-%d %H:%M:%S%z",
                                "%Y-%m-%d %H:%M",
                                "%Y-%m-%dT%H:%M",
                                "%Y-%m-%d",
                                "%Y/%m/%d %H:%M:%S",
                                "%Y/%m/%d %H:%M",
                                "%Y/%m/%d",
                                "%d.%m.%Y %H:%M:%S",
                                "%d.%m.%Y %H:%M",
                                "%d.%m.%Y",
                                "%Y-%m"};

std::tm broken_down(double stamp) {
  const auto seconds = static_cast<std::time_t>(std::llround(stamp));
  std::tm fields = {};
  gmtime_r(&seconds, &fields);
  return fields;
}

std::optional<double> parsed(const std::string& text, const char* notation) {
  std::tm fields = {};
  fields.tm_mday = 1;
  const char* const end = strptime(text.c_str(), notation, &fields);
  if (!end || *end != '\0') return std::nullopt;
  std::tm whole = fields;
  whole.tm_isdst = 0;
  const auto seconds = static_cast<double>(timegm(&whole));
  if (whole.tm_mday != fields.tm_mday || whole.tm_mon != fields.tm_mon) return std::nullopt;  // 31 April
  return seconds - static_cast<double>(fields.tm_gmtoff);
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) ? std::optional(value)
                                                                                          : std::nullopt;
}

}  // namespace

std::optional<StampFormat> StampFormat::of(const std::string& text) {
  for (const char* notation : kNotations)
    if (parsed(text, notation)) return StampFormat(notation);
  return number(text) ? std::optional(StampFormat("")) : std::nullopt;
}

StampFormat StampFormat::named(const std::string& format) {
  FEM_CHECK(format.empty() || std::find(kNotations.begin(), kNotations.end(), format) != kNotations.end(),
            "stamps: expected a notation such as ", kNotations[0], ", got '", format, "'");
  return StampFormat(format);
}

std::optional<double> StampFormat::parse(const std::string& text) const {
  return format_.empty() ? number(text) : parsed(text, format_.c_str());
}

std::string StampFormat::text(double stamp) const {
  char written[64];
  if (format_.empty()) {
    const auto [end, error] = std::to_chars(written, written + sizeof(written), stamp);
    return {written, end};
  }
  const std::tm fields = broken_down(stamp);
  return {written, std::strftime(written, sizeof(written), format_.c_str(), &fields)};
}

double StampFormat::later(double stamp, const StampStep& step, int64_t steps) const {
  if (step.months == 0) return stamp + step.units * static_cast<double>(steps);
  std::tm fields = broken_down(stamp);
  const int day = fields.tm_mday;
  fields.tm_mday = 1;
  fields.tm_mon += static_cast<int>(step.months * steps);
  std::tm next = fields;
  next.tm_mon += 1;
  timegm(&fields);
  const std::time_t last = timegm(&next) - static_cast<std::time_t>(kDay);
  std::tm end = {};
  gmtime_r(&last, &end);
  fields.tm_mday = std::min(day, end.tm_mday);  // 31 January is followed by 28 February
  return static_cast<double>(timegm(&fields));
}

StampStep StampFormat::step_of(const std::vector<double>& stamps) const {
  if (stamps.size() < 2) return {};
  std::vector<double> steps;
  for (size_t i = 1; i < stamps.size(); ++i) steps.push_back(stamps[i] - stamps[i - 1]);
  const auto middle = steps.begin() + static_cast<int64_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  if (format_.empty()) return {.units = *middle};
  const double days = *middle / kDay;
  if (days >= 28 && days <= 31) return {.months = 1};
  if (days >= 89 && days <= 92) return {.months = 3};
  if (days >= 365 && days <= 366) return {.months = 12};
  return {.units = *middle};
}

int64_t StampFormat::irregular(const std::vector<double>& stamps, const StampStep& step) const {
  int64_t count = 0;
  for (size_t i = 1; i < stamps.size(); ++i) {
    const double wanted = later(stamps[i - 1], step, 1) - stamps[i - 1], got = stamps[i] - stamps[i - 1];
    // Month ends are as far apart as months are long.
    const double slack = step.months > 0 ? 3 * kDay : 1e-6 * std::abs(wanted);
    count += std::abs(got - wanted) > slack;
  }
  return count;
}

std::string StampFormat::words(const StampStep& step) const {
  const auto counted = [](double count, const char* unit) {
    char written[64];
    const auto [end, error] = std::to_chars(written, written + sizeof(written), count);
    return std::string(written, end) + " " + unit + (count == 1 ? "" : "s");
  };
  if (step.months > 0) return step.months == 12 ? "1 year" : counted(static_cast<double>(step.months), "month");
  if (format_.empty()) return counted(step.units, "unit");
  for (const auto& [seconds, unit] : {std::pair{kDay, "day"}, {3600.0, "hour"}, {60.0, "minute"}})
    if (std::fmod(step.units, seconds) == 0) return counted(step.units / seconds, unit);
  return counted(step.units, "second");
}

int64_t StampFormat::season(const StampStep& step) const {
  if (format_.empty()) return 0;
  if (step.months > 0) return step.months < 12 ? 12 / step.months : 0;
  if (step.units > 0 && step.units < kDay) return std::llround(kDay / step.units);
  return step.units == kDay ? 7 : 0;
}

}  // namespace fem
