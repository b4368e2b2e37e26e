// Several processes read, write, map, truncate and punch one file and check every byte that they see against a model in
// shared memory (tests/mount/test_processes.py).
//
//   coherence FILE MODEL SECONDS SEED ROLE...   prints one line of JSON; exit status 1 when anything was wrong
//   coherence --check FILE MODEL                looks whether the file is as the run before left it
//
// MODEL is a file elsewhere, which that run makes. Each ROLE is a process: a method of Process, see run().
//
// The file is an array of blocks, a block an array of words, and every change gives each word of a block one number,
// which only grows: how often the block was changed before. Whoever changes blocks holds fcntl's lock on them, so there
// is one change of a block at a time. The model holds, for each block, the last change begun, the last one completed,
// and the last one that made it zeros (a hole). A read may see any change from the last one completed when it began to
// the last one begun when it ended, and nothing else: no older one, and none that was made up.
#include <fcntl.h>
#include <libaio.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kBlockBytes = 64 * 1024;
constexpr unsigned kBlocks = 8;
constexpr uint64_t kFileBytes = kBlocks * kBlockBytes;
constexpr size_t kWords = kBlockBytes / sizeof(uint64_t);
constexpr uint64_t kHole = 0;
constexpr size_t kChangers = 8, kName = 16;

using Block = std::array<uint64_t, kWords>;

struct BlockModel {
  std::atomic<uint64_t> begun, completed, zeroed;
  char changers[kChangers]
               [kName];  // who made the last changes, by number; written with the lock held, read for messages
};

struct Model {
  BlockModel blocks[kBlocks];
  int64_t began_ns;
  double age() const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<double>(std::chrono::nanoseconds(now).count() - began_ns) / 1e9;
  }
  std::atomic<bool> stop;
  // Counts of the run.
  std::atomic<uint64_t> writes, reads, opens, stores, holes, truncations;
  // What was wrong: seen by a first read, and still there when the same handle read once more; seen by who held the
  // lock, when there was one right answer.
  std::atomic<uint64_t> wrong, wrong_twice, wrong_locked, failed;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(2);
}

// --- one process -----------------------------------------------------------------------------------------------------

class Process {
 public:
  Process(Model& model, std::string path, uint64_t seed) : model_(model), path_(std::move(path)), random_(seed) {}

  void run(const std::string& role);

 private:
  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }

  int open_file(int flags) {
    const int file = ::open(path_.c_str(), flags | O_CLOEXEC, 0600);
    if (file < 0) die("open");
    model_.opens.fetch_add(1, std::memory_order_relaxed);
    return file;
  }

  // Waits for the lock of blocks first to last - 1, or gives it back.
  void lock(unsigned first, unsigned last, int type) {
    struct flock range {};
    range.l_type = static_cast<short>(type);
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(first * kBlockBytes);
    range.l_len = static_cast<off_t>((last - first) * kBlockBytes);
    while (::fcntl(locks_, F_SETLKW, &range) != 0)
      if (errno != EINTR) die("lock");
  }

  void say(const char* what, unsigned block, uint64_t word, uint64_t from, uint64_t to) {
    if (said_++ < 3)
      std::fprintf(stderr, "%.3f s: %s: %s block %u: %llu by %s, where %llu by %s to %llu by %s are right\n",
                   model_.age(), role_.c_str(), what, block, static_cast<unsigned long long>(word),
                   changer(block, word), static_cast<unsigned long long>(from), changer(block, from),
                   static_cast<unsigned long long>(to), changer(block, to));
  }

  // One look at a block by `read_block`. False: it saw what it must not.
  bool look(unsigned block, const std::function<void(Block&)>& read_block, const char* what) {
    BlockModel& state = model_.blocks[block];
    const uint64_t from = state.completed.load();
    read_block(seen_);
    const uint64_t zeroed = state.zeroed.load();
    const uint64_t to = state.begun.load();
    model_.reads.fetch_add(1, std::memory_order_relaxed);
    for (const uint64_t word : seen_) {
      if (word == kHole ? zeroed >= from : word >= from && word <= to) continue;
      say(what, block, word, from, to);
      return false;
    }
    return true;
  }

  void look_twice(unsigned block, const std::function<void(Block&)>& read_block, const char* what) {
    if (look(block, read_block, what)) return;
    model_.wrong.fetch_add(1);
    if (!look(block, read_block, what)) model_.wrong_twice.fetch_add(1);
  }

  // With the block's lock held: there is one right answer.
  void look_locked(unsigned block, const std::function<void(Block&)>& read_block, const char* what) {
    const uint64_t before = model_.wrong.load();
    look_twice(block, read_block, what);
    if (model_.wrong.load() != before) model_.wrong_locked.fetch_add(1);
  }

  std::function<void(Block&)> by_read(int file, unsigned block) {
    return [this, file, block](Block& into) {
      size_t done = 0;
      while (done < kBlockBytes) {
        const ssize_t got = ::pread(file, reinterpret_cast<char*>(into.data()) + done, kBlockBytes - done,
                                    static_cast<off_t>(block * kBlockBytes + done));
        checked(got < 0 ? -1 : 0, "read");
        if (got <= 0) break;
        done += static_cast<size_t>(got);
      }
      // Behind the end of the file it is as in a hole: somebody has just truncated it.
      std::memset(reinterpret_cast<char*>(into.data()) + done, 0, kBlockBytes - done);
    };
  }

  static std::function<void(Block&)> by_mapping(const uint64_t* mapping, unsigned block) {
    return [mapping, block](Block& into) {
      const uint64_t* from = mapping + block * kWords;
      for (size_t word = 0; word < kWords; ++word) into[word] = __atomic_load_n(from + word, __ATOMIC_RELAXED);
    };
  }

  uint64_t* map(int file, int protection) {
    void* mapping = ::mmap(nullptr, kFileBytes, protection, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) die("mmap");
    return static_cast<uint64_t*>(mapping);
  }

  // At once, or by some pages, or by what is no multiple of a page.
  void write_block(int file, bool whole_pages, unsigned block, uint64_t number) {
    written_.fill(number);
    uint64_t step = kBlockBytes;
    if (const unsigned kind = pick(4); kind == 0)
      step = 4096u << pick(4);
    else if (kind == 1 && !whole_pages)
      step = sizeof(uint64_t) * (500 + pick(2000));
    for (uint64_t done = 0; done < kBlockBytes;) {
      const ssize_t wrote =
          ::pwrite(file, reinterpret_cast<const char*>(written_.data()) + done, std::min(step, kBlockBytes - done),
                   static_cast<off_t>(block * kBlockBytes + done));
      checked(wrote > 0 ? 0 : -1, "write");
      if (wrote <= 0) return;
      done += static_cast<uint64_t>(wrote);
    }
  }

  char* changer(unsigned block, uint64_t number) { return model_.blocks[block].changers[number % kChangers]; }

  uint64_t begin_change(unsigned block) {
    BlockModel& state = model_.blocks[block];
    const uint64_t number = state.begun.load() + 1;
    std::snprintf(changer(block, number), kName, "%s", role_.c_str());
    state.begun.store(number);
    return number;
  }

  void change(unsigned block, const std::function<void(uint64_t)>& make) {
    BlockModel& state = model_.blocks[block];
    const uint64_t number = begin_change(block);
    make(number);
    state.completed.store(number);
  }

  // Blocks first to last - 1 become zeros by one call or a few.
  void make_zeros(unsigned first, unsigned last, const std::function<void()>& make) {
    for (unsigned block = first; block < last; ++block) {
      BlockModel& state = model_.blocks[block];
      state.zeroed.store(begin_change(block));
    }
    make();
    for (unsigned block = first; block < last; ++block)
      model_.blocks[block].completed.store(model_.blocks[block].begun.load());
  }

  void checked(int result, const char* what) {
    if (result == 0) return;
    std::perror(what);
    model_.failed.fetch_add(1);
  }

  // Submits all of it as one direct write, and waits for that.
  void submit_block(int file, unsigned block, uint64_t number) {
    written_.fill(number);
    if (context_ == nullptr && ::io_setup(1, &context_) != 0) die("io_setup");
    struct iocb request {};
    struct iocb* requests[] = {&request};
    io_prep_pwrite(&request, file, written_.data(), kBlockBytes, static_cast<off_t>(block * kBlockBytes));
    struct io_event event {};
    const bool is_done =
        ::io_submit(context_, 1, requests) == 1 && ::io_getevents(context_, 1, 1, &event, nullptr) == 1;
    checked(is_done && event.res == kBlockBytes ? 0 : -1, "submitted write");
  }

  void write(int flags, bool submits = false);
  void read(int flags);
  void open_and_read(int flags);
  void store_through_mapping();
  void look_through_mapping();
  void truncate();
  void truncate_by_open();
  void punch();

  Model& model_;
  const std::string path_;
  std::mt19937_64 random_;
  std::string role_;
  int locks_ = -1;
  unsigned said_ = 0;
  io_context_t context_ = nullptr;
  alignas(4096) Block seen_{};
  alignas(4096) Block written_{};
};

// Writes a block and reads it back, through this handle or, when it cannot be read, another.
void Process::write(int flags, bool submits) {
  const int file = open_file(flags);
  const int back = (flags & O_ACCMODE) == O_RDWR ? file : open_file(O_RDONLY);
  for (unsigned turns = 50 + pick(200); turns > 0 && !model_.stop; --turns) {
    const unsigned block = pick(kBlocks);
    lock(block, block + 1, F_WRLCK);
    change(block, [&](uint64_t number) {
      submits ? submit_block(file, block, number) : write_block(file, (flags & O_DIRECT) != 0, block, number);
    });
    model_.writes.fetch_add(1, std::memory_order_relaxed);
    look_locked(block, by_read(back, block), "after its write");
    lock(block, block + 1, F_UNLCK);
  }
  if (back != file) ::close(back);
  checked(::close(file), "close");
}

void Process::read(int flags) {
  const int file = open_file(flags);
  for (unsigned turns = 500; turns > 0 && !model_.stop; --turns) {
    const unsigned block = pick(kBlocks);
    look_twice(block, by_read(file, block), "read");
  }
  ::close(file);
}

void Process::open_and_read(int flags) {
  const int file = open_file(flags);
  const unsigned block = pick(kBlocks);
  look_twice(block, by_read(file, block), "open and read");
  ::close(file);
}

// Every second time it changes nothing, but makes the pages dirty: what is wrong in them would be written back.
void Process::store_through_mapping() {
  const int file = open_file(O_RDWR);
  uint64_t* mapping = map(file, PROT_READ | PROT_WRITE);
  for (unsigned turns = 100; turns > 0 && !model_.stop; --turns) {
    const unsigned block = pick(kBlocks);
    lock(block, block + 1, F_WRLCK);
    look_locked(block, by_mapping(mapping, block), "mapping, before its stores");
    volatile uint64_t* words = mapping + block * kWords;
    if (pick(2) == 0) {
      for (size_t word = 0; word < kWords; word += 512) words[word] = words[word];
    } else {
      change(block, [&](uint64_t number) {
        for (size_t word = 0; word < kWords; ++word) words[word] = number;
      });
    }
    model_.stores.fetch_add(1, std::memory_order_relaxed);
    if (pick(4) == 0) checked(::msync(mapping + block * kWords, kBlockBytes, MS_SYNC), "msync");
    look_locked(block, by_read(file, block), "read, after stores");
    lock(block, block + 1, F_UNLCK);
  }
  checked(::munmap(mapping, kFileBytes), "munmap");
  checked(::close(file), "close");
}

// Whoever truncates would end this process by SIGBUS, so it holds the locks for reading. (Writers hold one block's.)
void Process::look_through_mapping() {
  const int file = open_file(O_RDONLY);
  const uint64_t* mapping = map(file, PROT_READ);
  for (unsigned turns = 200; turns > 0 && !model_.stop; --turns) {
    const unsigned block = pick(kBlocks);
    lock(block, block + 1, F_RDLCK);
    look_locked(block, by_mapping(mapping, block), "mapping");
    lock(block, block + 1, F_UNLCK);
  }
  ::munmap(const_cast<uint64_t*>(mapping), kFileBytes);
  ::close(file);
}

void Process::truncate() {
  const unsigned first = pick(kBlocks);
  lock(first, kBlocks, F_WRLCK);
  make_zeros(first, kBlocks, [&] {
    const int file = open_file(O_WRONLY);
    checked(::ftruncate(file, static_cast<off_t>(first * kBlockBytes)), "ftruncate");
    checked(::ftruncate(file, kFileBytes), "ftruncate");
    checked(::close(file), "close");
  });
  lock(first, kBlocks, F_UNLCK);
  model_.truncations.fetch_add(1, std::memory_order_relaxed);
  std::this_thread::sleep_for(std::chrono::milliseconds(pick(20)));
}

void Process::truncate_by_open() {
  lock(0, kBlocks, F_WRLCK);
  make_zeros(0, kBlocks, [&] {
    const int file = open_file(O_WRONLY | O_TRUNC);
    checked(::ftruncate(file, kFileBytes), "ftruncate");
    checked(::close(file), "close");
  });
  lock(0, kBlocks, F_UNLCK);
  model_.truncations.fetch_add(1, std::memory_order_relaxed);
  std::this_thread::sleep_for(std::chrono::milliseconds(pick(40)));
}

void Process::punch() {
  const int file = open_file(pick(2) == 0 ? O_RDWR : O_WRONLY);
  for (unsigned turns = 20; turns > 0 && !model_.stop; --turns) {
    const unsigned first = pick(kBlocks), last = first + 1 + pick(kBlocks - first);
    lock(first, last, F_WRLCK);
    make_zeros(first, last, [&] {
      checked(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first * kBlockBytes),
                          static_cast<off_t>((last - first) * kBlockBytes)),
              "punch");
    });
    lock(first, last, F_UNLCK);
    model_.holes.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::milliseconds(pick(5)));
  }
  checked(::close(file), "close");
}

void Process::run(const std::string& role) {
  role_ = role;
  // fcntl's locks go with any descriptor of the file that the process closes: these are of the file beside it.
  locks_ = ::open((path_ + ".locks").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (locks_ < 0) die("open the locks");
  const std::map<std::string, std::function<void()>> roles = {
      {"write-rdwr", [this] { write(O_RDWR); }},
      {"write-wronly", [this] { write(O_WRONLY); }},
      {"write-direct", [this] { write(O_WRONLY | O_DIRECT); }},
      {"submit-rdwr", [this] { write(O_RDWR | O_DIRECT, true); }},
      {"submit-wronly", [this] { write(O_WRONLY | O_DIRECT, true); }},
      {"read", [this] { read(O_RDONLY); }},
      {"read-direct", [this] { read(O_RDONLY | O_DIRECT); }},
      {"open", [this] { open_and_read(O_RDONLY); }},
      {"map-write", [this] { store_through_mapping(); }},
      {"map-read", [this] { look_through_mapping(); }},
      {"truncate", [this] { truncate(); }},
      {"open-trunc", [this] { truncate_by_open(); }},
      {"punch", [this] { punch(); }},
  };
  const auto found = roles.find(role);
  if (found == roles.end()) {
    std::fprintf(stderr, "no role %s\n", role.c_str());
    std::_Exit(2);
  }
  while (!model_.stop) found->second();
}

// --- the run -----------------------------------------------------------------------------------------------------

Model& share_model(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Model)) != 0) die("open the model");
  void* memory = ::mmap(nullptr, sizeof(Model), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) die("mmap the model");
  ::close(file);
  return *static_cast<Model*>(memory);
}

// The file when nobody changes it any more. Returns how many blocks are wrong.
unsigned wrong_at_rest(const Model& model, const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) die("open");
  unsigned wrong = 0;
  for (unsigned block = 0; block < kBlocks; ++block) {
    static Block content;
    if (::pread(file, content.data(), kBlockBytes, static_cast<off_t>(block * kBlockBytes)) !=
        static_cast<ssize_t>(kBlockBytes))
      die("read at the end");
    const BlockModel& state = model.blocks[block];
    const uint64_t right = state.zeroed == state.completed ? kHole : state.completed.load();
    if (std::all_of(content.begin(), content.end(), [right](uint64_t word) { return word == right; })) continue;
    ++wrong;
    std::fprintf(stderr, "at the end, block %u: %llu, where %llu is right\n", block,
                 static_cast<unsigned long long>(
                     *std::find_if(content.begin(), content.end(), [right](uint64_t word) { return word != right; })),
                 static_cast<unsigned long long>(right));
  }
  ::close(file);
  return wrong;
}

int run(const std::string& path, const std::string& model_path, double seconds, uint64_t seed,
        const std::vector<std::string>& roles) {
  Model& model = share_model(model_path);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, kFileBytes) != 0 || ::close(file) != 0) die("make the file");
  model.began_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::vector<pid_t> children;
  for (size_t index = 0; index < roles.size(); ++index) {
    const pid_t child = ::fork();
    if (child < 0) die("fork");
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      static Process process(model, path, seed * 1000 + index);
      process.run(roles[index]);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  model.stop = true;
  unsigned died = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) ++died;
  }
  const unsigned at_rest = wrong_at_rest(model, path);
  std::printf(
      "{\"writes\": %lu, \"reads\": %lu, \"opens\": %lu, \"stores\": %lu, \"holes\": %lu, \"truncations\": %lu, "
      "\"wrong\": %lu, \"wrong_twice\": %lu, \"wrong_locked\": %lu, \"wrong_at_rest\": %u, \"failed\": %lu, "
      "\"died\": %u}\n",
      model.writes.load(), model.reads.load(), model.opens.load(), model.stores.load(), model.holes.load(),
      model.truncations.load(), model.wrong.load(), model.wrong_twice.load(), model.wrong_locked.load(), at_rest,
      model.failed.load(), died);
  return model.wrong == 0 && at_rest == 0 && model.failed == 0 && died == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::string(words[1]) == "--check") return wrong_at_rest(share_model(words[3]), words[2]) != 0;
  if (count < 6) {
    std::fprintf(stderr, "coherence FILE MODEL SECONDS SEED ROLE... | coherence --check FILE MODEL\n");
    return 2;
  }
  return run(words[1], words[2], std::atof(words[3]), std::strtoull(words[4], nullptr, 10), {words + 5, words + count});
}
