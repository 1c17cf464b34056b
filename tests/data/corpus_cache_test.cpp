// The token files of a corpus: made once, by one of several, and what becomes of broken ones.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "data/cache_folder.h"
#include "data/small_corpora.h"
#include "support/error_text.h"
#include "util/interrupt.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using testing::CorpusOf;
using testing::fails_with;
using testing::lines;

TEST_F(CorpusOf, IsMadeOnceAndAgainWhenTheTextChanges) {
  add("a.txt", lines(100));
  prepare_corpus(options({"a.txt"}));
  std::map<fs::path, fs::file_time_type> times;
  for (const auto& entry : fs::recursive_directory_iterator(made())) times[entry.path()] = entry.last_write_time();
  EXPECT_EQ(times.size(), 6u);  // corpus.json, tokenizer.json, two folders of one shard each
  prepare_corpus(options({"a.txt"}));
  for (const auto& [path, time] : times) EXPECT_EQ(fs::last_write_time(path), time) << path;
  made();
  add("a.txt", lines(101));
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  EXPECT_EQ(corpus.train.bytes() + corpus.validation.bytes(), static_cast<int64_t>(lines(101).size()));
}

TEST_F(CorpusOf, ACacheInsideTheTextIsNotText) {
  add("a.txt", lines(100));
  CorpusOptions inside = options({""});
  inside.cache = text() / "runs" / "cache";
  const std::string first = train_text(inside);
  EXPECT_EQ(train_text(inside), first);
  only_folder_of(inside.cache);
}

TEST_F(CorpusOf, SeveralMakersAtOnceAllSucceed) {
  add("a.txt", lines(3000));
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      ::_exit(prepare_corpus(options({"a.txt"})).train.size() > 1000 ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] { good += prepare_corpus(options({"a.txt"})).train.size() > 1000; });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(good, 3);
  made();
}

TEST_F(CorpusOf, AnInterruptLeavesNothingBehind) {
  add("a.txt", lines(100));
  {
    const InterruptGuard guard;
    ::raise(SIGINT);
    EXPECT_TRUE(is_refused(options({"a.txt"}), "interrupted while tokenizing; nothing was kept"));
  }
  const InterruptGuard forgets;
  EXPECT_GT(prepare_corpus(options({"a.txt"})).train.size(), 100);
}

TEST_F(CorpusOf, WhatADeadMakerLeftIsRemoved) {
  add("a.txt", lines(100));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::string key = "0123456789abcdef@";
  const fs::path dead = cache() / (key + host + "@" + std::to_string(child) + "-0.tmp");
  const fs::path alive = cache() / (key + host + "@" + std::to_string(::getpid()) + "-9999.tmp");
  const fs::path elsewhere = cache() / (key + "another-host@" + std::to_string(child) + "-0.tmp");
  for (const fs::path& path : {dead, alive, elsewhere}) fs::create_directories(path / "train");
  prepare_corpus(options({"a.txt"}));
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive));
  EXPECT_TRUE(fs::exists(elsewhere));
}

TEST_F(CorpusOf, TokenFilesThatAreCutOffWhileTheyAreReadAreNamedWithTheirRemedy) {
  add("a.txt", lines(5000));
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  const fs::path shard = made() / "train" / "shard-00000.safetensors";
  const int64_t last = corpus.train.size() - 100;
  EXPECT_EQ(corpus.train.read(last, 100).numel(), 100);
  fs::resize_file(shard, 4096);
  EXPECT_TRUE(fails_with("token files: " + shard.string() + ": expected ", [&] { corpus.train.read(last, 100); }));
  EXPECT_TRUE(fails_with("it was cut off; delete the folder " + made().string() + ", it is made again",
                         [&] { corpus.train.read(0, corpus.train.size()); }));
  fs::remove_all(cache());  // their names alone may go
  EXPECT_EQ(corpus.validation.read(0, corpus.validation.size()).numel(), corpus.validation.size());
}

TEST_F(CorpusOf, MoreFilesThanAProcessMayOpenAtFirstCanBeRead) {
  rlimit before = {}, few = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  few = {.rlim_cur = 40, .rlim_max = before.rlim_max};
  fs::create_directories(cache());
  constexpr int64_t kFiles = 60;
  for (int64_t i = 0; i < kFiles; ++i) write_token_shard(cache(), i, kFiles, {i, i, i}, /*bytes=*/3, *byte_tokenizer());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const TokenStream stream = TokenStream::open(cache(), "bytes");
  EXPECT_EQ(stream.read(3 * kFiles - 2, 1).item<int64_t>(), kFiles - 1);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(CorpusOf, TheCacheIsTheUsersUnlessItIsNamed) {
  add("a.txt", lines(100));
  CorpusOptions unnamed = options({"a.txt"});
  unnamed.cache.clear();
  const fs::path home = folder / "home", xdg = folder / "xdg";
  const std::string before_home = std::getenv("HOME") ? std::getenv("HOME") : "";
  const char* const had_xdg = std::getenv("XDG_CACHE_HOME");
  const std::string before_xdg = had_xdg ? had_xdg : "";
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", home.c_str(), 1);
  prepare_corpus(unnamed);
  only_folder_of(home / ".cache" / "fem");
  ::setenv("XDG_CACHE_HOME", xdg.c_str(), 1);
  prepare_corpus(unnamed);
  only_folder_of(xdg / "fem");
  ::setenv("XDG_CACHE_HOME", "not/absolute", 1);
  ::unsetenv("HOME");
  EXPECT_TRUE(
      fails_with("name a folder that can be written by --set data.cache=DIR", [&] { prepare_corpus(unnamed); }));
  ::setenv("HOME", before_home.c_str(), 1);
  had_xdg ? ::setenv("XDG_CACHE_HOME", before_xdg.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  EXPECT_FALSE(fs::exists("not"));
  EXPECT_FALSE(fs::exists("runs/cache"));
}

TEST_F(CorpusOf, AScratchFolderIsNewAndClosedToOthersAndGoes) {
  fs::path path;
  {
    const ScratchFolder first, second;
    EXPECT_NE(first.path(), second.path());
    EXPECT_EQ(fs::status(path = first.path()).permissions(), fs::perms::owner_all);
    write(path / "file", "x");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(CorpusOf, AFolderInTheMakingIsNeverSomebodyElses) {
  const std::string name = NewFolder(folder / "key").path().string();  // ...-N.tmp: the next can be foreseen
  const size_t at = name.rfind('-') + 1;
  const fs::path taken = name.substr(0, at) + std::to_string(std::stoll(name.substr(at)) + 1) + ".tmp";
  fs::create_directory_symlink(text(), taken);
  EXPECT_NE(NewFolder(folder / "key").path(), taken);
  EXPECT_TRUE(fs::is_symlink(taken));
}

TEST_F(CorpusOf, MakersOfDifferentFoldersDoNotWaitForEachOther) {
  const MakerLock one(cache() / "one");
  const MakerLock other(cache() / "other");  // would wait for ever
  const InterruptGuard guard;
  ::raise(SIGTERM);
  EXPECT_THROW(MakerLock(cache() / "one"), Interrupted);
}

TEST_F(CorpusOf, BrokenTokenFilesAreNamedWithTheirRemedy) {
  add("a.txt", lines(500));
  prepare_corpus(options({"a.txt"}));
  const fs::path shard = made() / "train" / "shard-00000.safetensors";
  const std::string whole = read(shard);
  const std::string remedy = "; delete the folder " + made().string() + ", it is made again";
  const auto breaks = [&](const std::string& bytes, const std::string& sentence) {
    write(shard, bytes);
    const auto found = fails_with(sentence, [&] { prepare_corpus(options({"a.txt"})); });
    return found ? fails_with(remedy, [&] { prepare_corpus(options({"a.txt"})); }) : found;
  };
  const std::string name = "token files: " + shard.string() + ": ";
  EXPECT_TRUE(breaks(whole.substr(0, whole.size() - 2), name));
  EXPECT_TRUE(breaks(whole.substr(0, 40), name + "expected a safetensors file, got a header length"));
  EXPECT_TRUE(breaks("", name + "expected a safetensors file, got 0 bytes"));
  EXPECT_TRUE(breaks(std::string(100, 'x'), name + "expected a safetensors file"));
  std::string foreign = whole;
  const size_t made_with = whole.find("\"fingerprint\":\"bytes\"");
  ASSERT_NE(made_with, std::string::npos);
  foreign.replace(made_with + 15, 5, "other");
  EXPECT_TRUE(breaks(foreign, name + "expected tokens of the tokenizer \"bytes\", got those of \"other\""));
  std::string outside = whole;
  outside.replace(outside.size() - 2, 2, "\xff\x7f");
  EXPECT_TRUE(breaks(outside, "expected tokens of 0 to 256, got "));
  fs::remove(shard);
  EXPECT_TRUE(fails_with("holds no shard-*.safetensors" + remedy, [&] { prepare_corpus(options({"a.txt"})); }));
  fs::copy_file(made() / "validation" / "shard-00000.safetensors", shard);
  fs::copy_file(shard, made() / "train" / "shard-00001.safetensors");
  EXPECT_TRUE(fails_with("expected shard 0/2, got \"0/1\"", [&] { prepare_corpus(options({"a.txt"})); }));
  write(shard, whole);
  fs::remove(made() / "train" / "shard-00001.safetensors");
  EXPECT_GT(prepare_corpus(options({"a.txt"})).train.size(), 1000);
}

}  // namespace
}  // namespace fem
