"""ELF files: Linux, Android, and firmware for bare metal."""
