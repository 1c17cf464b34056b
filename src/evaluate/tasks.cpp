#include "evaluate/tasks.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "text/utf8.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDelimiter = " ";

// One line of a task file; errors say where it is.
class Line {
 public:
  Line(const fs::path& path, int64_t number, const std::string& text)
      : place_("task: line " + std::to_string(number) + " of " + path.string() + ": "),
        object_(parse_json(text, "task: line " + std::to_string(number) + " of " + path.string())) {
    FEM_CHECK(object_.is_object(), place_, "expected a JSON object, got \"", text.substr(0, 40), "\"");
  }

  bool has(const char* name) const { return object_.contains(name); }

  std::string text(const char* name) const {
    FEM_CHECK(has(name) && object_[name].is_string(), place_, "expected \"", name, "\" as text, got ", found(name));
    return object_[name];
  }

  // A text that is to be predicted.
  std::string ending(const char* name) const { return checked_ending(name, text(name)); }

  std::vector<std::string> texts(const char* name) const {
    const auto is_text = [](const json& value) { return value.is_string(); };
    FEM_CHECK(has(name) && object_[name].is_array() && object_[name].size() >= 2 &&
                  std::all_of(object_[name].begin(), object_[name].end(), is_text),
              place_, "expected \"", name, "\" as a list of two texts or more, got ", found(name));
    return object_[name];
  }

  std::vector<std::string> endings(const char* name) const {
    std::vector<std::string> all = texts(name);
    for (const std::string& text : all) checked_ending(name, text);
    return all;
  }

  size_t gold(size_t choices) const {
    FEM_CHECK(has("gold") && object_["gold"].is_number_integer() && object_["gold"] >= 0 && object_["gold"] < choices,
              place_, "expected \"gold\" as a number from 0 to ", choices - 1, ", got ", found("gold"));
    return object_["gold"];
  }

  [[noreturn]] void unknown() const {
    std::string names;
    for (const auto& [name, value] : object_.items()) names += (names.empty() ? "" : ", ") + name;
    FEM_CHECK(false, place_,
              "expected the fields sentence_good and sentence_bad, or query, choices and gold, or context_options, "
              "continuation and gold, or context and continuation; got ",
              names.empty() ? "none" : names);
  }

 private:
  std::string found(const char* name) const {
    return has(name) ? object_[name].dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80) : "none";
  }

  const std::string& checked_ending(const char* name, const std::string& text) const {
    FEM_CHECK(!text.empty(), place_, "expected something to predict in \"", name, "\", got an empty text");
    return text;
  }

  const std::string place_;
  const json object_;
};

Question question_of(const Line& line) {
  Question question;
  if (line.has("sentence_good")) {
    question.choices = {{"", line.ending("sentence_good")}, {"", line.ending("sentence_bad")}};
  } else if (line.has("choices")) {
    const std::string query = line.text("query");
    for (const std::string& choice : line.endings("choices")) question.choices.push_back({query, choice});
    question.gold = line.gold(question.choices.size());
  } else if (line.has("context_options")) {
    const std::string ending = line.ending("continuation");
    for (const std::string& context : line.texts("context_options")) question.choices.push_back({context, ending});
    question.gold = line.gold(question.choices.size());
  } else if (line.has("context")) {
    question.choices = {{line.text("context"), line.ending("continuation")}};
  } else {
    line.unknown();
  }
  return question;
}

// Of equal ones the first.
size_t likeliest(const std::vector<double>& scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

}  // namespace

std::vector<Question> read_task(const fs::path& path) {
  std::ifstream file(path);
  FEM_CHECK(file.good() && !fs::is_directory(path), "task: expected a file of JSON lines, but ", path.string(),
            " cannot be read");
  std::vector<Question> questions;
  int64_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") != std::string::npos)
      questions.push_back(question_of(Line(path, number, text)));
  }
  FEM_CHECK(!questions.empty(), "task: expected at least one question in ", path.string(), ", got none");
  return questions;
}

TaskScore score_task(LanguageModel& model, const Tokenizer& tokenizer, const fs::path& path, int64_t batch_tokens,
                     int64_t limit) {
  std::vector<Question> questions = read_task(path);
  if (limit > 0 && limit < static_cast<int64_t>(questions.size())) questions.resize(limit);
  std::vector<Continuation> texts;
  for (const Question& question : questions)
    for (const auto& [context, continuation] : question.choices) texts.push_back({context, kDelimiter + continuation});

  TaskScore score{.name = path.stem().string(), .questions = static_cast<int64_t>(questions.size())};
  Progress progress(score.name, static_cast<int64_t>(texts.size()), "text");
  const std::vector<Likelihood> found = likelihoods(model, tokenizer, texts, batch_tokens, [&](int64_t done) {
    throw_if_interrupted();
    progress.update(done);
  });

  double correct = 0, correct_by_character = 0, gold_log_probability = 0;
  auto next = found.begin();
  for (const Question& question : questions) {
    const bool single = question.choices.size() == 1, greedy = next->greedy;
    std::vector<double> plain, by_character;
    for (const Continuation& choice : question.choices) {
      plain.push_back((next++)->log_probability);
      by_character.push_back(plain.back() / static_cast<double>(characters_in(choice.continuation)));
    }
    correct += single ? greedy : likeliest(plain) == question.gold;
    correct_by_character += single ? greedy : likeliest(by_character) == question.gold;
    gold_log_probability += plain[question.gold];
    score.log_probabilities.push_back(std::move(plain));
  }
  const auto count = static_cast<double>(questions.size());
  score.accuracy = correct / count;
  score.normalized_accuracy = correct_by_character / count;
  score.standard_error = std::sqrt(score.accuracy * (1 - score.accuracy) / (count - 1));
  score.perplexity = std::exp(-gold_log_probability / count);
  return score;
}

}  // namespace fem
