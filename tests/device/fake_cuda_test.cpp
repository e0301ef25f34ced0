// Tests of the fake driver itself: a rule that it does not hold is a rule that no test holds.

#include "fake_cuda/fake_cuda.h"

#include <array>
#include <bit>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/context.h"
#include "device/support/fake_gpu.h"

namespace trash_panda::fake_cuda {
namespace {

using runtime::cuda::Event;
using runtime::cuda::Functions;
using runtime::cuda::kInvalidValue;
using runtime::cuda::kNotReady;
using runtime::cuda::kOutOfMemory;
using runtime::cuda::kSuccess;
using runtime::cuda::PrimaryContext;
using ::testing::Contains;
using testing::fake;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FakeCuda : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    context_.reset();
    fake().reset({});
  }

  void start(const Settings& settings) {
    context_.reset();
    fake().reset(settings);
    context_ = testing::must(PrimaryContext::open(
        testing::must(runtime::cuda::Driver::load(testing::fake_library().c_str())), 0));
    copy_ = make_stream();
    compute_ = make_stream();
    device_ = allocate(kBytes);
  }
  template <class... Parameters, class... Arguments>
  Status call(Status (*Functions::*function)(Parameters...), Arguments... arguments) {
    return context_->call(function, arguments...);
  }
  Stream make_stream() {
    Stream stream = nullptr;
    EXPECT_EQ(call(&Functions::StreamCreate, &stream, 1U), kSuccess);
    return stream;
  }
  Event make_event() {
    Event event = nullptr;
    EXPECT_EQ(call(&Functions::EventCreate, &event, 0U), kSuccess);
    return event;
  }
  DeviceAddress allocate(std::size_t size_bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, size_bytes), kSuccess);
    return address;
  }
  Status copy(const std::string& source, Stream stream) {
    return call(&Functions::MemcpyHtoDAsync_v2, device_, static_cast<const void*>(source.data()),
                source.size(), stream);
  }
  Status pin(const void* memory, std::size_t size_bytes) {
    return call(&Functions::MemHostRegister_v2, const_cast<void*>(memory), size_bytes, 0U);
  }
  void read(Stream stream, std::string* into) {
    fake().compute(stream, {device_, kBytes}, {}, into);
  }

  static constexpr std::size_t kBytes = 1000;
  std::shared_ptr<PrimaryContext> context_;
  Stream copy_ = nullptr;
  Stream compute_ = nullptr;
  DeviceAddress device_ = 0;
  std::string source_ = std::string(kBytes, 's');
  std::string seen_;
};

TEST_F(FakeCuda, WorkOnOneStreamIsOrdered) {
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  read(copy_, &seen_);
  EXPECT_EQ(call(&Functions::StreamSynchronize, copy_), kSuccess);
  EXPECT_EQ(seen_, source_);
  EXPECT_THAT(fake().violations(), IsEmpty());
}

TEST_F(FakeCuda, WorkOnTwoStreamsIsNotOrderedByTime) {
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  fake().wait_idle(copy_);  // It has happened, but nothing says that it must have.
  read(compute_, &seen_);
  EXPECT_THAT(fake().violations(), Contains(HasSubstr("not ordered after a copy on stream")));
}

TEST_F(FakeCuda, AnEventOrders) {
  start({.delays = Delays::kRandom, .seed = 3});
  const Event event = make_event();
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::EventRecord, event, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::StreamWaitEvent, compute_, event, 0U), kSuccess);
  read(compute_, &seen_);
  EXPECT_EQ(call(&Functions::StreamSynchronize, compute_), kSuccess);
  EXPECT_EQ(seen_, source_);
  EXPECT_THAT(fake().violations(), IsEmpty());
}

TEST_F(FakeCuda, AnEventThatWasRecordedTooEarlyDoesNotOrder) {
  const Event event = make_event();
  EXPECT_EQ(call(&Functions::EventRecord, event, copy_), kSuccess);
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::StreamWaitEvent, compute_, event, 0U), kSuccess);
  read(compute_, &seen_);
  EXPECT_THAT(fake().violations(), SizeIs(1));
}

TEST_F(FakeCuda, WritingWhatIsStillReadIsSeen) {
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::StreamSynchronize, copy_), kSuccess);
  read(compute_, &seen_);  // Ordered by the host.
  EXPECT_THAT(fake().violations(), IsEmpty());
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_THAT(fake().violations(), Contains(HasSubstr("a computation on stream")));
}

TEST_F(FakeCuda, EventsPassWhenTheirStreamComesToThem) {
  const Event event = make_event();
  EXPECT_EQ(call(&Functions::EventQuery, event), kSuccess) << "was never recorded";
  fake().pause();
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::EventRecord, event, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::EventQuery, event), kNotReady);
  EXPECT_EQ(fake().copy_bytes_in_flight_max(), kBytes);
  fake().resume();
  EXPECT_EQ(call(&Functions::EventSynchronize, event), kSuccess);
  EXPECT_EQ(call(&Functions::EventQuery, event), kSuccess);
}

TEST_F(FakeCuda, MemoryIsFullOfRubbishAndLimited) {
  read(compute_, &seen_);
  EXPECT_EQ(call(&Functions::StreamSynchronize, compute_), kSuccess);
  EXPECT_EQ(seen_, std::string(kBytes, '\xa5'));
  DeviceAddress address = 0;
  EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, std::size_t{64} << 20), kOutOfMemory);
  EXPECT_EQ(fake().device_bytes(0), kBytes);
  EXPECT_EQ(fake().device_bytes(1), 0U);
}

TEST_F(FakeCuda, UseAfterFreeIsSeenAndBreaksTheContext) {
  EXPECT_EQ(call(&Functions::MemFree_v2, device_), kSuccess);
  EXPECT_EQ(copy(source_, copy_), kIllegalAddress);
  EXPECT_THAT(fake().violations(), Contains(HasSubstr("freed")));
  EXPECT_EQ(call(&Functions::StreamSynchronize, copy_), kIllegalAddress);
}

TEST_F(FakeCuda, FreeingWhatMayBeInUseIsSeen) {
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  fake().wait_idle(copy_);
  EXPECT_EQ(call(&Functions::MemFree_v2, device_), kSuccess);
  EXPECT_THAT(fake().violations(), Contains(HasSubstr("is freed while")));
}

TEST_F(FakeCuda, RegistrationsAreExactAndApart) {
  std::vector<char> memory(3 * kBytes);
  EXPECT_EQ(pin(memory.data(), kBytes), kSuccess);
  EXPECT_EQ(pin(memory.data() + kBytes, kBytes), kSuccess) << "right behind it";
  EXPECT_EQ(pin(memory.data() + kBytes - 1, 1), kAlreadyRegistered);
  EXPECT_EQ(pin(memory.data() + 2 * kBytes - 1, 2), kAlreadyRegistered);
  EXPECT_EQ(fake().registered_bytes(), 2 * kBytes);
  // From one into the other, and out of the last.
  for (const std::size_t from : {kBytes / 2, 3 * kBytes / 2}) {
    EXPECT_EQ(call(&Functions::MemcpyHtoDAsync_v2, device_,
                   static_cast<const void*>(memory.data() + from), kBytes, copy_),
              kInvalidValue);
  }
  EXPECT_THAT(fake().violations(), SizeIs(2));
  EXPECT_EQ(call(&Functions::MemHostUnregister, static_cast<void*>(memory.data() + 1)),
            kNotRegistered);
  for (const std::size_t at : {std::size_t{0}, kBytes}) {
    EXPECT_EQ(call(&Functions::MemHostUnregister, static_cast<void*>(memory.data() + at)),
              kSuccess);
  }
  EXPECT_EQ(fake().books().registrations, 0);
}

TEST_F(FakeCuda, APinnedSourceThatChangesUnderItsCopyIsSeen) {
  ASSERT_EQ(pin(source_.data(), kBytes), kSuccess);
  fake().pause();
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  source_[kBytes - 1] = 'x';
  fake().resume();
  EXPECT_EQ(call(&Functions::StreamSynchronize, copy_), kSuccess);
  EXPECT_THAT(fake().violations(), Contains(HasSubstr("source of a copy changed")));
}

TEST_F(FakeCuda, APageableSourceIsTakenByTheCall) {
  fake().pause();
  const std::string before = source_;
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  source_[0] = 'x';
  fake().resume();
  read(copy_, &seen_);
  EXPECT_EQ(call(&Functions::StreamSynchronize, copy_), kSuccess);
  EXPECT_EQ(seen_, before);
  EXPECT_THAT(fake().violations(), IsEmpty());
}

TEST_F(FakeCuda, ErrorsAreInjectedAtOneCall) {
  fake().fail("cuMemAlloc_v2", 2, kOutOfMemory);
  DeviceAddress address = 0;
  EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, kBytes), kSuccess);
  EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, kBytes), kOutOfMemory);
  EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, kBytes), kSuccess);
  fake().fail("cuEventQuery", 1, kLaunchFailed);
  const Event event = make_event();
  EXPECT_EQ(call(&Functions::EventQuery, event), kLaunchFailed);
  EXPECT_EQ(call(&Functions::MemAlloc_v2, &address, kBytes), kLaunchFailed) << "it stays";
}

TEST_F(FakeCuda, BooksCountWhatIsNotGivenBack) {
  EXPECT_EQ(fake().books(), (Books{.contexts = 1, .streams = 2, .device_allocations = 1}));
  make_event();
  EXPECT_EQ(fake().books().events, 1);
}

TEST_F(FakeCuda, DevicesHaveMemoryOfTheirOwn) {
  const testing::GpuUser other(1);
  Stream stream = nullptr;
  testing::must(other.context().check("stream", &Functions::StreamCreate, &stream, 1U));
  EXPECT_EQ(other.context().call(&Functions::MemcpyHtoDAsync_v2, device_,
                                 static_cast<const void*>(source_.data()), kBytes, stream),
            kIllegalAddress);
  EXPECT_EQ(fake().violations().size(), 1U);
}

TEST_F(FakeCuda, SimulatedTimeIsThatOfTheBytes) {
  start({.delays = Delays::kSimulated, .link_bytes_per_s = 1'000'000, .disk_bytes_per_s = 500'000});
  using std::chrono::milliseconds;
  ASSERT_EQ(pin(source_.data(), kBytes), kSuccess);
  const Event event = make_event();
  EXPECT_EQ(copy(source_, copy_), kSuccess);  // 1 ms.
  EXPECT_EQ(copy(source_, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::EventRecord, event, copy_), kSuccess);
  EXPECT_EQ(call(&Functions::StreamWaitEvent, compute_, event, 0U), kSuccess);
  fake().compute(compute_, {device_, kBytes}, milliseconds(5), &seen_);
  std::thread disk([] { fake().disk_read(2000); });  // Beside the others: 4 ms.
  disk.join();
  EXPECT_EQ(fake().now(), milliseconds(4));
  EXPECT_EQ(call(&Functions::StreamSynchronize, compute_), kSuccess);
  EXPECT_EQ(fake().now(), milliseconds(7));
}

}  // namespace
}  // namespace trash_panda::fake_cuda
