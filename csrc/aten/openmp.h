// How many threads libtorch's own kernels take.
#pragma once

namespace neuron::aten {

// libtorch's kernels run on OpenMP threads, which spin after each use. Small calls therefore stay
// on the calling thread; what was set before is back when the object dies.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(bool parallel);
  ~OpenMpThreads();
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_ = 0;  // 0: libtorch has no OpenMP
};

}  // namespace neuron::aten
