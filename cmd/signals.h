/* signals.h - SIGINT, SIGTERM and SIGHUP (unless it was ignored at the start) end a run after the present frame, and
 * stdin with it; a second one ends the process at once. */
#ifndef CMD_SIGNALS_H
#define CMD_SIGNALS_H

/* From the start of the process: a closed pipe and a file of the greatest size allowed are errors of the write itself,
 * with a sentence. */
void cmd_signals_ignore(void);
void cmd_signals_install(void);
/* The signal that asks for the end, or 0. */
int cmd_interrupted(void);

#endif
