#include "train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <string_view>
#include <system_error>

#include "util/check.h"

namespace fem {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78u : 0);
    table[i] = value;
  }
  return table;
}();

// A checksum of bytes that hold checksums themselves is weak: TFRecord rotates it and adds a constant.
uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrc32cTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <typename T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Protocol buffers: a field is its number and kind, then the value; counts are seven bits to a byte.
enum Kind : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(uint64_t number, Kind kind) { return varint(number << 3 | kind); }
std::string field(uint64_t number, int64_t value) {
  return key(number, kVarint) + varint(static_cast<uint64_t>(value));
}
std::string field(uint64_t number, double value) { return key(number, kFixed64) + bytes_of(value); }
std::string field(uint64_t number, float value) { return key(number, kFixed32) + bytes_of(value); }
std::string field(uint64_t number, const std::string& value) {
  return key(number, kBytes) + varint(value.size()) + value;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string wall_time() { return field(1, seconds_now()); }

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

// A process may start several within a second.
std::filesystem::path unused_path(const std::filesystem::path& folder) {
  const std::string name = "events.out.tfevents." + std::to_string(static_cast<int64_t>(seconds_now())) + "." +
                           host_name() + "." + std::to_string(getpid());
  std::filesystem::path path = folder / name;
  for (int i = 1; std::filesystem::exists(path); ++i) path = folder / (name + "." + std::to_string(i));
  return path;
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  FEM_CHECK(!failed, "event file: expected a folder for TensorBoard at ", folder.string(), ", but making it failed (",
            failed.message(), ")");
  path_ = unused_path(folder);
  file_.open(path_, std::ios::binary);
  FEM_CHECK(file_.good(), "event file: expected to create ", path_.string(),
            ", but opening it failed; is the folder writable?");
  record(wall_time() + field(3, std::string("brain.Event:2")));
  flush();
}

void EventFile::scalar(const std::string& tag, int64_t step, double value) {
  const std::string summary = field(1, field(1, tag) + field(2, static_cast<float>(value)));
  record(wall_time() + field(2, step) + field(5, summary));
}

void EventFile::flush() {
  file_.flush();
  FEM_CHECK(file_.good(), "event file: expected to append to ", path_.string(),
            ", but writing failed; is the disk full?");
}

void EventFile::record(const std::string& event) {
  const std::string length = bytes_of(static_cast<uint64_t>(event.size()));
  file_ << length << bytes_of(masked_crc32c(length)) << event << bytes_of(masked_crc32c(event));
}

}  // namespace fem
