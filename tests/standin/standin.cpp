// What torch asks of a CUDA device in C++: a device that is always there, streams that have always
// ended, random numbers from the CPU's generator, and pinned memory that knows that it is pinned.
// It must be loaded before Python imports torch; see standin.py.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>
#include <set>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

const Device kDevice(DeviceType::CUDA, 0);

struct Guard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return kDevice; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, kDevice); }
  Stream getNewStream(Device, int = 0) const override { return Stream(Stream::DEFAULT, kDevice); }
  Stream exchangeStream(Stream) const noexcept override { return Stream(Stream::DEFAULT, kDevice); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
c10::impl::DeviceGuardImplRegistrar guard(DeviceType::CUDA, new Guard());

std::mutex pinned_mutex;
std::set<const void*> pinned;

void unpin(void* data) {
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.erase(data);
  }
  c10::GetCPUAllocator()->raw_deallocate(data);
}

struct PinnedAllocator : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(bytes);
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned.insert(data);
    return {data, data, &unpin, Device(DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

namespace at {

struct StandInHooks : CUDAHooksInterface {
  StandInHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  const Generator& getDefaultGenerator(DeviceIndex) const override {
    return detail::getDefaultCPUGenerator();
  }
  Generator getNewGenerator(DeviceIndex) const override {
    return make_generator<CPUGeneratorImpl>();
  }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    return pinned.count(data) > 0;
  }
  Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
};
using CUDAHooks = StandInHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)

namespace native {

// On an H100 cuDNN's attention comes first where it is on and takes the numbers' kind, else the
// memory-efficient one, which takes every kind (flash attention would take what has no mask).
int64_t choice(const Tensor& query, const Tensor&, const Tensor&, const std::optional<Tensor>&,
               double, bool, std::optional<double>, bool) {
  const bool is_half = query.scalar_type() == kBFloat16 || query.scalar_type() == kHalf;
  if (is_half && globalContext().userEnabledCuDNNSDP()) {
    return static_cast<int64_t>(SDPBackend::cudnn_attention);
  }
  return static_cast<int64_t>(globalContext().userEnabledMemEfficientSDP()
                                  ? SDPBackend::efficient_attention
                                  : SDPBackend::math);
}
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &choice)

}  // namespace native

}  // namespace at
