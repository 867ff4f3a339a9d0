/* A torch.distributed backend for CPU tensors over the NCCL C ABI (test bed only).
 *
 * It is linked with libnccl.so.2 and libcudart.so.12 as CUDA builds of PyTorch are, so that a
 * preloaded hook sees its calls. Structure of ProcessGroupNCCL: communicators are made at first use
 * from a unique id in the store, each has a stream of its own, an operation waits for the compute
 * stream, and what is in flight keeps its tensors alive. Unlike there Work::wait() blocks the host,
 * because the host itself reads the tensors.
 *
 * The virtual functions carry no `override` where a torch release renamed them: both names are
 * defined.
 */
#include <torch/csrc/utils/pybind.h>

#include "torch_backend_issue.h"

namespace {

class StandinBackend : public c10d::Backend {
 public:
  StandinBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : Backend(rank, size), issuer_(std::move(store), rank, size) {}

  const std::string getBackendName() const override { return kName; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return issuer_.sequence(); }
  void setTimeout(std::chrono::milliseconds /*timeout*/) {}

  void abort() { issuer_.abort(); }
  void shutdown() { issuer_.release(); }
  void startCoalescing() override { issuer_.start_coalescing(); }
  WorkPtr endCoalescing() override { return issuer_.end_coalescing(); }

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override {
    const auto root = static_cast<int>(opts.rootRank);
    return issuer_.run(OpType::BROADCAST, tensors, tensors, [&](Comm &c) {
      for (const auto &t : tensors) {
        NCCL(ncclBroadcast(t.data_ptr(), t.data_ptr(), count_of(t), data_type(t, false), root,
                           c.handle, c.stream));
      }
    });
  }

  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override {
    return allreduce_all(OpType::ALLREDUCE, tensors, opts.reduceOp);
  }

  WorkPtr allreduce_coalesced(Tensors &tensors,
                              const c10d::AllreduceCoalescedOptions &opts) override {
    return allreduce_all(OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp);
  }

  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override {
    const auto root = static_cast<int>(opts.rootRank);
    return issuer_.run(OpType::REDUCE, tensors, tensors, [&](Comm &c) {
      for (const auto &t : tensors) {
        NCCL(ncclReduce(t.data_ptr(), t.data_ptr(), count_of(t), data_type(t, true),
                        reduction(opts.reduceOp, t), root, c.handle, c.stream));
      }
    });
  }

  WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                    const c10d::AllgatherOptions & /*opts*/) override {
    Tensors staged;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(outputs[i].size() == static_cast<size_t>(size_), kName,
                  ": allgather needs one output a rank");
      for (const auto &output : outputs[i]) {
        TORCH_CHECK(output.numel() == inputs[i].numel(), kName,
                    ": allgather needs outputs of the input's size");
      }
      staged.push_back(staging(inputs[i], size_));
    }
    auto unpack = [outputs, staged] {
      for (size_t i = 0; i < staged.size(); ++i) {
        const auto parts = staged[i].chunk(static_cast<int64_t>(outputs[i].size()));
        for (size_t r = 0; r < parts.size(); ++r) {
          outputs[i][r].copy_(parts[r].view_as(outputs[i][r]));
        }
      }
    };
    Tensors flat;
    for (const auto &list : outputs) {
      flat.insert(flat.end(), list.begin(), list.end());
    }
    return gather_all(OpType::ALLGATHER, staged, inputs, flat, unpack);
  }

  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                          const c10d::AllgatherOptions & /*opts*/) {
    return gather_all(OpType::_ALLGATHER_BASE, {output}, {input}, {output}, nullptr);
  }
  WorkPtr all_gather_single(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) {
    return _allgather_base(output, input, opts);
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions & /*opts*/) {
    return gather_all(OpType::COALESCED, outputs, inputs, outputs, nullptr);
  }
  WorkPtr all_gather_single_coalesced(Tensors &outputs, Tensors &inputs,
                                      const c10d::AllgatherOptions &opts) {
    return allgather_into_tensor_coalesced(outputs, inputs, opts);
  }

  WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                         const c10d::ReduceScatterOptions &opts) override {
    Tensors staged;
    for (const auto &list : inputs) {
      TORCH_CHECK(list.size() == static_cast<size_t>(size_), kName,
                  ": reduce_scatter needs one input a rank");
      Tensors flat;
      for (const auto &t : list) {
        flat.push_back(t.reshape({-1}));
      }
      staged.push_back(at::cat(flat));
    }
    return scatter_all(OpType::REDUCE_SCATTER, outputs, staged, opts.reduceOp);
  }

  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                               const c10d::ReduceScatterOptions &opts) {
    return scatter_all(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, opts.reduceOp);
  }
  WorkPtr reduce_scatter_single(at::Tensor &output, at::Tensor &input,
                                const c10d::ReduceScatterOptions &opts) {
    return _reduce_scatter_base(output, input, opts);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &opts) {
    return scatter_all(OpType::REDUCE_SCATTER_TENSOR_COALESCED, outputs, inputs, opts.reduceOp);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &opts) {
    return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  }

  WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
                   const c10d::AllToAllOptions & /*opts*/) override {
    return issuer_.run(OpType::ALLTOALL, joined(outputs, inputs), outputs, [&](Comm &c) {
      for (int peer = 0; peer < size_; ++peer) {
        send_part(c, inputs[peer], 0, inputs[peer].numel(), peer);
        recv_part(c, outputs[peer], 0, outputs[peer].numel(), peer);
      }
    });
  }

  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits,
                        const c10d::AllToAllOptions & /*opts*/) {
    const auto sends = elements(input, input_splits);
    const auto receives = elements(output, output_splits);
    return issuer_.run(OpType::ALLTOALL_BASE, {output, input}, {output}, [&](Comm &c) {
      int64_t from = 0;
      int64_t to = 0;
      for (int peer = 0; peer < size_; ++peer) {
        send_part(c, input, from, sends[peer], peer);
        recv_part(c, output, to, receives[peer], peer);
        from += sends[peer];
        to += receives[peer];
      }
    });
  }
  WorkPtr all_to_all_single(at::Tensor &output, at::Tensor &input,
                            std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
                            const c10d::AllToAllOptions &opts) {
    return alltoall_base(output, input, output_splits, input_splits, opts);
  }

  WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                 const c10d::GatherOptions &opts) override {
    const auto root = static_cast<int>(opts.rootRank);
    const Tensors received = rank_ == root ? outputs.at(0) : Tensors{};
    return issuer_.run(OpType::GATHER, joined(received, inputs), received, [&](Comm &c) {
      send_part(c, inputs.at(0), 0, inputs[0].numel(), root);
      for (size_t peer = 0; peer < received.size(); ++peer) {
        recv_part(c, received[peer], 0, received[peer].numel(), static_cast<int>(peer));
      }
    });
  }

  WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                  const c10d::ScatterOptions &opts) override {
    const auto root = static_cast<int>(opts.rootRank);
    const Tensors sent = rank_ == root ? inputs.at(0) : Tensors{};
    return issuer_.run(OpType::SCATTER, joined(outputs, sent), outputs, [&](Comm &c) {
      for (size_t peer = 0; peer < sent.size(); ++peer) {
        send_part(c, sent[peer], 0, sent[peer].numel(), static_cast<int>(peer));
      }
      recv_part(c, outputs.at(0), 0, outputs[0].numel(), root);
    });
  }

  WorkPtr send(Tensors &tensors, int peer, int /*tag*/) override {
    return issuer_.point_to_point(OpType::SEND, tensors, peer, [&](Comm &c, int at) {
      for (const auto &t : tensors) {
        send_part(c, t, 0, t.numel(), at);
      }
    });
  }

  WorkPtr recv(Tensors &tensors, int peer, int /*tag*/) override {
    return issuer_.point_to_point(OpType::RECV, tensors, peer, [&](Comm &c, int at) {
      for (const auto &t : tensors) {
        recv_part(c, t, 0, t.numel(), at);
      }
    });
  }

  WorkPtr barrier(const c10d::BarrierOptions & /*opts*/) override {
    Tensors token{at::zeros({1}, at::kFloat)};
    return issuer_.run(OpType::BARRIER, token, token, [&](Comm &c) {
      NCCL(ncclAllReduce(token[0].data_ptr(), token[0].data_ptr(), 1, ncclFloat32, ncclSum,
                         c.handle, c.stream));
    });
  }

 private:
  WorkPtr allreduce_all(OpType op, const Tensors &tensors, const c10d::ReduceOp &reduce_op) {
    return issuer_.run(
        op, tensors, tensors,
        [&](Comm &c) {
          for (const auto &t : tensors) {
            NCCL(ncclAllReduce(t.data_ptr(), t.data_ptr(), count_of(t), data_type(t, true),
                               reduction(reduce_op, t), c.handle, c.stream));
          }
        },
        nullptr, tensors.size() > 1);
  }

  WorkPtr gather_all(OpType op, const Tensors &outputs, const Tensors &inputs,
                     const Tensors &results, std::function<void()> at_end) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_, kName, ": all-gather output ",
                  outputs[i].numel(), " elements, expected ", inputs[i].numel() * size_);
    }
    return issuer_.run(
        op, joined(outputs, inputs), results,
        [&](Comm &c) {
          for (size_t i = 0; i < inputs.size(); ++i) {
            NCCL(ncclAllGather(inputs[i].data_ptr(), outputs[i].data_ptr(), count_of(inputs[i]),
                               data_type(inputs[i], false), c.handle, c.stream));
          }
        },
        std::move(at_end), inputs.size() > 1);
  }

  WorkPtr scatter_all(OpType op, const Tensors &outputs, const Tensors &inputs,
                      const c10d::ReduceOp &reduce_op) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_, kName, ": reduce-scatter input ",
                  inputs[i].numel(), " elements, expected ", outputs[i].numel() * size_);
    }
    return issuer_.run(
        op, joined(outputs, inputs), outputs,
        [&](Comm &c) {
          for (size_t i = 0; i < inputs.size(); ++i) {
            NCCL(ncclReduceScatter(inputs[i].data_ptr(), outputs[i].data_ptr(),
                                   count_of(outputs[i]), data_type(inputs[i], true),
                                   reduction(reduce_op, inputs[i]), c.handle, c.stream));
          }
        },
        nullptr, inputs.size() > 1);
  }

  std::vector<int64_t> elements(const at::Tensor &tensor,
                                const std::vector<int64_t> &splits) const {
    std::vector<int64_t> counts(size_, 0);
    if (splits.empty()) {
      TORCH_CHECK(tensor.size(0) % size_ == 0, kName, ": all-to-all of ", tensor.size(0),
                  " rows over ", size_, " ranks");
      std::fill(counts.begin(), counts.end(), tensor.numel() / size_);
      return counts;
    }
    const int64_t row = tensor.size(0) > 0 ? tensor.numel() / tensor.size(0) : 0;
    for (int peer = 0; peer < size_; ++peer) {
      counts[peer] = splits[peer] * row;
    }
    return counts;
  }

  Issuer issuer_;
};

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions &opts,
                                         const py::object & /*options*/) {
  return c10::make_intrusive<StandinBackend>(opts.store, opts.group_rank, opts.group_size);
}

void set_device(int index) {
  device_index = index;
  CUDA(RT(cudaSetDevice)(index));
}

int device_count() {
  int count = 0;
  CUDA(RT(cudaGetDeviceCount)(&count));
  return count;
}

void device_time(double work_s) {
  TORCH_CHECK(RT(standinKernel)(compute_stream(), device_free_ns.load(), work_s) == cudaSuccess,
              kName, ": standinKernel failed");
}

void synchronize() { CUDA(RT(cudaStreamSynchronize)(compute_stream())); }

}  // namespace

PYBIND11_MODULE(greyhound_torch_backend, m) {
  m.doc() =
      "torch.distributed over the NCCL C ABI for CPU tensors, and modelled device time (test bed "
      "only)";
  m.def("create", &create, py::arg("distributed_backend_options"), py::arg("backend_options"));
  m.def("set_device", &set_device, "Choose this process's GPU; before the first communicator.",
        py::arg("index"));
  m.def("device_count", &device_count);
  m.def("device_time", &device_time,
        "Enqueue work_s seconds (at full speed) of modelled kernel time. It begins when the stream "
        "is free and the "
        "last operation that the host waited for was done.",
        py::arg("work_s"), py::call_guard<py::gil_scoped_release>());
  m.def("synchronize", &synchronize, "Block until the modelled kernels are done.",
        py::call_guard<py::gil_scoped_release>());
}
