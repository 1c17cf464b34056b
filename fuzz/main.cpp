// fem_fuzz --reader=NAME [libFuzzer's options] [folders of inputs]; fem_fuzz --list.
#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "readers.h"

namespace fem::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<Reader> all_readers() {
  std::vector<Reader> all;
  for (const auto* some : {&configuration_readers(), &model_readers(), &run_readers()})
    all.insert(all.end(), some->begin(), some->end());
  return all;
}

const Reader* chosen = nullptr;

void choose(const std::string& name) {
  static const std::vector<Reader> all = all_readers();
  for (const Reader& reader : all)
    if (name == reader.name) chosen = &reader;
  if (chosen) return;
  for (const Reader& reader : all) std::puts(reader.name);
  std::exit(name.empty() ? 0 : 2);
}

// In memory where there is such a folder, and gone when the process ends as it should.
const fs::path& own_folder() {
  static const fs::path folder = [] {
    const fs::path memory = "/dev/shm";
    std::string name = ((fs::is_directory(memory) ? memory : fs::temp_directory_path()) / "fem-fuzz-XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    static const fs::path made = name;
    std::atexit([] { fs::remove_all(made); });
    return made;
  }();
  return folder;
}

}  // namespace

fs::path file_of(const std::string& bytes, const std::string& name) {
  fs::path path = own_folder() / name;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace fem::fuzz

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  // An error of torch's takes a picture of the stack, which is most of the time of an execution.
  c10::SetStackTraceFetcher([]() -> std::string { return ""; });
  std::string name;
  for (int i = 1; i < *count; ++i)
    if (const std::string argument = (*arguments)[i]; argument.starts_with("--reader=")) name = argument.substr(9);
  fem::fuzz::choose(name);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    fem::fuzz::chosen->read(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const c10::Error&) {  // refused by a sentence
  }
  return 0;
}
