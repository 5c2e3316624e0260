"""The longer commands, and the options and help texts that commands share."""
