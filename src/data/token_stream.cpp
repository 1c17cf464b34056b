#include "data/token_stream.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "fem/io/safetensors.h"
#include "io/safetensors_header.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLengthBytes = 8;  // of the header's length, in front of it
constexpr int64_t kTokensTriedOnOpen = 4096;

// As many as the system allows: a corpus has a file for every few megabytes of text.
void allow_many_open_files() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

// Read, not mapped: a page of a mapped file that was cut off meanwhile would end the process by SIGBUS.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    FEM_CHECK(fd_ >= 0, "it cannot be opened: ", std::strerror(errno));
    struct stat status = {};
    const bool known = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
    size_ = known ? static_cast<uint64_t>(status.st_size) : 0;
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { ::close(fd_); }

  uint64_t size() const { return size_; }

  void read(uint64_t begin, void* into, uint64_t bytes) const {
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t got = ::pread(fd_, static_cast<char*>(into) + done, bytes - done, static_cast<off_t>(begin + done));
      if (got < 0 && errno == EINTR) continue;
      FEM_CHECK(got >= 0, "it cannot be read: ", std::strerror(errno));
      FEM_CHECK(got > 0, "expected ", size_, " bytes as when it was opened, got ", begin + done, ": it was cut off");
      done += static_cast<uint64_t>(got);
    }
  }

 private:
  const int fd_;
  uint64_t size_ = 0;
};

namespace {

SafetensorsHeader header_of(const OpenFile& file, uint64_t& data_begin) {
  FEM_CHECK(file.size() >= kLengthBytes, "expected a safetensors file, got ", file.size(),
            " bytes, too few for a header");
  uint64_t header_bytes = 0;
  file.read(0, &header_bytes, kLengthBytes);
  FEM_CHECK(header_bytes <= file.size() - kLengthBytes, "expected a safetensors file, got a header length of ",
            header_bytes, " bytes in a file of ", file.size());
  std::string text(header_bytes, '\0');
  file.read(kLengthBytes, text.data(), header_bytes);
  data_begin = kLengthBytes + header_bytes;
  return parse_safetensors_header(text, file.size() - data_begin);
}

int64_t number_in(const std::map<std::string, std::string>& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  FEM_CHECK(found != metadata.end(), "the metadata lacks \"", key, "\"");
  const std::string& text = found->second;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  FEM_CHECK(error == std::errc() && end == text.data() + text.size() && number >= 0, "the metadata's \"", key, "\" is ",
            text, ", not a number");
  return number;
}

template <typename Element>
at::Tensor narrow_tokens(const std::vector<int64_t>& tokens) {
  at::Tensor narrow = at::empty({static_cast<int64_t>(tokens.size())}, c10::CppTypeToScalarType<Element>::value);
  std::copy(tokens.begin(), tokens.end(), narrow.mutable_data_ptr<Element>());
  return narrow;
}

std::string place_of(int64_t index, int64_t count) { return std::to_string(index) + "/" + std::to_string(count); }

}  // namespace

class TokenShard {
 public:
  explicit TokenShard(const fs::path& path) : path_(path), file_(path) {
    SafetensorsHeader header = header_of(file_, begin_);
    FEM_CHECK(header.entries.size() == 1 && header.entries[0].name == "tokens" && header.entries[0].shape.size() == 1,
              "expected one list named \"tokens\"");
    dtype_ = header.entries[0].dtype;
    FEM_CHECK(dtype_ == at::kShort || dtype_ == at::kInt, "expected I16 or I32 tokens, got ", dtype_);
    count_ = header.entries[0].shape[0];
    metadata = std::move(header.metadata);
  }

  int64_t count() const { return count_; }
  const fs::path& path() const { return path_; }

  at::Tensor read(int64_t from, int64_t count) const {
    at::Tensor tokens = at::empty({count}, dtype_);
    file_.read(begin_ + from * tokens.itemsize(), tokens.mutable_data_ptr(), tokens.nbytes());
    return tokens;
  }

  std::map<std::string, std::string> metadata;

 private:
  const fs::path path_;
  const OpenFile file_;
  uint64_t begin_ = 0;  // of the tokens, in bytes
  at::ScalarType dtype_;
  int64_t count_;
};

TokenStream TokenStream::open(const fs::path& folder, const std::string& fingerprint) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().filename().string().starts_with("shard-") && entry.path().extension() == ".safetensors")
      files.push_back(entry.path());
  TokenStream stream;
  stream.folder_ = folder;
  FEM_CHECK(!error && !files.empty(), "token files: ", folder.string(), " holds no shard-*.safetensors",
            stream.remedy());
  std::sort(files.begin(), files.end());

  allow_many_open_files();
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      stream.append(files[i], fingerprint, place_of(i, files.size()));
    } catch (const c10::Error& failure) {
      FEM_CHECK(false, "token files: ", files[i].string(), ": ", failure.what_without_backtrace(), stream.remedy());
    }
  }
  const int64_t tried = std::min(stream.size_, kTokensTriedOnOpen);
  stream.read(0, tried);
  stream.read(stream.size_ - tried, tried);
  return stream;
}

std::string TokenStream::remedy() const {
  return "; delete the folder " + folder_.parent_path().string() + ", it is made again";
}

void TokenStream::append(const fs::path& file, const std::string& fingerprint, const std::string& place) {
  auto shard = std::make_shared<TokenShard>(file);
  const std::string made_with = shard->metadata["fingerprint"], stands_at = shard->metadata["shard"];
  FEM_CHECK(made_with == fingerprint, "expected tokens of the tokenizer \"", fingerprint, "\", got those of \"",
            made_with, "\"");
  FEM_CHECK(stands_at == place, "expected shard ", place, ", got \"", stands_at, "\": files are missing or foreign");
  separator_ = number_in(shard->metadata, "separator");
  vocab_size_ = number_in(shard->metadata, "vocab_size");
  FEM_CHECK(separator_ < vocab_size_, "the separator ", separator_, " is outside the vocabulary of ", vocab_size_);
  begins_.push_back(size_);
  size_ += shard->count();
  bytes_ += number_in(shard->metadata, "bytes");
  shards_.push_back(std::move(shard));
}

at::Tensor TokenStream::read(int64_t begin, int64_t count) const {
  FEM_CHECK(begin >= 0 && count >= 0 && begin <= size_ - count, "token stream: expected a range inside its ", size_,
            " tokens, got ", count, " from ", begin);
  at::Tensor tokens = at::empty({count}, at::kLong);
  if (count == 0) return tokens;
  size_t shard = std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin() - 1;
  for (int64_t done = 0; done < count; ++shard) {
    const int64_t from = begin + done - begins_[shard];
    const int64_t part = std::min(count - done, shards_[shard]->count() - from);
    try {
      tokens.narrow(0, done, part).copy_(shards_[shard]->read(from, part));
    } catch (const c10::Error& failure) {
      FEM_CHECK(false, "token files: ", shards_[shard]->path().string(), ": ", failure.what_without_backtrace(),
                remedy());
    }
    done += part;
  }
  const auto [least, most] = at::aminmax(tokens);
  FEM_CHECK(least.item<int64_t>() >= 0 && most.item<int64_t>() < vocab_size_, "token files: ", folder_.string(),
            ": expected tokens of 0 to ", vocab_size_ - 1, ", got ", least.item<int64_t>(), " to ",
            most.item<int64_t>(), " between ", begin, " and ", begin + count, remedy());
  return tokens;
}

void write_token_shard(const fs::path& folder, int64_t index, int64_t count, const std::vector<int64_t>& tokens,
                       int64_t bytes, const Tokenizer& tokenizer) {
  const int64_t vocab_size = tokenizer.vocab_size();
  for (const int64_t token : tokens)
    FEM_CHECK(token >= 0 && token < vocab_size, "token files: expected tokens of 0 to ", vocab_size - 1, ", got ",
              token, " from the tokenizer ", tokenizer.fingerprint());
  Safetensors content;
  const bool fits = vocab_size <= std::numeric_limits<int16_t>::max();
  content.tensors["tokens"] = fits ? narrow_tokens<int16_t>(tokens) : narrow_tokens<int32_t>(tokens);
  content.metadata = {{"fingerprint", tokenizer.fingerprint()},
                      {"separator", std::to_string(tokenizer.separator())},
                      {"vocab_size", std::to_string(vocab_size)},
                      {"bytes", std::to_string(bytes)},
                      {"shard", place_of(index, count)}};
  char name[64];
  std::snprintf(name, sizeof(name), "shard-%05lld.safetensors", static_cast<long long>(index));
  save_safetensors(folder / name, content);
}

}  // namespace fem
