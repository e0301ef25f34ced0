#include "signals.h"

#include <array>
#include <atomic>
#include <csignal>
#include <signal.h>

namespace trash_panda::cli {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// Signal handlers can reach nothing but globals; both are lock-free.
std::atomic<bool> g_stop{false};
std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

std::array<struct sigaction, kSignals.size()> g_previous;

void remember_signal(int signal) {
  g_signal = signal;
  g_stop = true;
}

}  // namespace

InterruptScope::InterruptScope() {
  struct sigaction action = {};
  action.sa_handler = remember_signal;
  // RESETHAND: the second Ctrl-C of an impatient user gets the default action.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &g_previous[i]);
    // nohup ignores SIGHUP for a reason. Scripts ignore SIGINT for everything that they put into
    // the background; one that is sent all the same is meant.
    if (kSignals[i] != SIGHUP || g_previous[i].sa_handler != SIG_IGN) {
      ::sigaction(kSignals[i], &action, nullptr);
    }
  }
}

InterruptScope::~InterruptScope() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &g_previous[i], nullptr);
  }
}

StopFlag stop_flag() {
  return &g_stop;
}

int received_signal() {
  return g_signal;
}

void ignore_signals_of_writes() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGPIPE, &action, nullptr);
  ::sigaction(SIGXFSZ, &action, nullptr);
}

}  // namespace trash_panda::cli
