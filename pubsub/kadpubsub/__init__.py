"""KadPubSub: subscribers are registered at the nodes nearest to their topic, and a message travels among subscribers alone.

The study that names it leaves it open (Kademlia beneath, one of four systems compared); here it means:
- Who subscribes looks up the k nodes nearest to the topic's hash, its registrars, and registers there: `registration`.
- Registrars keep subscribers, and tell those who asked of changes: `registry`.
- When others have come nearer to the topic, registrars say so, and who subscribes registers there too: `vicinity`.
- Who publishes asks some registrars for the subscribers: `inquiry`.
- A message goes by a tree that each who carries it cuts anew among the subscribers still to be reached: `delegation`.
`messages` is what they say to each other, `config` the options, and `router` the machine made of these.
"""
