"""Programs that answer as adb and Android's NDK do, where neither is."""
