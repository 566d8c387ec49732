"""One reader per file format; read_table picks the right one."""
