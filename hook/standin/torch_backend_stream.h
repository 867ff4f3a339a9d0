/* The stand-in's streams seen by the torch backend: errors, the compute stream, communicators,
 * operations in flight. */
#ifndef GREYHOUND_TORCH_BACKEND_STREAM_H
#define GREYHOUND_TORCH_BACKEND_STREAM_H

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <standin.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace {

using Tensors = std::vector<at::Tensor>;
using c10d::OpType;
using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;

constexpr const char *kName = "greyhound";

/* The stand-in's own CUDA runtime, even where a CUDA build of PyTorch has put a real one with the
 * same names into the global scope. Only NCCL's functions are called by name, for the hook to see.
 */
void *runtime_function(const char *name) {
  static void *const library = [] {
    Dl_info self{};
    TORCH_CHECK(dladdr(reinterpret_cast<void *>(&runtime_function), &self) != 0, kName, ": dladdr");
    std::string path(self.dli_fname);
    path.replace(path.find_last_of('/') + 1, std::string::npos, "libcudart.so.12");
    void *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(opened != nullptr, kName, ": ", dlerror());
    return opened;
  }();
  void *function = dlsym(library, name);
  TORCH_CHECK(function != nullptr, kName, ": ", dlerror());
  return function;
}

#define RT(name)                                                                           \
  (*[] {                                                                                   \
    static auto *const found = reinterpret_cast<decltype(&name)>(runtime_function(#name)); \
    return found;                                                                          \
  }())

void check_cuda(cudaError_t status, const char *call) {
  TORCH_CHECK(status == cudaSuccess, kName, ": ", call, ": ", RT(cudaGetErrorString)(status));
}

void check_nccl(ncclResult_t status, const char *call) {
  TORCH_CHECK(status == ncclSuccess || status == ncclInProgress, kName, ": ", call, ": ",
              ncclGetErrorString(status));
}

#define CUDA(call) check_cuda((call), #call)
#define NCCL(call) check_nccl((call), #call)

int device_index = 0;

/* The stream of the modelled kernels; the counterpart of PyTorch's current stream. */
cudaStream_t compute_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    CUDA(RT(cudaSetDevice)(device_index));
    CUDA(RT(cudaStreamCreateWithFlags)(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

/* When the last operation that the host waited for was done on the device. A GPU's host runs ahead,
 * so that the next kernel would begin then, however long Python takes to get there. */
std::atomic<uint64_t> device_free_ns{0};

void raise_to(std::atomic<uint64_t> &at, uint64_t value) {
  uint64_t seen = at.load();
  while (seen < value && !at.compare_exchange_weak(seen, value)) {
  }
}

struct Comm {
  ncclComm_t handle = nullptr;
  cudaStream_t stream = nullptr;

  Comm(int rank, int size, const ncclUniqueId &id) {
    CUDA(RT(cudaSetDevice)(device_index));
    NCCL(ncclCommInitRank(&handle, size, id, rank));
    CUDA(RT(cudaStreamCreateWithFlags)(&stream, cudaStreamNonBlocking));
  }
  Comm(const Comm &) = delete;
  Comm &operator=(const Comm &) = delete;
  ~Comm() {
    if (stream != nullptr) {
      RT(cudaStreamSynchronize)(stream);
    }
    if (handle != nullptr) {
      ncclCommDestroy(handle);
    }
    if (stream != nullptr) {
      RT(cudaStreamDestroy)(stream);
    }
  }
};

/* One operation, or one group of them, in flight. `finish` copies staged results out, once, on the
 * waiting host. */
class Completion {
 public:
  explicit Completion(std::shared_ptr<Comm> comm) : comm_(std::move(comm)) {
    CUDA(RT(cudaEventCreateWithFlags)(&event_, cudaEventDisableTiming));
  }
  Completion(const Completion &) = delete;
  Completion &operator=(const Completion &) = delete;
  ~Completion() { RT(cudaEventDestroy)(event_); }

  void keep(const Tensors &tensors) {
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }
  void at_end(std::function<void()> copy) { copies_.push_back(std::move(copy)); }
  const std::shared_ptr<Comm> &comm() const { return comm_; }

  void record() {
    auto *stamp = new std::shared_ptr<std::atomic<uint64_t>>(done_ns_);
    CUDA(RT(cudaLaunchHostFunc)(
        comm_->stream,
        [](void *data) {
          auto *owned = static_cast<std::shared_ptr<std::atomic<uint64_t>> *>(data);
          (*owned)->store(RT(standinNow)());
          delete owned;
        },
        stamp));
    CUDA(RT(cudaEventRecord)(event_, comm_->stream));
    recorded_ = true;
  }

  bool ready() {
    if (!recorded_) return false;
    if (RT(cudaEventQuery)(event_) != cudaErrorNotReady) return true;
    RT(cudaGetLastError)();  // as torch does; else it would stay pending
    return false;
  }

  void wait() {
    TORCH_CHECK(recorded_, kName, ": wait() inside a coalescing block that hasn't ended");
    check_cuda(RT(cudaEventSynchronize)(event_), "cudaEventSynchronize (has a peer died?)");
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommGetAsyncError(comm_->handle, &state));
    check_nccl(state, "an operation in flight (has a peer died?)");
    raise_to(device_free_ns, done_ns_->load());
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &copy : copies_) {
      copy();
    }
    copies_.clear();
  }

 private:
  std::shared_ptr<Comm> comm_;
  cudaEvent_t event_ = nullptr;
  std::atomic<bool> recorded_{false};
  std::shared_ptr<std::atomic<uint64_t>> done_ns_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::mutex mutex_;
  Tensors tensors_;
  std::vector<std::function<void()>> copies_;
};

using CompletionPtr = std::shared_ptr<Completion>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/* Completes futures (DDP asks for them) in the order of their operations; one thread, started at
 * the first one. */
class FutureThread {
 public:
  static FutureThread &instance() {
    static auto *thread =
        new FutureThread();  // never destroyed: it may wait for a dead peer at exit
    return *thread;
  }

  void add(CompletionPtr completion, FuturePtr future, Tensors result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({std::move(completion), std::move(future), std::move(result)});
    filled_.notify_one();
  }

 private:
  struct Entry {
    CompletionPtr completion;
    FuturePtr future;
    Tensors result;
  };

  FutureThread() {
    std::thread([this] { run(); }).detach();
  }

  void run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      filled_.wait(lock, [this] { return !queue_.empty(); });
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      try {
        entry.completion->wait();
        entry.future->markCompleted(c10::IValue(entry.result));
      } catch (const std::exception &) {
        entry.future->setError(std::current_exception());
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Entry> queue_;
};

class StreamWork : public Work {
 public:
  StreamWork(int rank, OpType op, CompletionPtr completion, Tensors outputs, uint64_t seq)
      : Work(rank, op),
        completion_(std::move(completion)),
        outputs_(std::move(outputs)),
        seq_(seq) {}

  bool isCompleted() override {
    if (!completion_->ready()) {
      return false;
    }
    completion_->wait();
    return true;
  }
  bool isSuccess() const override { return completion_->ready(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { completion_->wait(); }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    completion_->wait();
    return true;
  }
  uint64_t getSequencenumber() const override { return seq_; }
  FuturePtr getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    FutureThread::instance().add(completion_, future, outputs_);
    return future;
  }

 private:
  CompletionPtr completion_;
  Tensors outputs_;
  uint64_t seq_;
};

}  // namespace

#endif
