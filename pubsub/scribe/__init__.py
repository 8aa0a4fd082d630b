"""SRPT: a single root per topic. Whoever publishes sends to the root, and the root pushes down one tree.

SRPT-S is Scribe's way: subscribers and those between them and the root make the tree. In SRPT-B the tree joins brokers, and
subscribers hang on a broker.
- Who is whose parent: `routes`. What they say: `messages`.
- What a publisher has on its way to the root, and what the root has had of each: `channels`.
- A topic's tree as one node sees it, and the messages kept for those who come again: `tree`.
- `router` has it all together.
"""
