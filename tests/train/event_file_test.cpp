#include "train/event_file.h"

#include <sys/resource.h>

#include <bit>
#include <csignal>
#include <cstring>
#include <ctime>
#include <vector>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

template <typename T>
T read_at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Bit by bit, unlike the table of the writer.
uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

uint32_t unmasked(uint32_t value) { return std::rotl(value - 0xa282ead8u, 15); }

struct Record {
  uint32_t length_crc = 0, data_crc = 0;
  std::string length, data;
};

std::vector<Record> records_of(const std::string& file) {
  std::vector<Record> records;
  for (size_t at = 0; at < file.size();) {
    const auto size = read_at<uint64_t>(file, at);
    records.push_back({unmasked(read_at<uint32_t>(file, at + 8)), unmasked(read_at<uint32_t>(file, at + 12 + size)),
                       file.substr(at, 8), file.substr(at + 12, size)});
    at += 16 + size;
  }
  return records;
}

class EventFileTest : public testing::TemporaryFolder {
 protected:
  std::string only_file() const {
    EXPECT_EQ(files(), 1);
    return read(std::filesystem::directory_iterator(folder)->path());
  }
};

TEST_F(EventFileTest, EveryRecordCarriesTheChecksumsOfItsLengthAndData) {
  ASSERT_EQ(crc32c("123456789"), 0xe3069283u) << "the known answer of CRC-32C";
  {
    EventFile file(folder);
    for (int64_t step = 0; step < 50; ++step) file.scalar("loss/train", step * step * step, 1.0 / (1 + step));
  }
  const std::vector<Record> records = records_of(only_file());
  ASSERT_EQ(records.size(), 51u);
  for (const Record& record : records) {
    EXPECT_EQ(record.length_crc, crc32c(record.length));
    EXPECT_EQ(record.data_crc, crc32c(record.data));
  }
}

TEST_F(EventFileTest, BeginsWithTheVersionThatTensorBoardExpects) {
  EventFile file(folder);
  const std::vector<Record> records = records_of(only_file());
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].data.substr(9),
            "\x1a\x0d"
            "brain.Event:2");
}

TEST_F(EventFileTest, AScalarIsTimeStepTagAndValue) {
  {
    EventFile file(folder);
    file.scalar("loss", 300, -2.5);
  }
  const Record record = records_of(only_file()).at(1);
  EXPECT_EQ(record.data[0], 0x09);  // wall_time, a double
  EXPECT_NEAR(read_at<double>(record.data, 1), static_cast<double>(time(nullptr)), 60);
  std::string expected(
      "\x10\xac\x02"
      "\x2a\x0d"
      "\x0a\x0b"
      "\x0a\x04"
      "loss"
      "\x15",
      14);
  const float value = -2.5f;
  expected.append(reinterpret_cast<const char*>(&value), 4);
  EXPECT_EQ(record.data.substr(9), expected);
}

TEST_F(EventFileTest, WhatIsFlushedCanBeReadWhileTheFileGrows) {
  EventFile file(folder);
  file.scalar("loss", 1, 1.0);
  file.flush();
  EXPECT_EQ(records_of(only_file()).size(), 2u);
}

TEST_F(EventFileTest, NeverWritesOverAnotherFile) {
  EventFile first(folder), second(folder);
  EXPECT_EQ(files(), 2);
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsNamed) {
  write(folder / "file", "");
  EXPECT_TRUE(testing::fails_with("event file: expected a folder for TensorBoard at " + (folder / "file/logs").string(),
                                  [&] { EventFile file(folder / "file/logs"); }));
}

TEST_F(EventFileTest, AFullDiskIsReported) {
  EventFile file(folder);
  for (int64_t step = 0; step < 10; ++step) file.scalar("loss", step, 1.0);
  // A limit of the process stands for the disk's.
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{100, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &full);
  const auto reported = testing::fails_with("is the disk full?", [&] { file.flush(); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(reported);
}

}  // namespace
}  // namespace fem
