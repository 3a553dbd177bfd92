/* signals.h - SIGINT, SIGTERM and SIGHUP (unless it was ignored at the start) end a run after the present frame, and
 * stdin with it; a second one ends the process at once.
 * SIGPIPE is ignored, so that a closed pipe is an output error with a sentence. */
#ifndef CMD_SIGNALS_H
#define CMD_SIGNALS_H

void cmd_signals_install(void);
/* The signal that asks for the end, or 0. */
int cmd_interrupted(void);

#endif
