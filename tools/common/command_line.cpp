#include "tools/common/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "engine/base/log.h"
#include "engine/base/nearest_word.h"
#include "engine/base/one_line.h"
#include "engine/base/tool_log.h"
#include "engine/base/units.h"

namespace fpfs::tools {

namespace {

constexpr const char* kDirectoriesName = "DIRS";

std::string on_one_line(const std::string& text) {
  std::string line;
  for (char c : text) {
    if (c != '\n') {
      line += c;
    } else if (!line.empty() && line.back() != ' ') {
      line += "; ";
    }
  }
  while (!line.empty() && (line.back() == ' ' || line.back() == ';')) line.pop_back();
  return one_line(std::move(line));
}

// Help as help2man and the completions of the shells read it: "-q, --quiet", "--label TEXT", "ACTION start|stop".
class Help : public CLI::Formatter {
 public:
  Help() {
    column_width(30);
    label("Positionals", "Arguments");
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return CLI::detail::find_and_replace(Formatter::make_option_name(option, is_positional), ",", ", ");
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const auto [name, allowed] = type_of(option);
    std::string text = name.empty() ? "" : " " + name;
    if (allowed.starts_with('{')) text += " " + CLI::detail::find_and_replace(inside(allowed), ",", "|");
    return text + repeated(option);
  }

  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string text = make_option_name(option, true) + repeated(option);
    return option->get_required() ? text : "[" + text + "]";
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string allowed = type_of(option).second;
    std::string notes = allowed.ends_with(']') ? inside(allowed.substr(allowed.find('['))) : "";
    const std::string value = option->get_default_str();
    if (!value.empty()) notes += (notes.empty() ? "default " : ", default ") + value;
    return option->get_description() + (notes.empty() ? "" : fmt::format(" ({})", notes));
  }

  // A verb in the help of all verbs.
  std::string make_expanded(const CLI::App* verb) const override {
    const std::string call = fmt::format("{} {}", verb->get_parent()->get_name(), verb->get_name());
    std::string usage = make_usage(verb, call);
    usage = usage.substr(usage.find(call), usage.find('\n', usage.find(call)) - usage.find(call));
    std::string text = fmt::format("\n{}:\n  {}\n", usage, make_description(verb));
    for (const bool positional : {true, false})
      for (const CLI::Option* option : verb->get_options())
        if (option->get_positional() == positional && option != verb->get_help_ptr())
          text += make_option(option, positional);
    return text + make_footer(verb);
  }

 private:
  // DIRS takes several words only to say how they are given (add_directories()).
  static std::string repeated(const CLI::Option* option) {
    const bool takes_several = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return takes_several && option->get_name() != kDirectoriesName ? "..." : "";
  }
  // CLI11's "NAME:CHECK": "N" and "UINT in [1 - 1024]", "" and "{start,stop}".
  static std::pair<std::string, std::string> type_of(const CLI::Option* option) {
    if (option->get_type_size() == 0) return {};
    const std::string type = option->get_type_name();
    const size_t colon = std::min(type.find(':'), type.size());
    return {type.substr(0, colon), type.substr(std::min(colon + 1, type.size()))};
  }
  static std::string inside(const std::string& brackets) { return brackets.substr(1, brackets.size() - 2); }
};

// The words of a command line, as CLI11 takes them apart: which verb they are of, and the first option among them that
// neither it nor the program has. CLI11 itself would complain of what it takes for an argument then: the option's value.
class WordsOf {
 public:
  WordsOf(const CLI::App& app, int argc, char** argv) : app_(app), verb_(&app) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--") return;
      if (word.size() > 1 && word.front() == '-')
        i += take_option(word);
      else if (verb_ == &app)
        take_verb(word);
    }
  }

  std::string help_of(const std::string& program) const {
    return fmt::format("(see {}{} --help)", program, verb_ == &app_ ? "" : " " + verb_->get_name());
  }
  // "unknown option '--limt'; did you mean --limit?"; empty: all are known.
  std::string complaint() const {
    if (unknown_.empty()) return "";
    std::vector<std::string> names;
    for (const CLI::App* app : {verb_, &app_})
      for (const CLI::Option* option : app->get_options())
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    return describe_unknown_option(unknown_, names, "--");
  }

 private:
  void take_verb(const std::string& word) {
    for (const CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; }))
      if (verb->get_name() == word) verb_ = verb;
  }
  // How many words behind it are its value.
  int take_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = verb_->get_option_no_throw(name);
    if (option == nullptr) option = app_.get_option_no_throw(name);
    if (option == nullptr && unknown_.empty()) unknown_ = is_long ? name : word;
    return option != nullptr && name == word ? option->get_items_expected_min() : 0;
  }

  const CLI::App& app_;
  const CLI::App* verb_;
  std::string unknown_;
};

}  // namespace

std::string version_line(const std::string& program) {
  return fmt::format("{} (fastpersistfs) {}", program, FPFS_VERSION);
}

// Where both go to one place, what was printed before comes before.
void note(const std::string& program, const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "{}: {}\n", program, on_one_line(message));
}

int fail(const std::string& program, int exit_code, const std::string& message) {
  note(program, message);
  return exit_code;
}

int exit_code_of(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

int fail(const std::string& program, const Status& status) {
  return fail(program, exit_code_of(status), status.message());
}

Status silence_engine_log() {
  return configure_log({.level = LogLevel::kError, .file = "/dev/null"});
}

std::optional<int> parse_command_line(CLI::App& app, const std::string& program, int argc, char** argv) {
  app.set_version_flag("--version", version_line(program), "Print the version and leave");
  const auto help = std::make_shared<Help>();
  app.formatter(help);
  for (CLI::App* verb : app.get_subcommands({})) verb->formatter(help);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& request) {  // --help, --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const WordsOf words(app, argc, argv);
    const std::string complaint = words.complaint();
    return fail(
        program, kExitUsage,
        fmt::format("{} {}", complaint.empty() ? on_one_line(error.what()) : complaint, words.help_of(program)));
  }
}

void add_directories(CLI::App& app, std::string& directories, const char* help) {
  app.add_option_function<std::vector<std::string>>(
         kDirectoriesName,
         [&directories](const std::vector<std::string>& words) {
           directories = fmt::format("{}", fmt::join(words, ":"));
           if (words.size() > 1)
             throw CLI::ValidationError(
                 fmt::format("{} arguments name directories, which are one argument: {}", words.size(), directories));
         },
         help)
      ->required()
      ->type_name("")
      ->expected(1, -1);
}

CLI::Option* add_size_option(CLI::App& app, const std::string& name, uint64_t& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = parse_size(text).value(); }, help)
      ->check(CLI::Validator(
          [](std::string& text) {
            Result<uint64_t> size = parse_size(text);
            return size.is_ok() ? std::string() : size.status().message();
          },
          ""))
      ->default_str(format_size(value))
      ->type_name("SIZE");
}

CLI::Validator seconds_between(double low, double high) {
  const CLI::Range range(low, high);
  const auto check = [range, low, high](std::string& value) {
    return range(value).empty() ? "" : fmt::format("Value {} not in range {:g} to {:g} seconds", value, low, high);
  };
  return {check, range.get_description()};
}

Status flush_output() {
  if (std::fflush(stdout) == 0) return Status::ok();
  const int failure = errno;
  std::clearerr(stdout);
  return Status::from_errno(failure, "writing the output");
}

int run_program(const std::string& program, int failure, const std::function<int()>& body) noexcept {
  int exit_code = failure;
  try {
    log_for_tool(program);
    exit_code = body();
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: internal error: %s\n", program.c_str(), error.what());
  }
  // A full disk or a closed pipe behind stdout must not look like success to the script that reads the output.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "%s: writing the output: %s\n", program.c_str(), std::strerror(errno));
    if (exit_code == kExitOk) exit_code = failure;
  }
  return exit_code;
}

}  // namespace fpfs::tools
