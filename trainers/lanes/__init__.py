"""How the payloads of one step travel: a lane is one kind of collective with the message that goes through it."""
