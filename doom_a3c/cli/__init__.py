"""The command lines: parse, build, run, say what happened. The only place that knows games and engines alike."""
