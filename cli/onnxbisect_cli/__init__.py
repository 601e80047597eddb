"""The `onnx-bisect` command: arguments, progress on a terminal, and exit statuses around the library's functions.

`main` has the subcommands, each `…_commands` module their arguments; what they call is imported when it runs, because
onnx takes a second to import. Start with `search_commands`.
"""
