"""One execution of a program: values, memory, tasks, blocks, loops."""
