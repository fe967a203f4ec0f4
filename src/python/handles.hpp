// What Python names by numbers. A number is given once in the life of a process and of its
// children: one that is stale, or was the parent's before a fork(), finds nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace feroce::python {

class Home;

// Ends in any thread.
class Object {
public:
    Object() = default;
    virtual ~Object() = default;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
};

// Any thread.
class Handles {
public:
    using Objects = std::map<std::uint64_t, std::shared_ptr<Object>>;

    // Never destroyed: threads of the program may call while the process ends.
    static Handles& instance();

    std::uint64_t add(std::shared_ptr<Object> object);
    std::shared_ptr<Object> find(std::uint64_t handle);
    template <class T>
    std::shared_ptr<T> find(std::uint64_t handle) {
        return std::dynamic_pointer_cast<T>(find(handle));
    }
    std::shared_ptr<Object> remove(std::uint64_t handle);
    Objects remove_all();

    // The thread of sessions and disks, started when it is first asked for. Null after it was
    // taken.
    std::shared_ptr<Home> home();
    std::shared_ptr<Home> take_home();

private:
    friend struct Forking;
    Handles() = default;
    void lose_all();  // In a child: the threads that could end the objects are the parent's.

    std::mutex mutex_;  // Guards all below.
    Objects objects_;
    std::uint64_t last_ = 0;
    std::shared_ptr<Home> home_;
    bool over_ = false;
};

}  // namespace feroce::python
