// A list whose links are in its elements: no allocation, removal in constant time, and an element
// is in at most one list. The elements must outlive their stay.
#pragma once

#include <cstddef>

#include "base/assert.hpp"
#include "feroce/rtrs/request.hpp"

namespace feroce::rtrs {

template <class T>
class IntrusiveList {
public:
    IntrusiveList() { ends_.previous = ends_.next = &ends_; }

    bool empty() const { return ends_.next == &ends_; }
    std::size_t size() const { return size_; }
    T& front() {
        ASSERT(!empty());
        return static_cast<T&>(*ends_.next);
    }
    void push_back(T& element) { insert_before(ends_, element); }
    void push_front(T& element) { insert_before(*ends_.next, element); }
    void remove(T& element) {
        ListHook& hook = element;
        ASSERT(hook.linked());
        hook.previous->next = hook.next;
        hook.next->previous = hook.previous;
        hook.previous = hook.next = nullptr;
        --size_;
    }
    T& pop_front() {
        T& first = front();
        remove(first);
        return first;
    }
    T& pop_back() {
        ASSERT(!empty());
        T& last = static_cast<T&>(*ends_.previous);
        remove(last);
        return last;
    }

private:
    void insert_before(ListHook& place, ListHook& hook) {
        ASSERT(!hook.linked());
        hook.previous = place.previous;
        hook.next = &place;
        place.previous->next = &hook;
        place.previous = &hook;
        ++size_;
    }

    ListHook ends_;
    std::size_t size_ = 0;
};

}  // namespace feroce::rtrs
