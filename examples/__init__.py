"""Programs to read and to run: a chat, embedding in asyncio and in plain threads, and questions in causal order."""

if __name__ != "libweft.examples":
    raise ImportError("import libweft.examples, not examples: the second name would load every module twice")
