/* signals.c - see signals.h */
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t received;

static void on_signal(int signal_number)
{
    if (received) _exit(128 + signal_number);
    received = signal_number;
    // a pipe on stdin that brings nothing would keep the run waiting: from now on it is at its end
    const int saved = errno, nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing > STDIN_FILENO) dup2(nothing, STDIN_FILENO);
    errno = saved;
}

void cmd_signals_ignore(void)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

void cmd_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before; // nohup has it ignored
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

int cmd_interrupted(void)
{
    return received;
}
