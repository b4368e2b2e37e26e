// fastpersist._aio: fastpersist-aio for the Python code beside this, which checks arguments and raises what is returned
// here. The interpreter's lock is released wherever a call may block. A request holds what it reads or writes, so that
// no memory goes away under the kernel's hands whatever becomes of its owner.
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/aio/aio.h"

namespace nb = nanobind;
using fastpersist::AioHandle;
using fastpersist::Error;
using fastpersist::PinnedBuffer;

namespace {

// What a request reads or writes: of an object with the buffer protocol, whose buffer stays exported, or at an address
// that is good as long as an owner lives. Made, moved and destroyed with the interpreter's lock.
class Memory {
 public:
  Memory(nb::handle exporter, bool is_written) : view_(std::make_unique<Py_buffer>()) {
    if (PyObject_GetBuffer(exporter.ptr(), view_.get(), is_written ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
      view_.reset();
      throw nb::python_error();
    }
  }
  Memory(uintptr_t address, size_t length, nb::object owner)
      : address_(address), length_(length), owner_(std::move(owner)) {}
  Memory(Memory&&) = default;
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (view_ != nullptr) PyBuffer_Release(view_.get());
  }

  void* data() const { return view_ != nullptr ? view_->buf : reinterpret_cast<void*>(address_); }
  size_t length() const { return view_ != nullptr ? static_cast<size_t>(view_->len) : length_; }

 private:
  std::unique_ptr<Py_buffer> view_;  // its place must not change
  uintptr_t address_ = 0;
  size_t length_ = 0;
  nb::object owner_;
};

// (address, length in bytes, owner), or an object with the buffer protocol.
Memory memory_of(nb::handle source, bool is_written) {
  if (!nb::isinstance<nb::tuple>(source)) return Memory(source, is_written);
  const auto parts = nb::cast<nb::tuple>(source);
  return Memory(nb::cast<uintptr_t>(parts[0]), nb::cast<size_t>(parts[1]), parts[2]);
}

nb::object told(const Error& error) {
  if (error.is_ok()) return nb::none();
  return nb::make_tuple(error.number, nb::steal(PyUnicode_DecodeFSDefault(error.message.c_str())));
}

class Handle {
 public:
  Handle(size_t block_size, unsigned queue_depth, bool single_submit, bool overlap_events,
         unsigned intra_op_parallelism, bool direct) {
    const fastpersist::AioOptions options{.block_size = block_size,
                                          .queue_depth = queue_depth,
                                          .single_submit = single_submit,
                                          .overlap_events = overlap_events,
                                          .intra_op_parallelism = intra_op_parallelism,
                                          .direct = direct};
    Error error;
    {
      const nb::gil_scoped_release unlocked;
      aio_ = AioHandle::open(options, error);
    }
    if (aio_ == nullptr) {
      const nb::object words = told(error);
      PyErr_SetObject(error.number == EINVAL ? PyExc_ValueError : PyExc_OSError,
                      error.number == EINVAL ? nb::object(words[1]).ptr() : words.ptr());
      throw nb::python_error();
    }
  }
  // Waits for what is under way. The child of a fork has the handle's memory but none of its threads: there it is left.
  ~Handle() {
    if (process_ != ::getpid()) {
      static_cast<void>(aio_.release());
      return;
    }
    const nb::gil_scoped_release unlocked;
    aio_.reset();
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  uint64_t begin_read(const nb::bytes& path, nb::handle memory, uint64_t offset) {
    return begin(memory_of(memory, true), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->async_pread(name, data, length, offset);
    });
  }
  uint64_t begin_write(const nb::bytes& path, nb::handle memory, uint64_t offset, bool durable) {
    return begin(memory_of(memory, false), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->async_pwrite(name, data, length, offset, {.durable = durable});
    });
  }
  uint64_t begin_write_to(int file, nb::handle memory, uint64_t offset, bool durable) {
    return begin(memory_of(memory, false), [&](void* data, size_t length) {
      return aio_->async_pwrite(file, data, length, offset, {.durable = durable});
    });
  }
  uint64_t begin_write_file(const nb::bytes& path, nb::handle memory, bool durable) {
    return begin(memory_of(memory, false), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->async_write_file(name, data, length, {.durable = durable});
    });
  }

  // None, or (errno, message).
  nb::object read(const nb::bytes& path, nb::handle memory, uint64_t offset) {
    return run(memory_of(memory, true), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->sync_pread(name, data, length, offset);
    });
  }
  nb::object write(const nb::bytes& path, nb::handle memory, uint64_t offset, bool durable) {
    return run(memory_of(memory, false), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->sync_pwrite(name, data, length, offset, {.durable = durable});
    });
  }
  nb::object write_file(const nb::bytes& path, nb::handle memory, bool durable) {
    return run(memory_of(memory, false), [&, name = name_of(path)](void* data, size_t length) {
      return aio_->sync_write_file(name, data, length, {.durable = durable});
    });
  }

  // (completed, [(request, errno, message, path), ...])
  nb::object wait() {
    check_process();
    std::vector<uint64_t> begun;  // all of them have ended afterwards
    for (const auto& [number, memory] : in_flight_) begun.push_back(number);
    std::optional<fastpersist::Waited> waited;
    {
      const nb::gil_scoped_release unlocked;
      waited = aio_->wait();
    }
    std::vector<std::map<uint64_t, Memory>::node_type> ended;  // which go when the map is whole again
    ended.reserve(begun.size());
    for (const uint64_t number : begun) ended.push_back(in_flight_.extract(number));
    nb::list failures;
    for (const fastpersist::Failure& failure : waited->failures)
      failures.append(nb::make_tuple(failure.request, failure.error.number,
                                     nb::steal(PyUnicode_DecodeFSDefault(failure.error.message.c_str())),
                                     nb::steal(PyUnicode_DecodeFSDefault(failure.path.c_str()))));
    return nb::make_tuple(waited->completed, failures);
  }

 private:
  static std::string name_of(const nb::bytes& path) { return {path.c_str(), path.size()}; }

  void check_process() const {
    if (process_ == ::getpid()) return;
    PyErr_SetString(PyExc_RuntimeError,
                    "this aio_handle was made before a fork, in the parent process; make one in this process");
    throw nb::python_error();
  }

  template <typename Call>
  uint64_t begin(Memory memory, Call call) {
    check_process();
    void* const data = memory.data();
    const size_t length = memory.length();
    // Before it begins, so that nothing that could fail comes after.
    std::map<uint64_t, Memory> one;
    const auto entry = one.emplace(0, std::move(memory)).first;
    uint64_t number = 0;
    {
      const nb::gil_scoped_release unlocked;
      number = call(data, length);
    }
    auto node = one.extract(entry);
    node.key() = number;
    in_flight_.insert(std::move(node));
    return number;
  }

  template <typename Call>
  nb::object run(const Memory& memory, Call call) {
    check_process();
    Error error;
    {
      const nb::gil_scoped_release unlocked;
      error = call(memory.data(), memory.length());
    }
    return told(error);
  }

  const pid_t process_ = ::getpid();
  std::map<uint64_t, Memory> in_flight_;  // with the interpreter's lock
  std::unique_ptr<AioHandle> aio_;        // last: it waits, and then the memory may go
};

// --- pinned memory ---------------------------------------------------------------------------------------------------

int export_pinned(PyObject* self, Py_buffer* view, int flags) {
  const auto* const pinned = nb::inst_ptr<PinnedBuffer>(self);
  return PyBuffer_FillInfo(view, self, pinned->data(), static_cast<Py_ssize_t>(pinned->size()), 0, flags);
}

PyType_Slot pinned_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(export_pinned)}, {0, nullptr}};

void make_pinned(PinnedBuffer* place, size_t size) {
  Error error;
  PinnedBuffer made;
  {
    const nb::gil_scoped_release unlocked;
    made = PinnedBuffer::allocate(size, error);
  }
  if (!error.is_ok()) {
    const nb::object words = told(error);
    PyErr_SetObject(error.number == ENOMEM ? PyExc_MemoryError : PyExc_ValueError, nb::object(words[1]).ptr());
    throw nb::python_error();
  }
  new (place) PinnedBuffer(std::move(made));
}

}  // namespace

NB_MODULE(_aio, module) {        // NOLINT(performance-unnecessary-value-param)
  nb::set_leak_warnings(false);  // what a program still has at its end is no leak of ours
  module.attr("ALIGNMENT") = fastpersist::kAlignment;
  nb::class_<Handle>(module, "Handle")
      .def(nb::init<size_t, unsigned, bool, bool, unsigned, bool>())
      .def("begin_read", &Handle::begin_read)
      .def("begin_write", &Handle::begin_write)
      .def("begin_write_to", &Handle::begin_write_to)
      .def("begin_write_file", &Handle::begin_write_file)
      .def("read", &Handle::read)
      .def("write", &Handle::write)
      .def("write_file", &Handle::write_file)
      .def("wait", &Handle::wait);
  nb::class_<PinnedBuffer>(
      module, "PinnedBuffer", nb::type_slots(pinned_slots), nb::is_weak_referenceable(),
      "PinnedBuffer(size): memory for transfers without a copy, of `size` bytes, zeros at first.\n\n"
      "It has the buffer protocol: numpy.frombuffer(PinnedBuffer(4096), numpy.float32). It is aligned, in huge pages\n"
      "where the kernel has them, and locked in memory as far as the process may (RLIMIT_MEMLOCK). It lives as long "
      "as\n"
      "anything uses it.")
      .def("__init__", &make_pinned, nb::arg("size"))
      .def("__len__", &PinnedBuffer::size)
      .def_prop_ro("address", [](const PinnedBuffer& pinned) { return reinterpret_cast<uintptr_t>(pinned.data()); })
      .def_prop_ro("is_locked", &PinnedBuffer::is_locked, "Whether it stays in memory.")
      .def_prop_ro("lock_error", &PinnedBuffer::lock_error, "errno of mlock(2); 0: it is locked.");
}
