// Graveyard: destroyed objects stay readable for a while, so that a program that destroys twice, or
// posts to what it has destroyed, gets an error and not somebody else's memory. The last few of
// each type are kept; then the memory goes. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>

namespace feroce::process {

template <class... Types>
class Graveyard {
public:
    static constexpr std::uint32_t kGraves = 32;  // For each type.

    Graveyard() = default;
    ~Graveyard() { (std::get<Graves<Types>>(graves_).clear(), ...); }
    Graveyard(const Graveyard&) = delete;
    Graveyard& operator=(const Graveyard&) = delete;

    // Owns `object` from here on.
    template <class T>
    void bury(T& object) {
        std::get<Graves<T>>(graves_).bury(object);
    }

private:
    template <class T>
    struct Graves {
        std::array<std::atomic<T*>, kGraves> places{};
        std::atomic<std::uint32_t> next{0};  // Only divides the places among threads: relaxed.

        void bury(T& object) {
            const std::uint32_t place = next.fetch_add(1, std::memory_order_relaxed) % kGraves;
            // acq_rel: the thread that deletes an object sees all that the thread did that buried
            // it.
            delete places[place].exchange(&object, std::memory_order_acq_rel);
        }
        void clear() {
            for (std::atomic<T*>& place : places)
                delete place.exchange(nullptr, std::memory_order_acq_rel);
        }
    };

    std::tuple<Graves<Types>...> graves_;
};

}  // namespace feroce::process
