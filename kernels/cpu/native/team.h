// Threads that go through the phases of a step together. A phase is a number of independent pieces. Each thread has a run
// of neighbouring ones to itself, whose weights it then reads as one stream; whoever has done with his own takes over from
// the others, so a thread that the system holds back delays only the piece it has in hand. Which thread computes a piece
// never changes its bits.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace palmette {

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  explicit Team(int threads) : size_(threads) {
    for (int i = 1; i < threads; i++) members_.emplace_back([this, i] { serve(i); });
  }
  ~Team() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (auto& member : members_) member.join();
  }
  int size() const { return size_; }

  // Runs work(thread) in every thread, the caller's being 0. `phases` is the number of run() calls in `work`.
  void start(int phases, const std::function<void(int)>& work) {
    if (phases > capacity_) {
      counters_.reset(new Phase[phases]);
      shares_.reset(new Share[size_t(phases) * size_]);
      capacity_ = phases;
    }
    for (int i = 0; i < phases * size_; i++) shares_[i].taken.store(0, std::memory_order_relaxed);
    for (int i = 0; i < phases; i++) {
      counters_[i].done.store(0, std::memory_order_relaxed);
      counters_[i].over.store(false, std::memory_order_relaxed);
    }
    if (size_ == 1) {
      work(0);
      return;
    }
    work_ = &work;
    gate_.store(0, std::memory_order_release);  // work and counters are there for whoever enters
    generation_.fetch_add(1, std::memory_order_seq_cst);
    if (asleep_.load() > 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_all();
    }
    work(0);
    // Everything is done: members that have not come yet stay out, those inside are on their way out.
    gate_.fetch_or(CLOSED, std::memory_order_acq_rel);
    wait([this] { return gate_.load(std::memory_order_acquire) == CLOSED; });
  }

  // Whether all pieces of a phase that will run have been taken already (by threads that are ahead of this one).
  bool over(int index) const { return counters_[index].over.load(std::memory_order_acquire); }

  // Phase `index` of the step: piece(i) for all i < pieces, over the threads that get here; returns when all are done.
  template <class F> void run(int index, int thread, int pieces, F&& piece) {
    Phase& phase = counters_[index];
    for (int i = 0; i < size_; i++) {
      const int owner = (thread + i) % size_, first = share_of(owner, pieces), count = share_of(owner + 1, pieces) - first;
      std::atomic<int>& taken = shares_[index * size_ + owner].taken;
      int done = 0;
      for (int mine; taken.load(std::memory_order_relaxed) < count && (mine = taken.fetch_add(1, std::memory_order_acq_rel)) < count; done++)
        piece(first + mine);
      if (done > 0) phase.done.fetch_add(done, std::memory_order_release);
    }
    phase.over.store(true, std::memory_order_release);
    wait([&] { return phase.done.load(std::memory_order_acquire) >= pieces; });
  }

 private:
  // A thread's pieces are those from its share on to the next thread's.
  int share_of(int thread, int pieces) const { return int(int64_t(pieces) * thread / size_); }

  struct alignas(64) Share {
    std::atomic<int> taken{0};
  };
  struct alignas(64) Phase {
    std::atomic<int> done{0};
    std::atomic<bool> over{false};
  };

  // A short spin, for phases last microseconds; then the core is given to whoever wants it.
  template <class F> static void wait(F&& ready) {
    for (int spins = 0; !ready(); spins++) {
      if (spins < 4000)
        relax();
      else
        std::this_thread::yield();
    }
  }

  // A member that wakes must not push its caller off the core that both may share: work that is not there yet waits, the
  // caller's doesn't. Refused where the system forbids it, with no harm.
  static void give_way() {
#if defined(__linux__)
    sched_param none{};
    int policy = 0;
    if (pthread_getschedparam(pthread_self(), &policy, &none) == 0 && policy == SCHED_OTHER)
      pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
#endif
  }

  void serve(int thread) {
    give_way();
    uint64_t seen = 0;
    for (;;) {
      for (int spins = 0; generation_.load(std::memory_order_acquire) == seen && spins < IDLE_SPINS; spins++) relax();
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_.fetch_add(1);
        wake_.wait(lock, [&] { return generation_.load() != seen; });
        asleep_.fetch_sub(1);
      }
      seen = generation_.load(std::memory_order_acquire);
      if (ending_) return;
      int inside = gate_.load(std::memory_order_acquire);
      while (!(inside & CLOSED) && !gate_.compare_exchange_weak(inside, inside + 1, std::memory_order_acq_rel)) {
      }
      if (inside & CLOSED) continue;
      (*work_)(thread);
      gate_.fetch_sub(1, std::memory_order_release);
    }
  }

  const int size_;
  std::vector<std::thread> members_;
  std::unique_ptr<Phase[]> counters_;
  std::unique_ptr<Share[]> shares_;  // [phase][thread]
  int capacity_ = 0;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint64_t> generation_{0};
  // How long a member stays awake for the next step: tens of microseconds, enough for a sampler's call behind a forward.
  // Longer would take the core from the process that sends the tokens on.
  static constexpr int IDLE_SPINS = 2000;
  static constexpr int CLOSED = 1 << 30;
  std::atomic<int> gate_{CLOSED};  // members inside a step
  std::atomic<int> asleep_{0};
  bool ending_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace palmette
