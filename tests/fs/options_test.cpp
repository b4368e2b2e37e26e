#include "fs/process/options.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <utility>

#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "tests/support/temporary_directory.h"

namespace fpfs {
namespace {

using Arguments = std::vector<std::string>;

MountOptions parse_ok(Arguments arguments) {
  arguments.insert(arguments.end(), {"/nvme0/fp:/nvme1/fp", "/mnt/ckpt"});
  Result<MountOptions> options = parse_mount_options(arguments);
  EXPECT_TRUE(options.is_ok()) << options.status().message();
  return options.is_ok() ? *options : MountOptions();
}

Status parse_error(Arguments arguments) {
  arguments.insert(arguments.end(), {"/nvme0/fp:/nvme1/fp", "/mnt/ckpt"});
  return parse_mount_options(arguments).status();
}

TEST(Options, Defaults) {
  const MountOptions options = parse_ok({});
  EXPECT_EQ(options.action, MountOptions::Action::kMount);
  EXPECT_EQ(options.source, "/nvme0/fp:/nvme1/fp");
  EXPECT_EQ(options.directories, (Arguments{"/nvme0/fp", "/nvme1/fp"}));
  EXPECT_EQ(options.mount_point, "/mnt/ckpt");
  EXPECT_FALSE(options.foreground || options.init || options.allow_other || options.nonempty || options.sync_writes);
  EXPECT_EQ(options.store.durable, StoreOptions::Durable::kClose);
  EXPECT_TRUE(options.store.verify);
  EXPECT_EQ(options.store.buffer_memory, 256 * kMiB);
  EXPECT_EQ(options.threads, 0U);
  EXPECT_EQ(options.io_uring, MountOptions::IoUring::kAuto);
  EXPECT_TRUE(options.kernel_options.empty());
}

// Every option of the contract, in both spellings.
struct Spelling {
  const char* text;
  bool (*holds)(const MountOptions&);
};
class EverySpelling : public testing::TestWithParam<Spelling> {};

TEST_P(EverySpelling, AsMountOptionAndAsLongOption) {
  const std::string text = GetParam().text;
  EXPECT_FALSE(GetParam().holds(parse_ok({}))) << text << " must not be the default, or the test shows nothing";
  EXPECT_TRUE(GetParam().holds(parse_ok({"-o", text}))) << text;
  EXPECT_TRUE(GetParam().holds(parse_ok({"-o" + text}))) << text;
  EXPECT_TRUE(GetParam().holds(parse_ok({"--" + text}))) << text;
  EXPECT_TRUE(GetParam().holds(parse_ok({"-o", "nosuid," + text + ",x-test=1", "-o", "noatime"}))) << text;
}

using O = const MountOptions&;
TEST(Options, ReadsAreUncheckedOnlyWhereNothingIsWritten) {
  EXPECT_FALSE(parse_ok({"-o", "ro,verify=off"}).store.verify);
}

INSTANTIATE_TEST_SUITE_P(
    Contract, EverySpelling,
    testing::Values(Spelling{"ro", [](O o) { return o.store.array.read_only; }},
                    Spelling{"allow_other", [](O o) { return o.allow_other; }},
                    Spelling{"durable=fsync", [](O o) { return o.store.durable == StoreOptions::Durable::kFsync; }},
                    Spelling{"buffer_memory=64M", [](O o) { return o.store.buffer_memory == 64 * kMiB; }},
                    Spelling{"queue_depth=1024", [](O o) { return o.store.queue_depth == 1024; }},
                    Spelling{"threads=256", [](O o) { return o.threads == 256; }},
                    Spelling{"read_ahead=1024", [](O o) { return o.store.read_ahead == 1024; }},
                    Spelling{"transfer_size=64K", [](O o) { return o.store.transfer_size == 64 * kKiB; }},
                    Spelling{"submit_batch=64", [](O o) { return o.store.submit_batch == 64; }},
                    Spelling{"workers=256", [](O o) { return o.workers == 256; }},
                    Spelling{"io_uring", [](O o) { return o.io_uring == MountOptions::IoUring::kOn; }},
                    Spelling{"io_uring=yes", [](O o) { return o.io_uring == MountOptions::IoUring::kOn; }},
                    Spelling{"io_uring=off", [](O o) { return o.io_uring == MountOptions::IoUring::kOff; }},
                    Spelling{"io_timeout=5", [](O o) { return o.store.io_timeout_ms == 5000; }},
                    Spelling{"io_timeout=0", [](O o) { return o.store.io_timeout_ms == 0; }},
                    Spelling{"null_write", [](O o) { return o.store.null_write; }},
                    Spelling{"buffered_members", [](O o) { return o.store.array.buffered_members; }},
                    Spelling{"meta_dir=/meta", [](O o) { return o.store.array.metadata_directory == "/meta"; }},
                    Spelling{"init", [](O o) { return o.init; }}, Spelling{"nonempty", [](O o) { return o.nonempty; }},
                    Spelling{"log_level=error", [](O o) { return o.log_level == LogLevel::kError; }},
                    Spelling{"metrics=9101", [](O o) { return o.metrics.text == "127.0.0.1:9101"; }},
                    Spelling{"metrics=[::1]:9101", [](O o) { return o.metrics.text == "[::1]:9101"; }},
                    Spelling{"log_file=/var/log/f", [](O o) { return o.log_file == "/var/log/f"; }},
                    Spelling{"tier=file:///mnt/x", [](O o) { return o.tier.url == "file:///mnt/x"; }},
                    Spelling{"tier=none", [](O o) { return o.tier.url == TierOptions::kNone; }},
                    Spelling{"tier_required=yes", [](O o) { return o.tier.required == std::optional(true); }},
                    Spelling{"tier_required=no", [](O o) { return o.tier.required == std::optional(false); }},
                    Spelling{"tier_rate=200M", [](O o) { return o.tier.copy.rate == 200 * kMiB; }},
                    Spelling{"tier_timeout=5", [](O o) { return o.tier_timeout_ms == 5000; }},
                    Spelling{"tier_rate_saving=0", [](O o) { return o.tier.rate_while_saving == 0; }},
                    Spelling{"tier_connections=256", [](O o) { return o.tier.copy.connections == 256; }},
                    Spelling{"tier_memory=1G", [](O o) { return o.tier.copy.memory == kGiB; }},
                    Spelling{"sync", [](O o) { return o.sync_writes; }}));

TEST(Options, AWrongUrlOfAStoreIsNamedAndItsSecretsAreNot) {
  const Status status = parse_error({"-o", "tier=s3://bucket/x?secret=Sesame"});
  EXPECT_NE(status.message().find("would show a secret"), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find("Sesame"), std::string::npos) << status.message();
  EXPECT_EQ(parse_ok({"-o", "tier_delete=keep"}).tier.copy.tier_delete, TierDelete::kKeep);
  EXPECT_EQ(parse_ok({"-o", "tier_delete=follow"}).tier.copy.tier_delete, TierDelete::kFollow);
  EXPECT_EQ(parse_ok({}).tier.copy.tier_delete, TierDelete::kFollow);
}

// As mount(8) asks, with what the kernel shows of the mount.
TEST(Options, ARemountSaysWhatCanBeDone) {
  for (const char* list : {"remount,ro", "rw,nosuid,user_id=0,group_id=0,default_permissions,allow_other,remount"}) {
    const Status status = parse_error({"-o", list});
    EXPECT_NE(status.message().find("cannot be changed; umount it and mount it again"), std::string::npos)
        << status.message();
  }
}

// What takes no value is not meant by one that has some.
TEST(Options, OneWithAValueIsNotTakenForOneWithout) {
  EXPECT_EQ(parse_error({"-o", "uid=1"}).message().find("did you mean"), std::string::npos);
  EXPECT_NE(parse_error({"-o", "nosud"}).message().find("did you mean nosuid?"), std::string::npos);
}

TEST(Options, DegradedGoesWithReadOnly) {
  const MountOptions options = parse_ok({"-o", "degraded,ro"});
  EXPECT_TRUE(options.store.array.degraded);
  EXPECT_TRUE(options.store.array.read_only);
  const Status status = parse_error({"-o", "degraded"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("degraded needs ro"), std::string::npos) << status.message();
}

TEST(Options, TheLastOfReadOnlyAndReadWriteCounts) {
  EXPECT_TRUE(parse_ok({"-o", "rw,ro"}).store.array.read_only);
  EXPECT_FALSE(parse_ok({"-o", "ro,rw"}).store.array.read_only);
  EXPECT_TRUE(parse_ok({"-r"}).store.array.read_only);
  EXPECT_FALSE(parse_ok({"-r", "-w"}).store.array.read_only);
}

TEST(Options, TheLastOfRepeatedOptionsCounts) {
  EXPECT_EQ(parse_ok({"-o", "io_uring=off,io_uring=auto"}).io_uring, MountOptions::IoUring::kAuto);
  EXPECT_EQ(parse_ok({"--threads=3", "-o", "threads=4,ro,threads=5", "--ro=off"}).threads, 5U);
  EXPECT_FALSE(parse_ok({"--threads=3", "-o", "threads=4,ro,threads=5", "--ro=off"}).store.array.read_only);
  EXPECT_EQ(parse_ok({"-o", "threads=5", "--threads=010"}).threads, 10U);  // decimal
}

TEST(Options, KernelOptionsPassThroughInOrder) {
  EXPECT_EQ(parse_ok({"-o", "nosuid,nodev", "--noexec", "-o", "noatime,dirsync"}).kernel_options,
            (Arguments{"nosuid", "nodev", "noexec", "noatime", "dirsync"}));
}

TEST(Options, FstabWordsAreIgnored) {
  const MountOptions options =
      parse_ok({"-o",
                "rw,defaults,nofail,noauto,user,users,_netdev,x-systemd.requires=/nvme0,comment=checkpoints,"
                "relatime,default_permissions,auto,user=alice"});
  EXPECT_TRUE(options.kernel_options.empty());
  EXPECT_FALSE(options.store.array.read_only);
}

TEST(Options, ABackslashTakesAComma) {
  EXPECT_EQ(parse_ok({"-o", "log_file=/var/log/a\\,b,ro"}).log_file, "/var/log/a,b");
}

TEST(Options, WhatIsWrongIsNamed) {
  struct Case {
    Arguments arguments;
    const char* part;
  };
  const Case cases[] = {
      {{"-o", "durable=never"}, "durable is 'never'; it must be close or fsync"},
      {{"-o", "durable"}, "durable needs a value: durable=close|fsync"},
      {{"-o", "queue_depth=0"}, "queue_depth is '0'; it must be a number from 1 to 1024"},
      {{"-o", "queue_depth=1025"}, "from 1 to 1024"},
      {{"-o", "queue_depth=-1"}, "from 1 to 1024"},
      {{"-o", "queue_depth=4x"}, "from 1 to 1024"},
      {{"-o", "queue_depth=99999999999999999999"}, "from 1 to 1024"},
      {{"-o", "threads=257"}, "from 1 to 256"},
      {{"-o", "read_ahead=1025"}, "from 0 to 1024"},
      {{"-o", "io_timeout=86401"}, "from 0 to 86400"},
      {{"-o", "buffer_memory=1"}, "from 1M to 1024G"},
      {{"-o", "buffer_memory=lots"}, "buffer_memory is 'lots'"},
      {{"-o", "verify=maybe"}, "must be on or off"},
      {{"-o", "log_level=loud"}, "debug, info, warning or error"},
      {{"-o", "tier=/mnt/x"}, "begins with neither file:// nor s3://"},
      {{"-o", "tier_required=perhaps"}, "must be yes or no"},
      {{"-o", "tier_delete=ask"}, "must be follow or keep"},
      {{"-o", "tier_rate=fast"}, "bytes per second up to 1024G, like 200M"},
      {{"-o", "tier_memory=1"}, "from 1M to 1024G"},
      {{"-o", "metrics="}, "metrics needs a value: metrics=PORT"},
      {{"-o", "metrics=:9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=localhost:9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=10.0.0.7"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=0"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=65536"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=9101x"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=::1:9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=[::1]"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=[10.0.0.7]:9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=10.0.0:9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics= 9101"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "metrics=10.0.0.7:"}, "it must be PORT (for this machine only) from 1 to 65535"},
      {{"-o", "log_file="}, "log_file needs a value: log_file=FILE"},
      {{"-o", "threads"}, "threads needs a value: threads=1..256"},
      {{"-o", "null_write="}, "null_write needs a value: null_write=on|off"},
      {{"--durable", "fsync"}, "durable needs a value"},  // never the argument behind it
      {{"-o", "io_uring=2"}, "io_uring is '2'; it must be auto, on or off"},
      {{"-o", "verify=0ff"}, "verify is '0ff'; it must be on or off"},
      {{"-o", "verify=off"}, "verify=off needs ro"},
      {{"-o", "queue_depth=0x10"}, "queue_depth is '0x10'"},
      {{"-o", "read_ahead=-18446744073709551615"}, "from 0 to 1024"},
      {{"-o", "killed_saver=drop"}, "killed_saver is 'drop'; it must be keep_old or commit"},
      {{"-o", "read_ahead=4M"}, "read_ahead is '4M'; it must be a number of chunks from 0 to 1024"},
      {{"-o", "io_timeout=5m"}, "io_timeout is '5m'; it must be a number of seconds from 0 to 86400"},
      {{"-o", "queue-depth=4"}, "unknown option 'queue-depth=4'; did you mean queue_depth?"},
      {{"--io_timout=4"}, "unknown option 'io_timout=4'; did you mean io_timeout?"},
      {{"--limit=4"}, "unknown option 'limit=4' (see fastpersistfs --help)"},
      {{"-o", "noatme"}, "unknown option 'noatme'; did you mean noatime?"},
      {{"-o", "help"}, "unknown option 'help' (see fastpersistfs --help)"},  // of the program, not of a mount
      {{"-o", "foreground"}, "unknown option 'foreground'"},
      {{"--help=maybe"}, "help is 'maybe'; it must be on or off"},
      {{"-o", "dedup=on"}, "dedup is 'on'; it must be off or previous"},
      {{"-o", "compress=gzip"}, "compress is 'gzip'; it must be off, auto, zstd or zstd:1 to zstd:19"},
      {{"-o", "colour=blue"}, "unknown option 'colour=blue'"},
      {{"--colour"}, "unknown option 'colour'"},
      {{"-q"}, "unknown option '-q'"},
      {{"-o", "init,ro"}, "exclude each other"},
  };
  for (const Case& c : cases) {
    const Status status = parse_error(c.arguments);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.part;
    EXPECT_NE(status.message().find(c.part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
}

// Whatever an option takes, but for names of files: a value that makes no sense is refused by a line that says what
// does. The options are those that --help shows.
TEST(Options, EveryRefusalSaysWhatMayBe) {
  const std::regex shown("\n +(?:-., )?--([a-z_]+)\\[?=([^ \\]]+)");
  const std::string usage = mount_usage();
  size_t refused = 0;
  for (auto at = std::sregex_iterator(usage.begin(), usage.end(), shown); at != std::sregex_iterator(); ++at) {
    const std::string name = (*at)[1], type = (*at)[2];
    if (type == "DIR" || type == "FILE") continue;
    const std::string message = parse_error({"-o", name + "=nonsense"}).message();
    EXPECT_TRUE(message.find("; it must be ") != std::string::npos || message.find("; write ") != std::string::npos)
        << message;
    EXPECT_NE(message.find("nonsense"), std::string::npos) << message;
    ++refused;
  }
  EXPECT_GE(refused, 28U) << usage;
  EXPECT_NE(parse_error({"-o", "profile=/no/such"}).message().find("fpfs tune"), std::string::npos);
  EXPECT_NE(
      parse_error({"-o", "tier_keep=abc"}).message().find("it must be all, a size like 500G, or a number of files"),
      std::string::npos);
}

class Profile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    return "profile=" + path_;
  }
  test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "profile";
};

TEST_F(Profile, IsReadAndArgumentsCountMore) {
  const std::string profile = write(
      "# fastpersistfs profile\r\n\n  queue_depth = 32\t\r\ntransfer_size=256K\nsubmit_batch=1\nworkers=3\n"
      "   # a remark\nread_ahead=12");
  const MountOptions options = parse_ok({"-o", profile});
  EXPECT_EQ(options.profile, path_);
  EXPECT_EQ(options.store.queue_depth, 32U);
  EXPECT_EQ(options.store.transfer_size, 256 * kKiB);
  EXPECT_EQ(options.store.submit_batch, 1U);
  EXPECT_EQ(options.workers, 3U);
  EXPECT_EQ(options.store.read_ahead, 12U);
  for (const Arguments& arguments :
       {Arguments{"-o", "queue_depth=5,noatime," + profile}, Arguments{"-o", profile + ",queue_depth=5", "--noatime"},
        Arguments{"--queue_depth=5", "--" + profile, "-o", "noatime"}}) {
    const MountOptions given = parse_ok(arguments);
    EXPECT_EQ(given.store.queue_depth, 5U);
    EXPECT_EQ(given.store.submit_batch, 1U);
    EXPECT_EQ(given.kernel_options, Arguments{"noatime"});
  }
  EXPECT_EQ(parse_ok({"-o", write("")}).store.queue_depth, StoreOptions().queue_depth);
}

TEST_F(Profile, IsNamedWithTheLineThatIsWrong) {
  const std::pair<std::string, const char*> cases[] = {
      {"queue_depth=0\n", "line 1: option queue_depth is '0'; it must be a number from 1 to 1024"},
      {"\n\nsubmit_batch=65", "line 3: option submit_batch is '65'; it must be a number from 1 to 64"},
      {"transfer_size=5000", "it must be a size from 64K to 64M in steps of 4K"},
      {"transfer_size=128M", "it must be a size from 64K to 64M in steps of 4K"},
      {"workers=257", "it must be a number from 0 to 256"},
      {"read_ahead=-1", "it must be a number of chunks from 0 to 1024"},
      {"workers=1\ncolour=blue\n", "line 2: unknown name 'colour'; a profile has queue_depth, transfer_size"},
      {"init=on\n", "line 1: unknown name 'init'"},
      {"profile=/x\n", "line 1: unknown name 'profile'"},
      {"workers=1\r\nworkers=1\r\n", "line 2: workers is there already, in line 1"},
      {"workers=\n", "line 1: workers has no value"},
      {"workers\n", "line 1: it is 'workers'; a line of a profile is NAME=VALUE"},
      {"=3\n", "line 1: unknown name ''"},
      {std::string("\0\1\xff=\n", 5), "line 1: it is no text"},
      {"workers=2\rqueue_depth=3\n", "line 1: it is no text"},
      {std::string(300, 'x'), "line 1: it has 300 bytes"},
      {std::string(20'000, '\n'), "it is longer than 16 KiB, so it is no profile"},
  };
  for (const auto& [text, part] : cases) {
    const Status status = parse_error({"-o", write(text)});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << part;
    EXPECT_TRUE(status.message().starts_with("profile " + path_ + ": ")) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  EXPECT_NE(parse_error({"-o", "profile=/no/such/file"}).message().find("profile /no/such/file: "), std::string::npos);
  EXPECT_NE(parse_error({"-o", "profile=/dev/zero"}).message().find("not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  EXPECT_NE(parse_error({"-o", "profile=" + (directory_ / "fifo")}).message().find("not a regular"), std::string::npos);
}

TEST(Options, WhatStaysOfWhatIsCopied) {
  using Kind = TierKeep::Kind;
  const auto keep_of = [](const char* text) { return parse_mount_options({"-o", text, "/a", "/m"})->tier.keep; };
  EXPECT_EQ(parse_mount_options({"/a", "/m"})->tier.keep, TierKeep());
  EXPECT_EQ(keep_of("tier_keep=all"), TierKeep());
  EXPECT_EQ(keep_of("tier_keep=3"), (TierKeep{Kind::kNewest, 3}));
  EXPECT_EQ(keep_of("tier_keep=500G"), (TierKeep{Kind::kBytes, 500 * kGiB}));
  for (const char* const bad : {"0", "-1", "", "none", "3.5", "0G", "3x", "99999999999999999999"}) {
    const Status status = parse_error({"-o", std::string("tier_keep=") + bad, "/a", "/m"});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("tier_keep"), std::string::npos) << status.message();
  }
}

TEST(Options, WhatNewDataSharesBlocksWith) {
  EXPECT_EQ(parse_mount_options({"/a", "/m"})->store.dedup, StoreOptions::Dedup::kOff);
  EXPECT_EQ(parse_mount_options({"-o", "dedup=previous", "/a", "/m"})->store.dedup, StoreOptions::Dedup::kPrevious);
  EXPECT_EQ(parse_mount_options({"--dedup=off", "/a", "/m"})->store.dedup, StoreOptions::Dedup::kOff);
}

TEST(Options, HowNewDataIsStored) {
  using Mode = Compression::Mode;
  const std::pair<const char*, Compression> cases[] = {{"off", {}},
                                                       {"auto", {.mode = Mode::kAuto, .level = 1}},
                                                       {"zstd", {.mode = Mode::kZstd, .level = 1}},
                                                       {"zstd:19", {.mode = Mode::kZstd, .level = 19}}};
  for (const auto& [text, expected] : cases) {
    const Result<MountOptions> options = parse_mount_options({"-o", std::string("compress=") + text, "/a", "/m"});
    ASSERT_TRUE(options.is_ok()) << options.status().message();
    EXPECT_EQ(options->store.compression, expected) << text;
    EXPECT_EQ(to_string(options->store.compression), text);
  }
  for (const char* text : {"zstd:", "zstd:0", "zstd:20", "zstd:1x", "zstd:+1", "ZSTD", "on", "lz4"})
    EXPECT_EQ(parse_error({"-o", std::string("compress=") + text}).code(), StatusCode::kInvalidArgument) << text;
}

TEST(Options, PositionalArguments) {
  EXPECT_FALSE(parse_mount_options({}).is_ok());
  EXPECT_FALSE(parse_mount_options({"/a"}).is_ok());
  EXPECT_FALSE(parse_mount_options({"/a", "/m", "/x"}).is_ok());
  EXPECT_FALSE(parse_mount_options({"/a", "/m", "-o"}).is_ok());
  Result<MountOptions> after = parse_mount_options({"--", "/a", "-strange"});
  ASSERT_TRUE(after.is_ok());
  EXPECT_EQ(after->mount_point, "-strange");
  // mount(8) puts options behind.
  Result<MountOptions> behind = parse_mount_options({"/a", "/m", "-o", "ro"});
  ASSERT_TRUE(behind.is_ok());
  EXPECT_TRUE(behind->store.array.read_only);
}

TEST(Options, HelpAndVersionNeedNothingElse) {
  Result<MountOptions> help = parse_mount_options({"--help"});
  ASSERT_TRUE(help.is_ok());
  EXPECT_EQ(help->action, MountOptions::Action::kHelp);
  Result<MountOptions> version = parse_mount_options({"--version"});
  ASSERT_TRUE(version.is_ok());
  EXPECT_EQ(version->action, MountOptions::Action::kVersion);
  for (const char* name : {"durable", "buffer_memory", "queue_depth", "threads", "null_write", "degraded"})
    EXPECT_NE(mount_usage().find(name), std::string::npos) << name;
}

TEST(Options, PathsBecomeAbsolute) {
  MountOptions options = parse_ok({"--log_file=here.log"});
  options.directories = {"a", "/b/../c"};
  options.mount_point = std::filesystem::relative("/proc").string();
  Status status = make_paths_absolute(options);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(options.directories[0].front(), '/');
  EXPECT_EQ(options.directories[1], "/c");
  EXPECT_EQ(options.log_file.front(), '/');
  EXPECT_EQ(options.mount_point, "/proc");
  options.mount_point = ".";
  status = make_paths_absolute(options);
  EXPECT_NE(status.message().find("here.log is in the mount itself"), std::string::npos) << status.message();
  options.mount_point = "/no/such/place";
  status = make_paths_absolute(options);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("mkdir -p /no/such/place"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace fpfs
