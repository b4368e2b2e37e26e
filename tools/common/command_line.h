// What the command lines of all programs share: exit codes, one-line errors, --help and --version, sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "engine/base/status.h"

namespace fpfs::tools {

// Exit codes of mkfs and fpfs; fsck has its own bits beside kExitUsage (tools/fsck).
constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;
constexpr int kExitDamage = 4;  // fpfs verify: the bytes are not what was written
constexpr int kExitUsage = 16;

// What --help says about an argument that names the members of an array.
inline constexpr const char* kDirectoriesHelp = "Directories of the array, one per drive, separated by colons";

// "mkfs.fastpersistfs (fastpersistfs) 0.1.0".
std::string version_line(const std::string& program);

// Writes "PROGRAM: MESSAGE" as one line to stderr (line breaks inside become "; "), behind what was printed to stdout
// before.
void note(const std::string& program, const std::string& message);
// The same, and returns `exit_code`.
int fail(const std::string& program, int exit_code, const std::string& message);
// The exit code of a failed engine call: kExitUsage when the caller's input is what is wrong.
int exit_code_of(const Status& status);
int fail(const std::string& program, const Status& status);

// Ends the engine's log: it is for daemons. What it would say comes back to the tools as a Status, once, and is said by
// them.
Status silence_engine_log();

// Parses; nullopt to go on, or the exit code to leave with: 0 after --help or --version, kExitUsage after one line on
// stderr for anything that CLI11 refuses.
std::optional<int> parse_command_line(CLI::App& app, const std::string& program, int argc, char** argv);

// The argument DIRS. Directories given one by one, as to other programs, are refused with how they are given here.
void add_directories(CLI::App& app, std::string& directories, const char* help = kDirectoriesHelp);

// What was printed so far is written. Fails once, with the reason.
Status flush_output();

// An option that takes a size as people write it (64K, 1M, 2G).
CLI::Option* add_size_option(CLI::App& app, const std::string& name, uint64_t& value, const std::string& help);

// Of an option that takes so many seconds, also in parts.
CLI::Validator seconds_between(double low, double high);

// Runs the program's body: no exception and no unwritten output leaves unnoticed. `failure` is the exit code for both.
int run_program(const std::string& program, int failure, const std::function<int()>& body) noexcept;

}  // namespace fpfs::tools
