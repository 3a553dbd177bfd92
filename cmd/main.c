/* main.c - chooses the verb. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../engine/base.h"
#include "cmd.h"
#include "log.h"
#include "options.h"
#include "process.h"
#include "signals.h"
#ifdef HAVE_CUDA
#include "../cuda/cuda.h"
#endif

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"track", cmd_track},
    {"inspect", cmd_inspect},
    {"bench", cmd_bench},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static const char overview[] =
    "Usage:\n"
    "  sam2track [track] -m MODEL (-p PROMPTS.json | --point X,Y ...) [outputs] [options] INPUT\n"
    "  sam2track inspect [--json] FILE...\n"
    "  sam2track bench [-m MODEL | --random NAME] [options]\n"
    "\n"
    "Segments and tracks objects in recorded clips with SAM 2 and SAM 2.1 checkpoints.\n"
    "\n"
    "  track    follow objects through a clip, from a few clicks, boxes or masks (may be left out)\n"
    "  inspect  what a model, video, folder of frames or prompts file holds, and what is wrong with it\n"
    "  bench    how fast a model runs on this machine, as JSON lines\n"
    "\n"
    "For example, what lies under one pixel of the first frame, as PNG masks and as a video:\n"
    "  sam2track -m sam2.1_hiera_tiny.pt --point 210,350 --png masks --overlay out.mp4 clip.mp4\n"
    "\n"
    "'sam2track VERB --help' lists the options of a verb, 'sam2track --version' tells the version.\n"
    "The man pages sam2track(1) and sam2track-formats(5) tell the rest.\n";

static void print_version(void)
{
    puts("sam2track " S2_VERSION);
#ifdef HAVE_CUDA
    printf("CUDA backend: %s\n", cu_build());
#else
    puts("CUDA backend: not in this build");
#endif
}

static int run_verb(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "--help";
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        fputs(overview, argc > 1 ? stdout : stderr);
        return argc > 1 ? 0 : S2_E_USAGE;
    }
    if (strcmp(first, "--version") == 0) {
        print_version();
        return 0;
    }
    if (strcmp(first, "help") == 0 && argc <= 3) {
        char *of_verb[] = {argv[0], argc == 3 ? argv[2] : "--help", "--help", NULL};
        return run_verb(argc, of_verb);
    }
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(first, verbs[i].name) == 0) return verbs[i].run(argc - 2, argv + 2);
    }
    static const char *const later[] = {"image", "auto", "batch"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (strcmp(first, later[i]) == 0) {
            cmd_error("this build has no verb '%s', only track, inspect and bench (a file of that name: ./%s)", first,
                      first);
            return S2_E_USAGE;
        }
    }
    const char *names[N_VERBS];
    for (int i = 0; i < N_VERBS; i++) names[i] = verbs[i].name;
    const char *near =
        argc > 2 && !strpbrk(first, "-./%:") && access(first, F_OK) ? cmd_nearest(first, names, N_VERBS) : NULL;
    if (near) {
        cmd_error("there is no verb '%s'; did you mean %s?", first, near);
        return S2_E_USAGE;
    }
    return cmd_track(argc - 1, argv + 1);
}

/* An output opened under the number of a closed standard stream would take its messages. The stand-in cannot be
 * read or written either. */
static void hold_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
    }
}

int main(int argc, char **argv)
{
    hold_closed_streams();
    cmd_signals_ignore();
    cmd_process_started();
    const int code = run_verb(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (code) return code;
    cmd_error("stdout cannot be written: %s", strerror(errno));
    return S2_E_OUTPUT;
}
