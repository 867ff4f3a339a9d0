/* How the torch backend issues NCCL calls: types, groups, communicators at first use, operations in
 * flight. */
#ifndef GREYHOUND_TORCH_BACKEND_ISSUE_H
#define GREYHOUND_TORCH_BACKEND_ISSUE_H

#include <cstring>
#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "torch_backend_stream.h"

namespace {

ncclDataType_t data_type(const at::Tensor &tensor, bool reduces) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    default:
      TORCH_CHECK(!reduces && tensor.element_size() == 1, kName, ": data type ",
                  tensor.scalar_type(), " isn't supported; convert the tensor first");
      return ncclUint8;
  }
}

ncclRedOp_t reduction(const c10d::ReduceOp &op, const at::Tensor &tensor) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return tensor.scalar_type() == at::kBool ? ncclMax
                                               : ncclSum;  // as torch does: a boolean sum is an OR
    case c10d::ReduceOp::AVG:
      return ncclAvg;
    case c10d::ReduceOp::PRODUCT:
      return ncclProd;
    case c10d::ReduceOp::MIN:
      return ncclMin;
    case c10d::ReduceOp::MAX:
      return ncclMax;
    default:
      TORCH_CHECK(false, kName, ": NCCL has no such reduction (bitwise, or multiplied beforehand)");
  }
}

void check_tensor(const at::Tensor &tensor) {
  TORCH_CHECK(tensor.is_cpu() && !tensor.is_sparse(), kName, ": only dense CPU tensors, got ",
              tensor.toString());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), kName, ": tensors must be contiguous");
}

/* Elements as NCCL counts them; types that travel as bytes have one byte each. */
size_t count_of(const at::Tensor &tensor) { return static_cast<size_t>(tensor.numel()); }

char *at_element(const at::Tensor &tensor, int64_t index) {
  return static_cast<char *>(tensor.data_ptr()) +
         index * static_cast<int64_t>(tensor.element_size());
}

at::Tensor staging(const at::Tensor &like, int64_t parts) {
  return at::empty({parts * like.numel()}, like.options().memory_format(c10::nullopt));
}

Tensors joined(const Tensors &a, const Tensors &b) {
  Tensors all(a);
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/* A group that is closed also when a call in it throws: an open one would swallow all that follows.
 */
class Group {
 public:
  Group() { NCCL(ncclGroupStart()); }
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;
  ~Group() {
    if (open_) {
      ncclGroupEnd();
    }
  }
  void end() {
    open_ = false;
    NCCL(ncclGroupEnd());
  }

 private:
  bool open_ = true;
};

void send_part(Comm &c, const at::Tensor &t, int64_t from, int64_t count, int peer) {
  NCCL(ncclSend(at_element(t, from), static_cast<size_t>(count), data_type(t, false), peer,
                c.handle, c.stream));
}

void recv_part(Comm &c, const at::Tensor &t, int64_t from, int64_t count, int peer) {
  NCCL(ncclRecv(at_element(t, from), static_cast<size_t>(count), data_type(t, false), peer,
                c.handle, c.stream));
}

/* The communicators of one process group and what is in flight on them. */
class Issuer {
 public:
  Issuer(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}
  Issuer(const Issuer &) = delete;
  Issuer &operator=(const Issuer &) = delete;
  ~Issuer() { release(); }

  uint64_t sequence() const { return seq_; }

  void start_coalescing() {
    auto comm = group_comm();
    follow_compute(*comm);  // before the group: an event wait belongs to no group
    coalesced_ = std::make_shared<Completion>(comm);
    NCCL(ncclGroupStart());
  }

  WorkPtr end_coalescing() {
    NCCL(ncclGroupEnd());
    auto completion = std::move(coalesced_);
    coalesced_.reset();
    completion->record();
    retain(completion);
    return c10::make_intrusive<StreamWork>(rank_, OpType::COALESCED, completion, Tensors{}, seq_);
  }

  /* One call needs no group; several (or sends beside receives) travel as one. */
  template <typename Calls>
  WorkPtr run(OpType op, const Tensors &keep, const Tensors &outputs, const Calls &calls,
              std::function<void()> at_end = nullptr, bool grouped = false) {
    const bool many = op == OpType::ALLTOALL || op == OpType::ALLTOALL_BASE ||
                      op == OpType::GATHER || op == OpType::SCATTER;
    return enqueue(op, group_comm(), keep, outputs, calls, std::move(at_end), grouped || many);
  }

  template <typename Calls>
  WorkPtr point_to_point(OpType op, const Tensors &tensors, int peer, const Calls &calls) {
    TORCH_CHECK(peer >= 0 && peer < size_ && peer != rank_, kName, ": rank ", rank_,
                " can't exchange with rank ", peer);
    const bool inside = coalesced_ != nullptr;
    const int at = inside ? peer : (rank_ < peer ? 1 : 0);
    const auto comm = inside ? coalesced_->comm() : pair_comm(peer);
    return enqueue(
        op, comm, tensors, tensors, [&](Comm &c) { calls(c, at); }, nullptr, tensors.size() > 1);
  }

  void abort() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto &entry : comms_) {
      if (entry.second->handle != nullptr) {
        ncclCommAbort(entry.second->handle);
        entry.second->handle = nullptr;
      }
    }
  }

  void release() noexcept {
    std::deque<CompletionPtr> in_flight;
    std::map<std::string, std::shared_ptr<Comm>> comms;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      in_flight.swap(in_flight_);
      comms.swap(comms_);
    }
    comms.clear();  // a communicator waits for its stream; completions hold the rest of them
  }

 private:
  std::shared_ptr<Comm> group_comm() { return comm_named("all", rank_, size_); }

  /* A pair that sends outside a group has a communicator of its own, as in ProcessGroupNCCL. */
  std::shared_ptr<Comm> pair_comm(int peer) {
    const std::string name = "pair/" + std::to_string(std::min(rank_, peer)) + ":" +
                             std::to_string(std::max(rank_, peer));
    return comm_named(name, rank_ < peer ? 0 : 1, 2);
  }

  std::shared_ptr<Comm> comm_named(const std::string &name, int rank, int size) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = comms_.find(name);
      if (found != comms_.end()) {
        return found->second;
      }
    }
    ncclUniqueId id;
    const std::string key = "nccl/" + name;
    if (rank == 0) {
      NCCL(ncclGetUniqueId(&id));
      const auto *bytes = reinterpret_cast<const uint8_t *>(&id);
      store_->set(key, std::vector<uint8_t>(bytes, bytes + sizeof id));
    } else {
      const auto bytes = store_->get(key);
      TORCH_CHECK(bytes.size() == sizeof id, kName, ": unique id in the store has ", bytes.size(),
                  " bytes");
      std::memcpy(&id, bytes.data(), sizeof id);
    }
    auto comm = std::make_shared<Comm>(rank, size, id);
    const std::lock_guard<std::mutex> lock(mutex_);
    comms_[name] = comm;
    return comm;
  }

  /* What was modelled on the compute stream so far comes before the operation, as on a GPU. */
  static void follow_compute(const Comm &comm) {
    cudaEvent_t event = nullptr;
    CUDA(RT(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming));
    CUDA(RT(cudaEventRecord)(event, compute_stream()));
    CUDA(RT(cudaStreamWaitEvent)(comm.stream, event, 0));
    CUDA(RT(cudaEventDestroy)(event));
  }

  /* An operation in flight keeps its tensors, even when the caller drops the Work. */
  void retain(const CompletionPtr &completion) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!in_flight_.empty() && in_flight_.front()->ready()) {
      in_flight_.pop_front();
    }
    in_flight_.push_back(completion);
  }

  template <typename Calls>
  WorkPtr enqueue(OpType op, const std::shared_ptr<Comm> &comm, const Tensors &keep,
                  const Tensors &outputs, const Calls &calls, std::function<void()> at_end,
                  bool grouped) {
    for (const auto &t : keep) {
      check_tensor(t);
    }
    ++seq_;
    const bool inside = coalesced_ != nullptr;
    auto completion = inside ? coalesced_ : std::make_shared<Completion>(comm);
    completion->keep(keep);
    if (at_end) {
      completion->at_end(std::move(at_end));
    }
    if (inside) {
      calls(*completion->comm());
    } else {
      follow_compute(*comm);
      if (grouped) {
        Group group;
        calls(*comm);
        group.end();
      } else {
        calls(*comm);
      }
      completion->record();
      retain(completion);
    }
    return c10::make_intrusive<StreamWork>(rank_, op, completion, outputs, seq_);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Comm>> comms_;
  std::deque<CompletionPtr> in_flight_;
  CompletionPtr coalesced_;
  std::atomic<uint64_t> seq_{0};
};

}  // namespace

#endif
