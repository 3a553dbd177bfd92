/* process.h - what the system knows about this process. */
#ifndef CMD_PROCESS_H
#define CMD_PROCESS_H

/* Notes the time; called first in main(). */
void cmd_process_started(void);
/* Seconds since the process started, loading of shared libraries included. */
double cmd_process_seconds(void);
/* The most memory that was resident at once, in MiB. */
double cmd_process_peak_mib(void);

#endif
