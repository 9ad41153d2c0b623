"""Options, output and answers that commands share."""
