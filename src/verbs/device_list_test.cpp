// The list of devices is made again by one thread while others use what an earlier list named.
#include <atomic>
#include <string>
#include <thread>

#include "verbs/test_pair.hpp"

namespace feroce::verbs {
namespace {

// What a program may do with a device while another thread lists them; false if something fails.
bool use(ibv_device* device) {
    ibv_context* context = ibv_open_device(device);
    if (context == nullptr) return false;
    ibv_port_attr port{};
    ibv_gid gid{};
    const bool answers = ___ibv_query_port(context, 1, &port) == 0 &&
                         port.state == IBV_PORT_ACTIVE && ibv_query_gid(context, 1, 0, &gid) == 0 &&
                         ibv_get_device_name(device) == std::string("feroce_lo") &&
                         ibv_get_device_guid(device) != 0;
    return ibv_close_device(context) == 0 && answers;
}

// ThreadSanitizer sees a device that changes under its users; without it a name that is written
// again may be read half.
TEST(DeviceList, MayBeMadeAgainWhileADeviceIsUsed) {
    constexpr int kUses = 40;
    ::setenv("FEROCE_DEVICES", "lo", 1);
    int count = 0;
    ibv_device** first = ibv_get_device_list(&count);
    ASSERT_EQ(count, 1);
    ibv_device* device = first[0];
    std::atomic<bool> done = false;
    int lists = 0;
    int others = 0;
    std::thread lister([&] {
        do {
            ibv_device** list = ibv_get_device_list(nullptr);
            if (list == nullptr || list[0] != device) ++others;
            ibv_free_device_list(list);
            ++lists;
        } while (!done);
    });
    int used = 0;
    for (int i = 0; i < kUses; ++i) used += use(device) ? 1 : 0;
    done = true;
    lister.join();
    EXPECT_EQ(used, kUses);
    EXPECT_EQ(others, 0) << "of " << lists << " lists named another device";
    ibv_free_device_list(first);
}

}  // namespace
}  // namespace feroce::verbs
