"""A chat over weft: rooms are topics, and nobody serves them.

python -m libweft.examples.chat --name ada              prints the line that a friend types
python -m libweft.examples.chat --name ada --web        the same with a page in the browser

wire.py      the messages, on a room's topic and of the history protocol
room.py      what one peer knows of one room; no IO
app.py       a node and its rooms; asks neighbours for what was said before
terminal.py  lines in, lines out
web.py       a page on 127.0.0.1, page.html
"""
