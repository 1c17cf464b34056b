#include "data/corpus.h"

#include <ATen/ATen.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "data/cache_folder.h"
#include "data/documents.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "util/interrupt.h"

namespace fem {
namespace {

using testing::fails_with;
namespace fs = std::filesystem;

class CorpusOf : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    fs::create_directories(text());
  }
  fs::path text() const { return folder / "text"; }
  fs::path cache() const { return folder / "cache"; }
  void add(const std::string& name, const std::string& content) {
    fs::create_directories((text() / name).parent_path());
    write(text() / name, content);
  }
  CorpusOptions options(std::vector<std::string> train, std::vector<std::string> validation = {}) const {
    for (auto* paths : {&train, &validation})
      for (std::string& path : *paths) path = (text() / path).string();
    return {.train = train, .validation = validation, .cache = cache()};
  }
  ::testing::AssertionResult is_refused(const CorpusOptions& options, const std::string& sentence) {
    const auto refused = fails_with(sentence, [&] { prepare_corpus(options); });
    if (!refused || !fs::exists(cache())) return refused;
    for (const auto& entry : fs::directory_iterator(cache()))
      if (entry.path().filename() != ".lock")
        return ::testing::AssertionFailure() << entry.path() << " was left in the cache";
    return refused;
  }
  // The only folder of the cache.
  fs::path made() const { return only_folder_of(cache()); }
  static fs::path only_folder_of(const fs::path& cache) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(cache))
      if (entry.path().filename() != ".lock") folders.push_back(entry.path());
    EXPECT_EQ(folders.size(), 1u);
    return folders.empty() ? fs::path() : folders.front();
  }
  static std::string text_of(const Tokenizer& tokenizer, const TokenStream& stream) {
    const at::Tensor tokens = stream.read(0, stream.size());
    std::string text;
    for (int64_t i = 0; i < tokens.numel(); ++i) {
      const auto token = tokens[i].item<int64_t>();
      text += token == tokenizer.separator() ? "|" : tokenizer.decode({token});
    }
    return text;
  }
  std::string train_text(const CorpusOptions& options) {
    const Corpus corpus = prepare_corpus(options);
    return text_of(*corpus.tokenizer, corpus.train);
  }
};

std::string lines(int count, const std::string& word = "line") {
  std::string text;
  for (int i = 0; i < count; ++i) text += word + " " + std::to_string(i) + "\n";
  return text;
}

TEST_F(CorpusOf, OneFileIsSplitAtALineAndKeepsItsOrder) {
  const std::string content = lines(1000);
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  const std::string train = text_of(*corpus.tokenizer, corpus.train);
  const std::string validation = text_of(*corpus.tokenizer, corpus.validation);
  EXPECT_EQ(train.substr(1) + validation.substr(1), content);
  EXPECT_EQ(train[0], '|');
  EXPECT_EQ(validation.substr(0, 6), "|line ");
  EXPECT_EQ(corpus.validation.bytes(), corpus.validation.size() - 1);
  EXPECT_NEAR(static_cast<double>(corpus.validation.bytes()) / content.size(), 0.1, 0.002);
  EXPECT_EQ(corpus.train.bytes() + corpus.validation.bytes(), static_cast<int64_t>(content.size()));
}

TEST_F(CorpusOf, TextWithoutLinesIsCutBetweenCharacters) {
  std::string content;
  for (int i = 0; i < 101; ++i) content += "語";
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  EXPECT_EQ(corpus.validation.bytes() % 3, 0);
  EXPECT_NEAR(corpus.validation.bytes(), 30, 3);
}

TEST_F(CorpusOf, AFolderHoldsDocumentsInAFixedRandomOrder) {
  for (int i = 0; i < 20; ++i) add("part" + std::to_string(i % 3) + "/" + std::to_string(i) + ".txt", lines(5));
  const TextFiles found = find_text_files({text().string()}, cache());
  std::vector<std::string> names;
  for (const TextFile& file : found.files) names.push_back(file.name);
  ASSERT_EQ(names.size(), 20u);
  EXPECT_FALSE(std::is_sorted(names.begin(), names.end()));
  fs::rename(text(), folder / "moved");
  const TextFiles moved = find_text_files({(folder / "moved/").string()}, cache());
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(moved.files[i].name, names[i]);
}

TEST_F(CorpusOf, FoldersSkipWhatIsHiddenEmptyOrNotText) {
  add("a.txt", lines(40, "seen"));
  add(".hidden", "secret");
  add(".git/config", "secret");
  add("empty.txt", "");
  add("picture.png", "\x89PNG\xff\xfe");
  add("zeros", std::string(10, '\0'));
  ::testing::internal::CaptureStderr();
  const std::string train = train_text(options({""}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(train.begin(), train.end(), '|'), 1);
  EXPECT_EQ(train.substr(0, 8), "|seen 0\n");
  EXPECT_EQ(read(made() / "corpus.json").find("picture"), std::string::npos);
  EXPECT_NE(read(made() / "corpus.json").find("a.txt"), std::string::npos);
  EXPECT_NE(said.find("passed over 2 hidden files and folders and 2 files that are not UTF-8 text"), std::string::npos)
      << said;
}

TEST_F(CorpusOf, PatternsFindFilesAndFolders) {
  add("a.txt", lines(3));
  add("b.md", lines(3));
  add("deep/c.txt", lines(3));
  add("deep/er/d.txt", lines(3));
  const auto names = [&](const std::string& pattern) {
    std::set<std::string> names;
    for (const TextFile& file : find_text_files({(text() / pattern).string()}, cache()).files) names.insert(file.name);
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names("*.txt"), (Names{"a.txt"}));
  EXPECT_EQ(names("*.{txt,md}"), (Names{"a.txt", "b.md"}));
  EXPECT_EQ(names("d*"), (Names{"deep/c.txt", "deep/er/d.txt"}));
  EXPECT_EQ(names("**/*.txt"), (Names{"a.txt", "deep/c.txt", "deep/er/d.txt"}));
  EXPECT_EQ(find_text_files({(text() / "a.txt").string(), text().string()}, cache()).files.size(), 4u);
  EXPECT_TRUE(is_refused(options({"*.rst"}), "no file matches " + (text() / "*.rst").string()));
  EXPECT_TRUE(is_refused(options({"**/*.rst"}), "no file matches "));
}

TEST_F(CorpusOf, JsonLinesAreDocuments) {
  std::string content;
  for (int i = 0; i < 50; ++i)
    content += R"({"id": 1, "text": "one\ntwo é"})"
               "\n\n";
  add("a.jsonl", content);
  const Corpus corpus = prepare_corpus(options({"a.jsonl"}));
  const std::string train = text_of(*corpus.tokenizer, corpus.train);
  EXPECT_EQ(train.substr(0, 20), "|one\ntwo é|one\ntwo ");
  EXPECT_EQ(corpus.train.bytes() + corpus.validation.bytes(), 50 * 10);
  EXPECT_EQ(corpus.validation.bytes() % 10, 0);
  const std::string nested = std::string(66'000, '[') + std::string(66'000, ']');
  const auto no_text = [](const std::string& line) { return "expected a JSON object with a \"text\", got " + line; };
  for (const auto& [broken, reason] :
       {std::pair<std::string, std::string>{R"({"title": "x"})", no_text(R"({"title": "x"})")},
        {R"({"text": 3})", no_text(R"({"text": 3})")},
        {"[]", no_text("[]")},
        {R"({"text": "a)", "expected JSON, but line 1, column 12"},
        {R"({"text": "a", "text": "b"})", "key \"text\" appears twice"},
        {R"({"text": "a", "b": )" + nested + "}", "at most 64 levels"}}) {
    fs::remove_all(cache());
    // The first of two: the other is in the validation text.
    add("b.jsonl", "{\"text\": \"fine\"}\n\n" + broken + "\n" + content + "{\"text\": 4}\n");
    EXPECT_TRUE(is_refused(options({"b.jsonl"}), "b.jsonl line 3: "));
    EXPECT_TRUE(is_refused(options({"b.jsonl"}), reason));
  }
}

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

TEST_F(CorpusOf, ValidationFilesAreNotTrainedOn) {
  add("train/a.txt", lines(20, "train"));
  add("train/held.txt", lines(20, "held"));
  const Corpus corpus = prepare_corpus(options({"train"}, {"train/held.txt"}));
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.train), "|" + lines(20, "train"));
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.validation), "|" + lines(20, "held"));
  EXPECT_TRUE(fails_with("every training file is also a validation file",
                         [&] { prepare_corpus(options({"train/a.txt"}, {"train/a.txt"})); }));
}

TEST_F(CorpusOf, ValidationAloneCanBeMade) {
  add("a.txt", lines(20));
  const Corpus corpus = prepare_corpus(options({}, {"a.txt"}), byte_tokenizer());
  EXPECT_EQ(corpus.train.size(), 0);
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.validation), "|" + lines(20));
}

TEST_F(CorpusOf, ATokenizerIsTrainedOnceOnTheTrainingText) {
  add("a.txt", lines(2000) + lines(200, "Ω"));
  CorpusOptions trained = options({"a.txt"});
  trained.tokenizer = "sentencepiece:280";
  trained.validation_fraction = 0.08;
  const Corpus corpus = prepare_corpus(trained);
  EXPECT_EQ(corpus.tokenizer->vocab_size(), 280);
  EXPECT_EQ(corpus.tokenizer->encode("Ω").size(), 2u);  // never seen in training: its bytes
  EXPECT_EQ(text_of(*corpus.tokenizer, corpus.train).substr(0, 14), "|line 0\nline 1");
  const fs::path folder = made();
  EXPECT_EQ(prepare_corpus(trained).tokenizer->fingerprint(), corpus.tokenizer->fingerprint());
  prepare_corpus(trained, corpus.tokenizer);  // a run that goes on
  EXPECT_EQ(made(), folder);
  trained.tokenizer = (folder / "tokenizer.model").string();
  EXPECT_TRUE(at::equal(prepare_corpus(trained).train.read(0, 100), corpus.train.read(0, 100)));
}

TEST_F(CorpusOf, LongFilesBecomeSeveralShards) {
  std::string content;
  while (content.size() < (5 << 20)) content += lines(20000, "a line of some length é");
  add("a.txt", content);
  const Corpus corpus = prepare_corpus(options({"a.txt"}));
  EXPECT_TRUE(fs::exists(made() / "train" / "shard-00001.safetensors"));
  const at::Tensor tokens = corpus.train.read(0, corpus.train.size());
  const at::Tensor bytes = at::from_blob(content.data(), {tokens.numel() - 1}, at::kByte);
  EXPECT_TRUE(at::equal(tokens.slice(0, 1), bytes.to(at::kLong)));
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

TEST_F(CorpusOf, BadTextIsRefusedInASentence) {
  add("latin.txt", "caf\xe9 au lait");
  add("zero.txt", std::string("ab\0c", 4));
  add("empty.txt", " \n");
  add("x", "x");
  add("only/picture.png", "\xff\xd8");
  EXPECT_TRUE(is_refused(options({}), "expected files of UTF-8 text, got none"));
  EXPECT_TRUE(is_refused(options({"nothing.txt"}), "nothing.txt cannot be read: No such file"));
  EXPECT_TRUE(is_refused(options({"latin.txt"}), "latin.txt is not UTF-8 text: it has the byte 233 at position 3"));
  EXPECT_TRUE(is_refused(options({"zero.txt"}), "zero.txt is not UTF-8 text: it has the byte 0 at position 2"));
  EXPECT_TRUE(is_refused(options({"empty.txt"}), "empty.txt is empty, expected a file with text"));
  EXPECT_TRUE(is_refused(options({"x"}), "expected at least 2 tokens of "));
  EXPECT_TRUE(is_refused(options({"only"}), "none of the 1 training files holds UTF-8 text"));
  CorpusOptions device = options({"x"});
  device.train = {"/dev/zero"};
  EXPECT_TRUE(is_refused(device, "/dev/zero is not a file with text"));
}

TEST_F(CorpusOf, BadOptionsAreRefusedInASentence) {
  add("a.txt", lines(50));
  CorpusOptions bad = options({"a.txt"});
  bad.validation_fraction = 1;
  EXPECT_TRUE(is_refused(bad, "expected a validation_fraction between 0 and 1, got 1"));
  bad = options({"a.txt"});
  bad.tokenizer = "sentencepiece:many";
  EXPECT_TRUE(is_refused(bad, "expected a tokenizer as sentencepiece:N"));
  bad.tokenizer = "sentencepiece:30000";
  EXPECT_TRUE(is_refused(bad, "30000 pieces cannot be trained on "));
  bad.tokenizer = "words";
  EXPECT_TRUE(is_refused(bad, "expected the tokenizer as bytes, sentencepiece:N or a SentencePiece file, got words"));
  bad.tokenizer = (text() / "a.txt").string();
  EXPECT_TRUE(is_refused(bad, "a.txt is not a SentencePiece model"));
  bad = options({"a.txt"});
  bad.cache = text() / "a.txt" / "cache";
  EXPECT_TRUE(fails_with("cannot be made: Not a directory", [&] { prepare_corpus(bad); }));
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
