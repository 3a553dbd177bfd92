/* signals.c - see signals.h */
#include "signals.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t received;

static void on_signal(int signal_number)
{
    if (received) _exit(128 + signal_number);
    received = signal_number;
}

void cmd_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int cmd_interrupted(void)
{
    return received;
}
