/* cmd.h - the verbs. Each takes the words behind its name, prints, and returns the exit code. */
#ifndef CMD_CMD_H
#define CMD_CMD_H

int cmd_track(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_bench(int argc, char **argv);

#endif
