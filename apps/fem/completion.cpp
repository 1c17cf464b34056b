// Shell completion, out of the declarations of the commands themselves.
#include <c10/util/StringUtil.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>

#include "commands.h"
#include "io/recipe.h"
#include "util/shell.h"

namespace fem {
namespace {

struct Word {
  std::string word, help;
  bool takes_value = false;
  std::vector<std::string> choices;  // of its value; empty: files
};

// What may stand after "fem", "fem bench", "fem bench read", ...
struct Place {
  std::string path;
  std::vector<Word> commands, options;
  std::vector<std::string> arguments;  // the choices of an argument without a name
  bool or_files = false;               // which may also be a file
};

// Of an option that takes one of some words; CLI11 tells them as "{bash,zsh,fish}". Recipes have names, too.
std::vector<std::string> choices_of(CLI::Option& option) {
  if (option.get_type_name() == kRecipeType) return shipped_recipes();
  try {
    const std::string set = option.get_validator(0)->get_description();
    if (!set.starts_with('{') || !set.ends_with('}')) return {};
    return CLI::detail::split(set.substr(1, set.size() - 2), ',');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

// `inherited`: the options of the commands above this one, which it takes as well.
void visit(CLI::App& app, const std::string& path, const std::vector<Word>& inherited, std::vector<Place>& places) {
  Place place{path};
  std::vector<Word> handed_on = inherited;
  for (CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const bool takes_value = option->get_items_expected_max() > 0;
      place.options.push_back({"--" + name, option->get_description(), takes_value, choices_of(*option)});
      if (option != app.get_help_ptr() && option != app.get_version_ptr()) handed_on.push_back(place.options.back());
    }
    if (option->get_positional() && place.arguments.empty()) {
      place.arguments = choices_of(*option);
      place.or_files = option->get_type_name() == kRecipeType;
    }
  }
  place.options.insert(place.options.end(), inherited.begin(), inherited.end());
  const auto commands = app.get_subcommands([](CLI::App*) { return true; });
  for (const CLI::App* command : commands) place.commands.push_back({command->get_name(), command->get_description()});
  places.push_back(std::move(place));
  for (CLI::App* command : commands) visit(*command, path + " " + command->get_name(), handed_on, places);
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::vector<std::string> words_of(const std::vector<Word>& all) {
  std::vector<std::string> words;
  for (const Word& word : all) words.push_back(word.word);
  return words;
}

// The commands' paths as patterns of a case: 'fem train'|'fem bench'|...
std::string paths_of(const std::vector<Place>& places, const char* between) {
  std::vector<std::string> paths;
  for (const Place& place : places) paths.push_back(shell_word(place.path));
  return joined(paths, between);
}

// The arms of a case over "PLACE OPTION", for options that take a value.
std::string value_arms(const std::vector<Place>& places, const std::function<std::string(const Word&)>& action) {
  std::string arms;
  for (const Place& place : places)
    for (const Word& option : place.options)
      if (option.takes_value)
        arms += "    " + shell_word(place.path + " " + option.word) + ") " + action(option) + " ;;\n";
  return arms;
}

std::string place_arms(const std::vector<Place>& places, const std::function<std::string(const Place&)>& action) {
  std::string arms;
  for (const Place& place : places)
    if (const std::string text = action(place); !text.empty())
      arms += "      " + shell_word(place.path) + ") " + text + " ;;\n";
  return arms;
}

// A script with its @NAMES@ replaced.
std::string filled(std::string script, const std::vector<std::pair<const char*, std::string>>& parts) {
  for (const auto& [name, text] : parts) c10::ReplaceAll(script, name, text);
  return script;
}

// Where there is nothing to propose, -o default proposes files.
constexpr const char* kBash = R"sh(# source <(fem completion bash)
_fem() {
  local current=${COMP_WORDS[COMP_CWORD]} place=fem words= word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$place $word" in
      @PLACES@) place="$place $word" ;;
    esac
  done
  case "$place ${COMP_WORDS[COMP_CWORD-1]}" in
@VALUES@  esac
  if [[ $current == -* ]]; then
    case $place in
@OPTIONS@    esac
  else
    case $place in
@OTHERS@    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _fem fem
)sh";

std::string bash_script(const std::vector<Place>& places) {
  const auto value = [](const Word& option) {
    if (option.choices.empty()) return std::string("COMPREPLY=(); return");
    return "COMPREPLY=($(compgen -W " + shell_word(joined(option.choices)) + " -- \"$current\")); return";
  };
  const auto options = [](const Place& place) { return "words=" + shell_word(joined(words_of(place.options))); };
  const auto others = [](const Place& place) {
    const std::string words = joined(place.commands.empty() ? place.arguments : words_of(place.commands));
    return words.empty() ? "" : "words=" + shell_word(words);
  };
  return filled(kBash, {{"@PLACES@", paths_of(places, "|")},
                        {"@VALUES@", value_arms(places, value)},
                        {"@OPTIONS@", place_arms(places, options)},
                        {"@OTHERS@", place_arms(places, others)}});
}

constexpr const char* kZsh = R"sh(#compdef fem
# source <(fem completion zsh), after compinit
_fem() {
  local place=fem word
  local -a proposed
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
      @PLACES@) place="$place $word" ;;
    esac
  done
  case "$place ${words[CURRENT-1]}" in
@VALUES@  esac
  if [[ ${words[CURRENT]} == -* ]]; then
    case $place in
@OPTIONS@    esac
  else
    case $place in
@OTHERS@    esac
  fi
  (( $#proposed )) && _describe fem proposed || _files
}
compdef _fem fem
)sh";

// 'word:help' for _describe.
std::string described(const std::vector<Word>& words) {
  std::vector<std::string> all;
  for (Word word : words) {
    c10::ReplaceAll(word.help, ":", "\\:");
    all.push_back(shell_word(word.word + ":" + word.help));
  }
  return "proposed=(" + joined(all) + ")";
}

std::string zsh_script(const std::vector<Place>& places) {
  const auto value = [](const Word& option) {
    return option.choices.empty() ? "_files; return" : "compadd -- " + joined(option.choices) + "; return";
  };
  const auto options = [](const Place& place) { return described(place.options); };
  const auto others = [](const Place& place) {
    if (!place.commands.empty()) return described(place.commands);
    return place.arguments.empty() ? std::string() : "proposed=(" + joined(place.arguments) + ")";
  };
  return filled(kZsh, {{"@PLACES@", paths_of(places, "|")},
                       {"@VALUES@", value_arms(places, value)},
                       {"@OPTIONS@", place_arms(places, options)},
                       {"@OTHERS@", place_arms(places, others)}});
}

constexpr const char* kFish = R"sh(# fem completion fish | source
function __fem_at
  set -l place fem
  for word in (commandline -opc)[2..-1]
    switch "$place $word"
      case @PLACES@
        set place "$place $word"
    end
  end
  test "$place" = "$argv"
end
)sh";

std::string fish_script(const std::vector<Place>& places) {
  std::string script = filled(kFish, {{"@PLACES@", paths_of(places, " ")}});
  for (const Place& place : places) {
    const std::string begin = "complete -c fem -n " + shell_word("__fem_at " + place.path);
    for (const Word& command : place.commands)
      script += begin + " -f -a " + command.word + " -d " + shell_word(command.help) + "\n";
    if (!place.arguments.empty())
      script += begin + (place.or_files ? " -a " : " -f -a ") + shell_word(joined(place.arguments)) + "\n";
    for (const Word& option : place.options) {
      script += begin + " -l " + option.word.substr(2) + " -d " + shell_word(option.help);
      if (option.takes_value) script += option.choices.empty() ? " -r" : " -x -a " + shell_word(joined(option.choices));
      script += "\n";
    }
  }
  return script;
}

}  // namespace

void add_completion_command(CLI::App& app) {
  CLI::App* completion = app.add_subcommand("completion", "Print what makes a shell complete fem's words");
  completion->footer(
      "Examples:\n"
      "  source <(fem completion bash)            in ~/.bashrc\n"
      "  source <(fem completion zsh)             in ~/.zshrc, after compinit\n"
      "  fem completion fish | source             in ~/.config/fish/config.fish");
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  completion->callback([shell, &app] {
    std::vector<Place> places;
    visit(app, app.get_name(), {}, places);
    std::cout << (*shell == "bash" ? bash_script(places) : *shell == "zsh" ? zsh_script(places) : fish_script(places));
  });
}

}  // namespace fem
